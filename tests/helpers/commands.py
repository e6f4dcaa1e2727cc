"""`tacit` started as a process, most often without the four seconds that its imports take.

A warm process has the libraries imported and forks for each command; the fork has the arguments,
folder, environment, streams and signals of a process that was started the ordinary way, and ends as
one does. What a fork cannot show must start the real thing (`started(..., warm=False)`): what is
imported when, what Python reads before it runs anything (its PYTHON… variables), and that another
process, with other hash seeds, computes the same.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

WARM = Path(__file__).with_name("warm_process.py")
PYTHON = (sys.executable, "-W", "error", "-P")
HIDDEN = ("TACIT_DATA", "TACIT_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "COLUMNS")
"""What a developer may have set, and no test may depend on."""


def environment(**variables: str) -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    return mine | {"NO_COLOR": "1"} | variables


def tacit_(
    here: Path, *arguments: str, warm: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    process = started(here, *arguments, warm=warm, **variables)
    output, errors = process.communicate()
    assert process.returncode is not None
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def started(here: Path, *arguments: str, warm: bool = True, **variables: str) -> "Process":
    """Start a command; its output comes through pipes, and nobody types anything."""
    wanted = environment(**variables)
    if warm and sys.platform == "linux" and not _read_at_start(variables):
        return Forked(here, arguments, wanted)
    return subprocess.Popen(
        [*PYTHON, "-m", "tacit", *arguments],
        cwd=here,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=wanted,
    )


def _read_at_start(variables: Mapping[str, str]) -> bool:
    return any(name.startswith("PYTHON") for name in variables)


class Forked:
    """A fork of the warm process, with what `subprocess.Popen` would offer of it."""

    def __init__(self, here: Path, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
        self.returncode: int | None = None
        with _pipe() as (stdout, output), _pipe() as (stderr, errors):
            self._line = _warm().fork(output, errors)
            self.stdout, self.stderr = (os.fdopen(os.dup(one)) for one in (stdout, stderr))
        order = {"arguments": arguments, "here": str(here.resolve()), "environment": variables}
        self._line.sendall(json.dumps(order).encode())
        self._line.shutdown(socket.SHUT_WR)
        self._said = self._line.makefile("r")
        self.pid = int(self._said.readline())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._line], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("tacit", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(int(self._said.readline()))
            self._said.close()
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All it still says, and its end."""
        said: dict[IO[str], str] = {}

        def listen(pipe: IO[str]) -> None:
            with pipe:
                said[pipe] = pipe.read()

        pipes = (self.stdout, self.stderr)
        ears = [
            threading.Thread(target=listen, args=(pipe,), daemon=True)
            for pipe in pipes
            if not pipe.closed
        ]
        for ear in ears:
            ear.start()
        for ear in ears:
            ear.join(timeout)
            if ear.is_alive():
                raise subprocess.TimeoutExpired("tacit", timeout or 0.0)
        self.wait(timeout)
        output, errors = (said.get(pipe, "") for pipe in pipes)
        return output, errors


Process = subprocess.Popen[str] | Forked


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


class WarmProcess:
    """Started when first needed, one for each process that runs tests."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*PYTHON, str(WARM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment(OPENBLAS_NUM_THREADS="1"),  # numpy would start threads at once
            )
        self._lock = threading.Lock()

    def fork(self, output: int, errors: int) -> socket.socket:
        """Where the fork hears its order, and tells its number and its end."""
        mine, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._orders, [b"."], [theirs.fileno(), output, errors])
        return mine

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


_started: list[WarmProcess] = []


def _warm() -> WarmProcess:
    if not _started:
        _started.append(WarmProcess())
        atexit.register(_started[0].close)
    return _started[0]
