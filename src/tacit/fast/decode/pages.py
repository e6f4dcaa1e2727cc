"""Keys and values in pages: a row holds what it needs, and shares those of its prompt."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.engine.base import Sampling
from tacit.silence.conditioning import SilenceOdds

PAGE = 16
"""Tokens a page."""


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE)


Name = tuple[int, tuple[int, ...]]
"""(the page before it, or −1; its ids): what a full page of a prompt holds follows from that."""


class Pages:
    """Which pages are free, how many use each of the others, and what full ones hold."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._users = [0] * count
        self._named: dict[Name, int] = {}
        self._names: dict[int, Name] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """So many free pages; the caller has looked whether there are."""
        taken = [self._free.pop() for _ in range(count)]
        self.share(taken)
        return taken

    def share(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._users[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._users[page] -= 1
            if not self._users[page]:
                self._free.append(page)
                self._named.pop(self._names.pop(page, (-1, ())), None)

    def holding(self, ids: tuple[int, ...]) -> list[int]:
        """The pages, in use by somebody, that hold these ids from the first on."""
        found: list[int] = []
        for name_ids in _full(ids):
            page = self._named.get((found[-1] if found else -1, name_ids))
            if page is None:
                break
            found.append(page)
        return found

    def name(self, pages: list[int], ids: tuple[int, ...]) -> None:
        """Have the full ones found by what they hold, or soon will."""
        for before, page, name_ids in zip([-1, *pages], pages, _full(ids), strict=False):
            name = before, name_ids
            if name not in self._named and page not in self._names:
                self._named[name] = page
                self._names[page] = name

    def forget(self) -> None:
        """What pages hold is of no more use to anybody new."""
        self._named.clear()
        self._names.clear()


def _full(ids: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return (ids[end - PAGE : end] for end in range(PAGE, len(ids) + 1, PAGE))


Key = tuple[tuple[int, ...], tuple[int, ...]]
"""(ids, marker)."""


@dataclass(slots=True, eq=False)
class Prompt:
    """Ids whose keys and values are in the cache, or are about to be."""

    ids: tuple[int, ...]
    marker: tuple[int, ...]
    pages: list[int]
    known: int = 0
    """Tokens, from the first on, in pages that another prompt fills or has filled."""
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

    def begun(self, key: Key) -> list[int]:
        """Pages of others that a prompt can begin with; its last token is always computed."""
        return self._pages.holding(key[0][:-1])

    def add(self, key: Key, begun: Sequence[int] = ()) -> Prompt:
        """With pages to begin with, of which it becomes a user; the others are taken."""
        self._pages.share(begun)
        pages = [*begun, *self._pages.take(pages_for(len(key[0])) - len(begun))]
        self._pages.name(pages, key[0])
        self._kept[key] = prompt = Prompt(*key, pages, len(begun) * PAGE)
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
        self._pages.forget()
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
