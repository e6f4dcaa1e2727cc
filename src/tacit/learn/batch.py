"""The rows of a training batch, and how they are cut into microbatches by tokens.

A row is one call of a trained agent. Rows that share a ratio or a marker stay together.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tacit.types import Ids

LEAST_SHARED = 16
"""Shortest common beginning of two different prompts that is computed only once."""
SPREAD = 4
"""Bound on the tokens that attention reads, whole prompts included, in microbatches' tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One message to learn from."""

    policy: str
    prompt_ids: Ids
    output_ids: Ids
    engine_logprobs: tuple[float, ...]
    advantage: float
    sequence: int
    """Rows with the same number share a GSPO ratio."""
    weight: float = 1.0
    silent: bool = False
    marker: Ids = ()
    """The silence marker if the message was drawn given that it is not silence, else empty."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Rows that must be computed in one microbatch."""

    rows: tuple[Row, ...]
    height: int
    """Number of messages, markers included."""
    width: int
    """Length of the longest prompt plus output."""
    tokens: int
    """Total length, counting what prompts have in common once."""
    spread: int
    """Total length, counting each message with its whole prompt."""

    @property
    def prompt(self) -> Ids:
        return self.rows[0].prompt_ids


def markers(rows: Iterable[Row]) -> list[tuple[Ids, Ids]]:
    """The distinct (prompt, marker) pairs that must be scored along with the rows."""
    return list(dict.fromkeys((row.prompt_ids, row.marker) for row in rows if row.marker))


def bundle(rows: Sequence[Row]) -> list[Bundle]:
    """The connected components of rows that share a sequence, or a prompt and marker."""
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
    """Pieces of at most about `tokens` tokens; a bundle is never cut.

    Padded bundles are sorted by width and count as wide as the widest of their piece. Others are
    sorted so that common beginnings of prompts, which count once, are next to each other.
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
    """Tokens that the bundles take up in one microbatch."""
    ordered = _ordered(bundles, padded)
    return sum(_size(one, ordered[:place], padded) for place, one in enumerate(ordered))


def _ordered(bundles: Iterable[Bundle], padded: bool) -> list[Bundle]:
    return sorted(bundles, key=lambda one: -one.width) if padded else _alike(bundles)


def _size(one: Bundle, beside: Sequence[Bundle], padded: bool) -> int:
    if padded:
        return one.height * (beside[0].width if beside else one.width)
    return one.tokens - (counted_once(beside[-1].prompt, one.prompt) if beside else 0)


def _alike(bundles: Iterable[Bundle]) -> list[Bundle]:
    """Ordered in groups that share half a prompt, widest first: the CPU pads each group."""
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


def split(bundles: Sequence[Bundle], parts: int) -> list[list[Bundle]]:
    """Mini-batches of about equal size, for several updates on one batch.

    Bundles of one prompt stay together unless sizes would then differ by more than a tenth: the
    advantages of a group then sum to 0 in its mini-batch, and its prompt is computed once.
    """
    families: dict[Ids, list[Bundle]] = {}
    for one in bundles:
        families.setdefault(one.prompt, []).append(one)
    dealt: list[list[Bundle]] = [[] for _ in range(parts)]
    for family in sorted(families.values(), key=lambda some: -len(some)):
        min(dealt, key=len).extend(family)
    sizes = [len(some) for some in dealt]
    if max(sizes) - min(sizes) > max(1, len(bundles) // parts // 10):
        dealt = [list(bundles[part::parts]) for part in range(parts)]
    return [some for some in dealt if some]


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def counted_once(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that need not be computed twice for two prompts next to each other in sorted order."""
    same = in_common(one, other)
    return same if same >= LEAST_SHARED or same == len(one) == len(other) else 0
