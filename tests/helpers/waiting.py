"""Waiting for what another thread or process does, without guessing how long it takes."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Look until it is so; only what hangs takes as long as the limit."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.005)
