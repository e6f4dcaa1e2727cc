"""A paged KV cache: rows hold the pages they need, and share the full pages of their prompts."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.engine.base import Sampling
from tacit.silence.conditioning import SilenceOdds

PAGE = 16
"""Tokens in a page."""


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE)


Name = tuple[int, tuple[int, ...]]
"""(the page before it or −1, its ids), which determine the contents of a prompt's full page."""


class Pages:
    """Tracks which pages are free, how many users the others have, and what full ones hold."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._users = [0] * count
        self._named: dict[Name, int] = {}
        self._names: dict[int, Name] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Take free pages; the caller has checked that there are enough."""
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
        """The pages in use that hold a prefix of these ids."""
        found: list[int] = []
        for name_ids in _full(ids):
            page = self._named.get((found[-1] if found else -1, name_ids))
            if page is None:
                break
            found.append(page)
        return found

    def name(self, pages: list[int], ids: tuple[int, ...]) -> None:
        """Let the full ones be found by the ids that they hold, or will hold soon."""
        for before, page, name_ids in zip([-1, *pages], pages, _full(ids), strict=False):
            name = before, name_ids
            if name not in self._named and page not in self._names:
                self._named[name] = page
                self._names[page] = name

    def forget(self) -> None:
        """Forget what all pages hold: the weights have changed."""
        self._named.clear()
        self._names.clear()


def _full(ids: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return (ids[end - PAGE : end] for end in range(PAGE, len(ids) + 1, PAGE))


Key = tuple[tuple[int, ...], tuple[int, ...]]
"""(ids, marker)."""


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt whose keys and values are in the cache, or are about to be."""

    ids: tuple[int, ...]
    marker: tuple[int, ...]
    pages: list[int]
    known: int = 0
    """Leading tokens in pages that another prompt fills or has filled."""
    logits_NV: Tensor | None = None
    """After the ids, then after each id of the marker but its last; None until computed."""
    odds: dict[Sampling, SilenceOdds] = field(default_factory=dict)

    @property
    def whole_pages(self) -> list[int]:
        """The full pages: rows can share them, since nothing more will be written into them."""
        return self.pages[: len(self.ids) // PAGE]

    @property
    def tail_page(self) -> int | None:
        """The last page if it is not full; every row needs its own copy of it."""
        return self.pages[-1] if len(self.ids) % PAGE else None


class Prompts:
    """Recent prompts by their ids and marker; the least recently used are dropped first."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._kept: OrderedDict[Key, Prompt] = OrderedDict()

    def find(self, key: Key) -> Prompt | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def begun(self, key: Key) -> list[int]:
        """Other prompts' pages that a prompt can start with; its last token is always computed."""
        return self._pages.holding(key[0][:-1])

    def add(self, key: Key, begun: Sequence[int] = ()) -> Prompt:
        """Add a prompt that shares the pages in `begun` and takes free ones for the rest."""
        self._pages.share(begun)
        pages = [*begun, *self._pages.take(pages_for(len(key[0])) - len(begun))]
        self._pages.name(pages, key[0])
        self._kept[key] = prompt = Prompt(*key, pages, len(begun) * PAGE)
        return prompt

    def like(self, prompt: Prompt) -> list[Prompt]:
        """The computed prompts with the same marker."""
        same = [one for one in self._kept.values() if one.marker == prompt.marker]
        return [one for one in same if one.logits_NV is not None]

    def trim(self, most: int) -> None:
        """Keep at most this many; call it while none is about to be used."""
        while len(self._kept) > most:
            self._pages.release(self._kept.popitem(last=False)[1].pages)

    def make_room(self, pages: int, keep: set[int]) -> bool:
        """Drop old prompts until this many pages are free; `keep` holds the `id`s to spare."""
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
    """Copy each (source, target) pair of pages."""
    if not pairs:
        return
    paged = cache.view(*cache.shape[:2], -1, PAGE, *cache.shape[3:])
    index = torch.tensor(pairs, device=cache.device)
    paged[:, :, index[:, 1]] = paged[:, :, index[:, 0]]
