"""Computing in pieces, and in smaller ones where memory runs out."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tacit.engine.memory import ran_out

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def as_memory_allows(
    pieces: Iterable[Piece],
    compute: Callable[[Piece], Result],
    halved: Callable[[Piece], list[Piece]],
) -> Iterator[tuple[Piece, Result]]:
    """Each piece with what comes of it, in order; `halved` gives nothing where it cannot be cut."""
    waiting = deque(pieces)
    while waiting:
        piece = waiting.popleft()
        try:
            result = compute(piece)
        except RuntimeError as error:
            smaller = halved(piece) if ran_out(error) else []
            if not smaller:
                raise
            waiting.extendleft(reversed(smaller))
        else:
            yield piece, result


def in_two(items: list[Piece]) -> list[list[Piece]]:
    """Two halves of a list; nothing where one of them would be empty."""
    middle = len(items) // 2
    return [items[:middle], items[middle:]] if middle else []
