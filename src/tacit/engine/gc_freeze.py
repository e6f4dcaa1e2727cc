"""Keeps Python's garbage collector away from objects that live as long as the process."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_frozen() -> Iterator[None]:
    """The collector skips, inside this block, all objects that existed before it.

    torch, transformers and the models are some 400,000 objects: every full collection walks them
    for a quarter of a second or more, while the GPU waits.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
