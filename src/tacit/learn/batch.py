"""The rows of a training batch, and cutting them into microbatches by tokens.

A row is one trained call. Rows whose ratio or whose silence is computed together stay together.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tacit.silence import Ids

LEAST_SHARED = 16
"""Tokens that prompts must have in common, unless they are equal, to be computed once."""
SPREAD = 4
"""How many times a microbatch's tokens attention may work on: each message's whole prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One message to learn from."""

    policy: str
    prompt_ids: Ids
    output_ids: Ids
    engine_logprobs: tuple[float, ...]
    advantage: float
    sequence: int
    """Rows of one number share a GSPO ratio."""
    weight: float = 1.0
    silent: bool = False
    marker: Ids = ()
    """The silence marker, where the message was drawn given that it is not silence."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Rows that must be computed in one microbatch."""

    rows: tuple[Row, ...]
    height: int
    """How many messages that makes, markers included."""
    width: int
    """Longest prompt plus output among them."""
    tokens: int
    """Of all of them, what prompts have in common counted once."""
    spread: int
    """Of all of them, each with its whole prompt: what attention works on."""

    @property
    def prompt(self) -> Ids:
        return self.rows[0].prompt_ids


def markers(rows: Iterable[Row]) -> list[tuple[Ids, Ids]]:
    """The (prompt, marker) pairs that must be scored to know rows given speech, once each."""
    return list(dict.fromkeys((row.prompt_ids, row.marker) for row in rows if row.marker))


def bundle(rows: Sequence[Row]) -> list[Bundle]:
    """The connected groups of rows: those that share a sequence or a choice to speak."""
    parent: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        while (above := parent.setdefault(key, key)) != key:
            key = above
        return key

    for row in rows:
        if row.marker:
            parent[root((row.prompt_ids, row.marker))] = root(row.sequence)
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(root(row.sequence), []).append(row)
    return [_bundle(group) for group in groups.values()]


def _bundle(rows: Sequence[Row]) -> Bundle:
    said = [(row.prompt_ids, row.output_ids) for row in rows] + markers(rows)
    sizes = [len(prompt) + len(output) for prompt, output in said]
    prompts = sorted(prompt for prompt, _ in said)
    shared = sum(counted_once(*pair) for pair in pairwise(prompts))
    return Bundle(tuple(rows), len(said), max(sizes), sum(sizes) - shared, sum(sizes))


def microbatches(
    bundles: Iterable[Bundle], tokens: int, *, padded: bool = True
) -> list[list[Bundle]]:
    """Bundles in pieces of about so many tokens at most; a bundle is never cut.

    Padded ones stand beside those of like width, and count as long as the longest. Others stand
    beside those whose prompts begin alike, which counts once, up to SPREAD times as many in all.
    """
    cut: list[list[Bundle]] = []
    room = spread = 0
    for one in _ordered(bundles, padded):
        size = _size(one, cut[-1], padded) if cut else 0
        if not cut or size > room or (one.spread > spread and not padded):
            cut.append([])
            room, spread = tokens, SPREAD * tokens
            size = _size(one, [], padded)
        cut[-1].append(one)
        room -= size
        spread -= one.spread
    return cut


def size_of(bundles: Iterable[Bundle], *, padded: bool = True) -> int:
    """What these take of a microbatch's tokens."""
    ordered = _ordered(bundles, padded)
    return sum(_size(one, ordered[:place], padded) for place, one in enumerate(ordered))


def _ordered(bundles: Iterable[Bundle], padded: bool) -> list[Bundle]:
    return _widest_first(bundles) if padded else _alike(bundles)


def _size(one: Bundle, beside: Sequence[Bundle], padded: bool) -> int:
    if padded:
        return one.height * (beside[0].width if beside else one.width)
    return one.tokens - (counted_once(beside[-1].prompt, one.prompt) if beside else 0)


def _widest_first(bundles: Iterable[Bundle]) -> list[Bundle]:
    return sorted(bundles, key=lambda one: -one.width)


def _alike(bundles: Iterable[Bundle]) -> list[Bundle]:
    """Those with half a prompt in common beside each other, else by width: a CPU pads to it."""
    ordered = sorted(bundles, key=lambda one: (one.prompt, -one.width))
    alike = [ordered[:1]]
    for before, one in pairwise(ordered):
        least = min(len(before.prompt), len(one.prompt))
        if 2 * counted_once(before.prompt, one.prompt) >= least:
            alike[-1].append(one)
        else:
            alike.append([one])
    alike.sort(key=lambda some: -max((one.width for one in some), default=0))
    return [one for some in alike for one in some]


def _families(bundles: Iterable[Bundle]) -> list[list[Bundle]]:
    found: dict[Ids, list[Bundle]] = {}
    for one in bundles:
        found.setdefault(one.prompt, []).append(one)
    return list(found.values())


def split(bundles: Sequence[Bundle], parts: int) -> list[list[Bundle]]:
    """Mini-batches of as equal size as may be, for several updates on one batch.

    Those of one prompt stay together where the sizes then differ by no more than a tenth: a group's
    advantages add up to nothing in its mini-batch, and its prompt is computed once.
    """
    dealt: list[list[Bundle]] = [[] for _ in range(parts)]
    for family in sorted(_families(bundles), key=lambda some: -len(some)):
        min(dealt, key=len).extend(family)
    sizes = [len(some) for some in dealt]
    if max(sizes) - min(sizes) > max(1, len(bundles) // parts // 10):
        dealt = [list(bundles[part::parts]) for part in range(parts)]
    return [some for some in dealt if some]


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens from the first on that are the same."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def counted_once(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that prompts beside each other, in dictionary order, need not have computed twice."""
    same = in_common(one, other)
    return same if same >= LEAST_SHARED or same == len(one) == len(other) else 0
