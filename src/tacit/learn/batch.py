"""The rows of a training batch, and cutting them into micro-batches by tokens.

A row is one trained call. Rows whose ratio or whose silence is computed together stay together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Ids = tuple[int, ...]


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
    context: int | None = None
    """The choice this message was spoken in, where it was drawn given speech."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One context in which an agent chose between speaking and silence (`arms`)."""

    policy: str
    prompt_ids: Ids
    marker_ids: Ids
    log_p: float
    """log π(silence) as the engine saw it."""
    gain: float
    """R_silent − mean R_spoken."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Rows that must be computed in one micro-batch, with the choices they need."""

    rows: tuple[int, ...]
    choices: tuple[int, ...]
    width: int
    """Longest prompt plus output among them."""

    @property
    def height(self) -> int:
        return len(self.rows) + len(self.choices)


def bundle(rows: Sequence[Row], choices: Sequence[Choice]) -> list[Bundle]:
    """The connected groups of rows: those that share a sequence or a choice, one policy each."""
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(key: tuple[str, int]) -> tuple[str, int]:
        while (above := parent.setdefault(key, key)) != key:
            key = above
        return key

    for number, row in enumerate(rows):
        parent[root(("row", number))] = root(("sequence", row.sequence))
        if row.context is not None:
            parent[root(("choice", row.context))] = root(("row", number))
    groups: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
    for number in range(len(rows)):
        groups.setdefault(root(("row", number)), ([], []))[0].append(number)
    for number in range(len(choices)):
        groups.setdefault(root(("choice", number)), ([], []))[1].append(number)
    return [Bundle(tuple(r), tuple(c), _width(rows, choices, r, c)) for r, c in groups.values()]


def _width(
    rows: Sequence[Row], choices: Sequence[Choice], some: list[int], others: list[int]
) -> int:
    spoken = (len(rows[i].prompt_ids) + len(rows[i].output_ids) for i in some)
    silent = (len(choices[i].prompt_ids) + len(choices[i].marker_ids) for i in others)
    return max((*spoken, *silent))


def microbatches(bundles: Iterable[Bundle], tokens: int) -> list[list[Bundle]]:
    """Bundles of like width together, so many padded tokens at most; a bundle is never cut."""
    cut: list[list[Bundle]] = []
    height = 0
    for one in sorted(bundles, key=lambda b: (-b.width, b.rows)):
        if not cut or (height + one.height) * cut[-1][0].width > tokens:
            cut.append([])
            height = 0
        cut[-1].append(one)
        height += one.height
    return cut


def split(bundles: Sequence[Bundle], parts: int) -> list[list[Bundle]]:
    """Mini-batches of as equal size as may be, for several updates on one batch."""
    dealt = [list(bundles[part::parts]) for part in range(parts)]
    return [some for some in dealt if some]
