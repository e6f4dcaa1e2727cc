"""Several experiments at a time on one device, each in a process of its own, in one time box.

One run leaves much of a large GPU idle: while it grades, learns from few tokens or waits for its
last episode, others can go on. Nobody plans the memory they share: a run that finds none ends, to
be continued, and is begun again when others have ended.
"""

import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from experiments.clock import Clock

FINISHED, TO_BE_CONTINUED = 0, 75
TRIES = 3
LEAST_MINUTES = 2.0
"""Nothing is begun with less time than that."""


@dataclass(slots=True)
class SideBySide:
    """Takes the next name from the queue whenever one has ended."""

    command: Callable[[str], Sequence[str]]
    """What to run for a name, now."""
    clock: Clock
    """When it is over, nothing is begun."""
    logs: Path
    say: Callable[[str], None]
    _waiting: deque[tuple[str, int]] = field(default_factory=deque)
    _ends: dict[str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def run(self, names: Sequence[str], at_once: int) -> int:
        """0: all are finished, 75: some are to be continued; else what the first failed with."""
        self._waiting.extend((name, 1) for name in names)
        self._ends |= dict.fromkeys(names, TO_BE_CONTINUED)
        self.logs.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(at_once) as pool:
            for worker in [pool.submit(self._work) for _ in range(at_once)]:
                worker.result()
        failed = [code for code in self._ends.values() if code not in (FINISHED, TO_BE_CONTINUED)]
        return failed[0] if failed else max(self._ends.values())

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            name, tries = taken
            if self.clock.minutes_left < LEAST_MINUTES:
                self.say(f"{name}: not begun, too little time is left")
                continue
            code = self._ends[name] = self._run(name)
            if code == TO_BE_CONTINUED and tries < TRIES:
                self._waiting.append((name, tries + 1))

    def _next(self) -> tuple[str, int] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _run(self, name: str) -> int:
        path, began = self.logs / f"{name}.log", self.clock.spent
        self.say(f"{name}: begun ({path})")
        with path.open("a") as log:
            code = subprocess.run(self.command(name), stdout=log, stderr=log).returncode
        how = {FINISHED: "finished", TO_BE_CONTINUED: "to be continued"}.get(code)
        last = path.read_text(errors="replace").strip().rpartition("\n")[2]
        seconds = self.clock.spent - began
        self.say(f"{name}: {how or f'failed with {code} ({last})'} after {seconds:.0f} s")
        return code
