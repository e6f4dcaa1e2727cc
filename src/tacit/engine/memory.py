"""Recognises errors of full memory, and computes in smaller pieces when they occur."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_FULL = re.compile(
    r"out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED.*cublasCreate"
)
"""Errors of CUDA and its libraries when other programs have taken the device's memory, and Tacit's
own message."""

ADVICE = (
    "the device's memory is full: use fewer `rows` or shorter max_tokens, or end what else uses "
    "the device; what was saved is kept"
)


def ran_out(error: BaseException) -> bool:
    """True if memory ran out, so that a smaller piece of the same work might succeed."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_FULL.search(str(error)))


def as_memory_allows(
    pieces: Iterable[Piece],
    compute: Callable[[Piece], Result],
    halved: Callable[[Piece], list[Piece]],
) -> Iterator[tuple[Piece, Result]]:
    """Each piece with its result, in order; `halved` returns [] for a piece that cannot be cut."""
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
    """The two halves of a list; an empty list if one half would be empty."""
    middle = len(items) // 2
    return [items[:middle], items[middle:]] if middle else []
