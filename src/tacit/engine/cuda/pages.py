"""Keys and values in pages: a row holds what it needs, and shares those of its prompt."""

from collections import OrderedDict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.engine.base import Sampling
from tacit.engine.silence import SilenceOdds

PAGE = 16
"""Tokens a page."""


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE)


class Pages:
    """Which pages are free, and how many use each of the others."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._users = [0] * count

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """So many free pages; the caller has looked whether there are."""
        taken = [self._free.pop() for _ in range(count)]
        self.share(taken)
        return taken

    def share(self, pages: list[int]) -> None:
        for page in pages:
            self._users[page] += 1

    def release(self, pages: list[int]) -> None:
        for page in pages:
            self._users[page] -= 1
            if not self._users[page]:
                self._free.append(page)


Key = tuple[tuple[int, ...], tuple[int, ...]]
"""(ids, marker)."""


@dataclass(slots=True, eq=False)
class Prompt:
    """Ids whose keys and values are in the cache, or are about to be."""

    ids: tuple[int, ...]
    marker: tuple[int, ...]
    pages: list[int]
    logits_NV: Tensor | None = None
    """After the ids, and then after each id of the marker but its last; None until computed."""
    odds: dict[Sampling, SilenceOdds] = field(default_factory=dict)

    @property
    def whole_pages(self) -> list[int]:
        """Those that rows can share, because nothing will be written into them any more."""
        return self.pages[: len(self.ids) // PAGE]

    @property
    def tail_page(self) -> int | None:
        """The last one, if it is not full: every row needs a copy of its own."""
        return self.pages[-1] if len(self.ids) % PAGE else None


class Prompts:
    """Prompts computed lately, by their ids and marker; the least recently used give way."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._kept: OrderedDict[Key, Prompt] = OrderedDict()

    def find(self, key: Key) -> Prompt | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def add(self, key: Key) -> Prompt:
        prompt = Prompt(*key, self._pages.take(pages_for(len(key[0]))))
        self._kept[key] = prompt
        return prompt

    def like(self, prompt: Prompt) -> list[Prompt]:
        """Those computed with the same marker."""
        same = [one for one in self._kept.values() if one.marker == prompt.marker]
        return [one for one in same if one.logits_NV is not None]

    def trim(self, most: int) -> None:
        """Keep so many at most; to be called while nobody is about to use one."""
        while len(self._kept) > most:
            self._pages.release(self._kept.popitem(last=False)[1].pages)

    def make_room(self, pages: int, keep: set[int]) -> bool:
        """Let old prompts go until so many pages are free; those to keep are given by `id`."""
        for key in list(self._kept):
            if self._pages.free >= pages:
                break
            if id(self._kept[key]) not in keep:
                self._pages.release(self._kept.pop(key).pages)
        return self._pages.free >= pages

    def clear(self) -> None:
        for prompt in self._kept.values():
            self._pages.release(prompt.pages)
        self._kept.clear()


def copy_pages(cache: Tensor, pairs: list[tuple[int, int]]) -> None:
    """Copy pages (from, to)."""
    if not pairs:
        return
    paged = cache.view(*cache.shape[:2], -1, PAGE, *cache.shape[3:])
    index = torch.tensor(pairs, device=cache.device)
    paged[:, :, index[:, 1]] = paged[:, :, index[:, 0]]
