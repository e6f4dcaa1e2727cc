"""Runs one program in a sandbox process, from its start to its death.

A fresh interpreter (never a fork of this process) with an empty environment, a user id of its own
if we are root, and an empty folder that is removed afterwards.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tacit.errors import SandboxError
from tacit.sandbox.rules import LIMITS, OUT_OF_MEMORY, Limits, Method, inside_source, make_policy

PATIENCE = 60.0
"""Seconds allowed for the sandbox to start, and for a killed process to be dead."""


class Outcome(StrEnum):
    """How a program ended; from the third on, by breaking a limit or by a signal."""

    OK = "ok"
    ERROR = "error"  # it raised, or exited with another code than 0
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    KILLED = "killed"  # by a signal


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a program."""

    outcome: Outcome
    code: int
    stdout: str
    stderr: str


async def run(
    method: Method,
    program: str,
    payload: str = "",
    *,
    modules: Mapping[str, str] | None = None,
    fds: tuple[int, ...] = (),
    limits: Limits = LIMITS,
) -> Result:
    """Run Python source as `__main__`, `payload` being sys.argv[1]; its failure is a Result.

    `modules` maps names that the program may import to their source. `fds` are handed over to the
    program under their numbers and closed here. SandboxError if the isolation is impossible.

    Example: (await run(Method.NAMESPACES, "print(6 * 7)")).stdout == "42\\n"
    """
    job = {"program": program, "payload": payload, "modules": dict(modules or {})}
    async with contextlib.AsyncExitStack() as kept:
        with contextlib.ExitStack() as handed_over:
            for fd in fds:
                handed_over.callback(os.close, fd)
            folder = tempfile.mkdtemp(prefix="tacit-")
            kept.push_async_callback(_remove, folder)
            process = await _start(make_policy(method, folder, limits), fds)
        watch = _Watch(process, limits, method)
        try:
            if await watch.start(json.dumps(job).encode("ascii")):
                await watch.until_done()
        finally:
            await watch.end()
        return watch.result()


async def _start(policy: dict[str, Any], fds: tuple[int, ...]) -> asyncio.subprocess.Process:
    # Not -I, which would ignore PYTHONHASHSEED.
    flags = ["-s", "-P", "-S", "-c", inside_source("isolation"), json.dumps(policy)]
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": policy["home"],
        "TMPDIR": policy["home"],
        "PYTHONHASHSEED": "0",  # the order of a set must not decide a grade
        "OPENBLAS_NUM_THREADS": "1",
    }
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            os.path.realpath(sys.executable),
            *flags,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            pass_fds=fds,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    except OSError as error:
        raise SandboxError(f"a sandbox process could not be started: {error}") from error


class _Watch:
    """Feeds one process, keeps a bounded part of what it prints, and kills it in the end."""

    def __init__(self, process: asyncio.subprocess.Process, limits: Limits, method: Method) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.process, self.limits, self.method = process, limits, method
        self.stdin, self.out, self.err = process.stdin, process.stdout, process.stderr
        self.stdout, self.stderr = bytearray(), bytearray()
        self.stopped: Outcome | None = None
        self.ready = False
        # By descriptor: the number may be another's by the time it is signalled, and asyncio's own
        # send_signal loses the exit code of a process that is just ending.
        self.pidfd: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self.pidfd = os.pidfd_open(process.pid)

    async def start(self, job: bytes) -> bool:
        """Send the process its job; True if it was isolated in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                # A process that died before reading tells why on standard error.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.stdin.write(job)
                    await self.stdin.drain()
                    self.stdin.close()
                    await self.stdin.wait_closed()
                self.ready = await self.out.read(1) == b"1"
        return self.ready

    async def until_done(self) -> None:
        """Wait for the program to end, for as long as it may take."""
        try:
            async with asyncio.timeout(self.limits.wall_seconds):
                await self._read_all()
                await self.process.wait()
        except TimeoutError:
            self.stopped = self.stopped or Outcome.TIMEOUT

    async def end(self) -> None:
        """Kill the process, or the first of its namespace, whose death kills the others in it."""
        self._kill()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._read_all()
                await self.process.wait()
        except TimeoutError:
            raise SandboxError("a sandbox process cannot be killed") from None
        finally:
            if self.pidfd is not None:
                os.close(self.pidfd)

    async def _read_all(self) -> None:
        await asyncio.gather(self._read(self.out, self.stdout), self._read(self.err, self.stderr))

    async def _read(self, stream: asyncio.StreamReader, kept: bytearray) -> None:
        most = self.limits.output_kb * 1024
        while part := await stream.read(65536):
            kept += part[: most - len(kept)]
            if len(kept) == most and self.stopped is None:
                self.stopped = Outcome.OUTPUT
                self._kill()

    def _kill(self) -> None:
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def result(self) -> Result:
        out, err = (data.decode(errors="replace") for data in (self.stdout, self.stderr))
        if not self.ready:
            reason = (err.strip().splitlines() or ["no reason given"])[-1][:300]
            raise SandboxError(f"the `{self.method}` sandbox could not be set up: {reason}")
        code = self.process.returncode
        assert code is not None
        return Result(self.stopped or _outcome(code), code, out, err)


def _outcome(code: int) -> Outcome:
    code = 128 - code if code < 0 else code  # as it is told out of namespaces
    known = {0: Outcome.OK, OUT_OF_MEMORY: Outcome.MEMORY, 128 + signal.SIGXCPU: Outcome.TIMEOUT}
    return known.get(code, Outcome.KILLED if code > 128 else Outcome.ERROR)


async def _remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        return Path(folder).rmdir()
    # What a program left may be large, or nested too deep for Python to remove.
    remover = await asyncio.create_subprocess_exec("rm", "-rf", "--", folder)
    await remover.wait()
