"""The time box of one call: work stops cleanly before it is over and goes on in the next."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

RESERVE = 20.0
"""Seconds kept for saving weights and writing results."""
MARGIN = 1.2


@dataclass(slots=True)
class Clock:
    minutes: float
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    _last: float | None = None
    _longest: float = 0.0

    def __post_init__(self) -> None:
        self.began = self.now()

    @property
    def spent(self) -> float:
        return self.now() - self.began

    @property
    def left(self) -> float:
        """Seconds that work may still take."""
        return max(0.0, 60 * self.minutes - RESERVE - self.spent)

    def too_late(self) -> bool:
        """Whether another step would not fit, going by the longest so far. Ask before each step."""
        now = self.now()
        if self._last is not None:
            self._longest = max(self._longest, now - self._last)
        self._last = now
        return MARGIN * self._longest >= self.left
