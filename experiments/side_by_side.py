"""Several experiments at a time on one device, each in a process of its own, in one time box.

One run leaves much of a large GPU idle: while it grades, learns from few tokens or waits for its
last episode, others can go on. Nobody plans the memory they share: a run that finds none ends, to
be continued, and is begun again when another has ended.
"""

import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

FINISHED, TO_BE_CONTINUED = 0, 75
TRIES = 3


@dataclass(slots=True)
class SideBySide:
    """Takes the next name from the queue whenever one has ended."""

    command: Callable[[str], Sequence[str] | None]
    """What to run for a name, now; None where there is no time for it."""
    logs: Path
    say: Callable[[str], None]
    _waiting: deque[str] = field(default_factory=deque)
    _parked: list[str] = field(default_factory=list)
    """To be continued, once another has ended and its memory is free."""
    _running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def run(self, names: Sequence[str], at_once: int) -> int:
        """0: all are finished, 75: some are to be continued; else what the first failed with."""
        self._waiting.extend(names)
        self._ends |= dict.fromkeys(names, TO_BE_CONTINUED)
        self.logs.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(at_once) as pool:
            try:
                workers = [pool.submit(self._work) for _ in range(at_once)]
                for worker in wait(workers, return_when=FIRST_EXCEPTION).done:
                    worker.result()
            except BaseException:
                self._stop()
                raise
        failed = [code for code in self._ends.values() if code not in (FINISHED, TO_BE_CONTINUED)]
        return failed[0] if failed else max(self._ends.values())

    def _work(self) -> None:
        while (name := self._begin()) is not None:
            began = time.monotonic()
            code = self._running[name].wait()
            self._say_how(name, code, time.monotonic() - began)
            self._end(name, code)

    def _begin(self) -> str | None:
        """Start the next one that there is time for."""
        with self._lock:
            while self._waiting:
                name = self._waiting.popleft()
                if (command := self.command(name)) is None:
                    self.say(f"{name}: not begun, too little time is left")
                    continue
                self._tries[name] = self._tries.get(name, 0) + 1
                self.say(f"{name}: begun ({self._log(name)})")
                with self._log(name).open("a") as log:
                    self._running[name] = subprocess.Popen(
                        command, stdout=log, stderr=log, start_new_session=True
                    )
                return name
        return None

    def _end(self, name: str, code: int) -> None:
        with self._lock:
            del self._running[name]
            self._ends[name] = code
            self._waiting.extend(self._parked)
            self._parked.clear()
            if code == TO_BE_CONTINUED and self._tries[name] < TRIES:
                (self._parked if self._running else self._waiting).append(name)

    def _stop(self) -> None:
        """Begin nothing more, and let those that run write what they have.

        In sessions of their own, they have not heard the terminal's interrupt: once is enough.
        """
        with self._lock:
            self._waiting.clear()
            self._parked.clear()
            self._tries = dict.fromkeys(self._tries, TRIES)  # nor again what ends to be continued
            for process in self._running.values():
                process.send_signal(signal.SIGINT)

    def _say_how(self, name: str, code: int, seconds: float) -> None:
        how = {FINISHED: "finished", TO_BE_CONTINUED: "to be continued"}.get(code)
        last = self._log(name).read_text(errors="replace").strip().rpartition("\n")[2]
        self.say(f"{name}: {how or f'failed with {code} ({last})'} after {seconds:.0f} s")

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"
