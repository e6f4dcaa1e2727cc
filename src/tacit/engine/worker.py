"""The thread that runs all forward passes of a model, and can be paused.

Weights may change only while the worker is paused. A pause keeps forward passes out; it does not
keep two learners apart.
"""

import threading
from collections.abc import Callable

Work = Callable[[], bool]
"""Does a little work and returns True if there is more. It must not raise."""


class Worker:
    def __init__(self) -> None:
        self.epoch = 0
        """How many pauses have ended; results of earlier epochs may be stale."""
        self._changed = threading.Condition()
        self._steps: list[Work] = []
        self._thread: threading.Thread | None = None
        self._work = False
        self._stepping = False
        self._pauses = 0

    def add(self, step: Work) -> None:
        """Call `step` from the worker's thread whenever there may be work."""
        with self._changed:
            self._steps.append(step)

    def remove(self, step: Work) -> None:
        """Stop calling `step`; returns once it is certainly not running."""
        with self._changed:
            self._steps.remove(step)
            self._changed.notify_all()
            thread = self._thread
            self._changed.wait_for(lambda: not self._stepping)
            self._changed.wait_for(lambda: self._steps or self._thread is None)
            ended = self._thread is None
        if thread is not None and ended:
            thread.join()

    def wake(self) -> None:
        with self._changed:
            self._work = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tacit-engine", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def hold(self) -> None:
        """Ask for a pause: `wait_idle` returns once it has begun, `release` ends it."""
        with self._changed:
            self._pauses += 1

    def wait_idle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._stepping)

    def release(self) -> None:
        with self._changed:
            self._pauses -= 1
            self.epoch += 1
            self._changed.notify_all()

    def _run(self) -> None:
        while self._begin():
            more = [step() for step in list(self._steps)]
            with self._changed:
                self._stepping = False
                self._work |= any(more)
                self._changed.notify_all()

    def _begin(self) -> bool:
        """Wait for work; False if no steps are left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._steps or (self._work and not self._pauses))
            if not self._steps:
                self._thread = None
                self._changed.notify_all()
                return False
            self._work = False
            self._stepping = True
            return True
