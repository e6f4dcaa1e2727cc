"""The time box of one call: work stops cleanly before it is over and goes on in the next."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

RESERVE = 20.0
"""Seconds kept for saving weights and writing results."""
MARGIN = 1.2
RECENT = 25
"""Steps looked back on: enough to hold one with an evaluation, few enough to forget the first,
in which kernels are made."""


@dataclass(slots=True)
class Clock:
    minutes: float
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    _last: float | None = None
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def __post_init__(self) -> None:
        self.began = self.now()

    @property
    def spent(self) -> float:
        return self.now() - self.began

    @property
    def left(self) -> float:
        """Seconds that work may still take."""
        return max(0.0, 60 * self.minutes - RESERVE - self.spent)

    @property
    def minutes_left(self) -> float:
        """As they would be asked for, what is kept included."""
        return max(0.0, self.minutes - self.spent / 60)

    def too_late(self) -> bool:
        """Whether another step would not fit, going by recent ones. Ask before each step."""
        now = self.now()
        if self._last is not None:
            self._steps.append(now - self._last)
        self._last = now
        return MARGIN * max(self._steps, default=0.0) >= self.left
