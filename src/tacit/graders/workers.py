"""A few helper processes that answer one JSON line with another, each under a deadline.

For code that may never return or eat all memory, whatever it is asked (sympy). The deadline is CPU
time, so that a busy machine does not change a verdict, and the kernel enforces it on the helper
itself, so that a helper dies even when its parent was killed. Not a sandbox: helpers run our own
code. Not a `multiprocessing` pool: that would run the user's script again in every helper.

`python -m tacit.graders.workers module:function` is a helper.
"""

import asyncio
import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tacit.errors import GradingError
from tacit.registry import lookup

START_S = 120.0
"""Wall time a helper may take to start, even on a busy machine."""
WALL_PER_CPU = 12.0
"""A helper that has used this many times its CPU deadline in wall time is stuck, not slow."""
MEMORY_BYTES = 2 * 2**30


class DeadlineExceeded(Exception):
    """The question took more CPU time than it was given."""


class _Crash(Exception):
    """The helper died or stopped answering for a reason other than its deadline."""


class Workers:
    """At most `count` helpers, started when first needed, usable from any event loop.

    Example: await Workers("tacit.graders.symbolic:compare", count=4).ask(["1/2", "0.5"], 5.0)
    """

    def __init__(self, function: str, count: int) -> None:
        self._function = function
        self._idle: list[_Helper] = []
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="tacit-grading")
        atexit.register(self.close)

    async def ask(self, question: Any, cpu_seconds: float) -> Any:
        """The helper's answer; DeadlineExceeded or GradingError if there is none."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._ask, question, cpu_seconds)

    def close(self) -> None:
        """End all helpers. Questions that have not begun are dropped."""
        self._threads.shutdown(cancel_futures=True)
        while self._idle:
            self._idle.pop().end()
        atexit.unregister(self.close)

    def _ask(self, question: Any, cpu_seconds: float) -> Any:
        """A crash is tried once more in a fresh helper: the last question may have caused it."""
        try:
            helper = self._idle.pop() if self._idle else _Helper(self._function)
            return self._ask_one(helper, question, cpu_seconds)
        except _Crash:
            pass
        try:
            return self._ask_one(_Helper(self._function), question, cpu_seconds)
        except _Crash as crash:
            raise GradingError(f"{self._function} failed twice: {crash}") from crash

    def _ask_one(self, helper: "_Helper", question: Any, cpu_seconds: float) -> Any:
        try:
            reply = helper.ask(question, cpu_seconds)
        except BaseException:
            helper.end()
            raise
        self._idle.append(helper)
        if "error" in reply:
            raise GradingError(f"{self._function} failed: {reply['error']}")
        return reply["answer"]


class _Helper:
    """One helper process and the pipes to it."""

    def __init__(self, function: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tacit.graders.workers", function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin and self._process.stdout
        self._questions, self._replies = self._process.stdin, self._process.stdout
        self._started = False

    def ask(self, question: Any, cpu_seconds: float) -> Any:
        if not self._started:
            self._read(START_S)
            self._started = True
        with contextlib.suppress(BrokenPipeError):  # reading then tells how the helper died
            self._questions.write(json.dumps([question, cpu_seconds]).encode() + b"\n")
            self._questions.flush()
        return self._read(cpu_seconds * WALL_PER_CPU)

    def _read(self, wall_seconds: float) -> Any:
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        if not poll.poll(wall_seconds * 1000):
            raise _Crash(f"no answer in {wall_seconds:g} s")
        line = self._replies.readline()
        if line.endswith(b"\n"):
            return json.loads(line)
        status = self._process.wait()
        if status == -signal.SIGPROF:
            raise DeadlineExceeded
        raise _Crash(f"it ended with status {status}")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._questions, self._replies):
            with contextlib.suppress(OSError):  # nothing more can be flushed to a dead helper
                pipe.close()


def _limit_memory() -> None:
    import resource  # not on Windows

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError):  # a lower limit is set already, or macOS has none
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))


def _serve(function: str) -> None:
    """Answer lines until the parent closes the pipe. Ctrl-C is for the parent to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not look like a reply
    _limit_memory()
    with contextlib.suppress(Exception):  # the first question is answered with the reason
        lookup("worker function", function, {})
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        question, cpu_seconds = json.loads(line)
        try:
            answer = lookup("worker function", function, {})
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)  # SIGPROF ends the process
            reply = {"answer": answer(question)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
