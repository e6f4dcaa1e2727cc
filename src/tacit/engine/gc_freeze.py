"""Python's garbage collector, kept from walking what will not become garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, the collector leaves alone whatever was there before.

    torch, transformers and the models are some 400,000 objects: a full collection walks them for a
    quarter of a second or more, again and again, while a GPU and everybody else waits.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
