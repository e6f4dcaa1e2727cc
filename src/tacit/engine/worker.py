"""One thread per model that runs all its forward passes, and the right to stop it for a while.

A forward pass releases the event loop but not the weights: whoever changes them first pauses the
worker. Pausing keeps forward passes out; it does not keep two learners apart.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Work = Callable[[], bool]
"""Does a little work and says whether more is left. It must not raise."""


class Worker:
    def __init__(self) -> None:
        self.epoch = 0
        """How many pauses have ended: what was computed in an earlier epoch may be stale."""
        self._changed = threading.Condition()
        self._steps: list[Work] = []
        self._thread: threading.Thread | None = None
        self._work = False
        self._stepping = False
        self._pauses = 0

    def join(self, step: Work) -> None:
        """Have `step` called, from the worker's thread, whenever there may be work."""
        with self._changed:
            self._steps.append(step)

    def leave(self, step: Work) -> None:
        """Call `step` no more; returns once it is certain not to be running."""
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
        """Ask for a pause; `wait_idle` tells when it has begun, `release` ends it."""
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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No forward pass runs inside this block. For threads; an engine has one for coroutines."""
        self.hold()
        try:
            self.wait_idle()
            yield
        finally:
            self.release()

    def _run(self) -> None:
        while self._begin():
            more = [step() for step in list(self._steps)]
            with self._changed:
                self._stepping = False
                self._work |= any(more)
                self._changed.notify_all()

    def _begin(self) -> bool:
        """Wait for work; False when nobody is left to work for."""
        with self._changed:
            self._changed.wait_for(lambda: not self._steps or (self._work and not self._pauses))
            if not self._steps:
                self._thread = None
                self._changed.notify_all()
                return False
            self._work = False
            self._stepping = True
            return True
