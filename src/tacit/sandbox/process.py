"""One locked-up process from start to end: what it is fed, what it prints, how it dies."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import SandboxError
from tacit.sandbox.rules import (
    CODES,
    PRIVATE,
    Limits,
    Method,
    Outcome,
    command,
    make_plan,
    spare_uid,
)

START_SECONDS = 60.0
"""In which the walls must be up; then the program's own time begins."""
END_SECONDS = 60.0
"""In which every process must be dead once it has been killed."""
LOOK_SECONDS = 0.05
"""How often the memory of all processes is summed up; the kernel limits each one by itself."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a program."""

    outcome: Outcome
    code: int
    stdout: str
    stderr: str
    seconds: float


async def run_in(method: Method, job: bytes, fds: tuple[int, ...], limits: Limits) -> Result:
    """Run a job (see `inside.isolation.main`); raises SandboxError where the walls could not be put up.

    The descriptors are handed over: closed here once the process has them, or on any failure.
    """
    started = time.perf_counter()
    async with contextlib.AsyncExitStack() as kept:
        handed_over = kept.enter_context(contextlib.ExitStack())
        ready, ready_inside = os.pipe()
        kept.callback(os.close, ready)
        for fd in (*fds, ready_inside):
            handed_over.callback(os.close, fd)
        uid = kept.enter_context(spare_uid(method))
        folder = await kept.enter_async_context(_private_folder())
        plan = make_plan(method, uid, folder, limits, ready_inside)
        process = await _start(method, plan, (*fds, ready_inside))
        handed_over.close()
        watch = _Watch(process, limits, method)
        await watch.until_dead(job, ready)
        if not watch.ready:
            said = watch.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise SandboxError(f"the `{method}` sandbox could not be set up: {said[-1][:300]}")
    outcome, code = watch.verdict()
    out, err = (data.decode(errors="replace") for data in (watch.stdout, watch.stderr))
    return Result(outcome, code, out, err, time.perf_counter() - started)


class _Watch:
    """Feeds one process, keeps a bounded part of what it prints, and sees to its end."""

    def __init__(self, process: asyncio.subprocess.Process, limits: Limits, method: Method) -> None:
        self.process, self.limits, self.method = process, limits, method
        self.stdout, self.stderr = bytearray(), bytearray()
        self.stopped: Outcome | None = None
        self.ready = False
        # By descriptor: the number may be another's by the time it is signalled, and asyncio's own
        # send_signal loses the exit code of a process that is just ending.
        self.pidfd: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self.pidfd = os.pidfd_open(process.pid)

    async def until_dead(self, job: bytes, ready: int) -> None:
        out, err = self.process.stdout, self.process.stderr
        assert out is not None and err is not None
        readers = asyncio.gather(self._read(out, self.stdout), self._read(err, self.stderr))
        memory = asyncio.create_task(self._watch_memory())
        try:
            async with asyncio.timeout(START_SECONDS) as clock:
                await self._feed(job)
                self.ready = await _first_byte(ready) == b"1"
                # A busy machine's slow start is not the program's time.
                clock.reschedule(asyncio.get_running_loop().time() + self.limits.wall_seconds)
                await self.process.wait()
        except TimeoutError:
            self.stopped = self.stopped or Outcome.TIMEOUT
        finally:
            memory.cancel()
            self._kill()
            await self._last_words(readers)
            if self.pidfd is not None:
                os.close(self.pidfd)

    async def _last_words(self, readers: "asyncio.Future[tuple[None, None]]") -> None:
        """Its output ends when the last process that could write to it is dead."""
        try:
            async with asyncio.timeout(END_SECONDS):
                await readers
                await self.process.wait()
        except TimeoutError:
            raise SandboxError(f"processes of a `{self.method}` sandbox cannot be killed") from None

    async def _feed(self, job: bytes) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        # A process that died before reading tells why by its exit code and standard error.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(job)
            await stdin.drain()
            stdin.close()
            await stdin.wait_closed()

    async def _read(self, stream: asyncio.StreamReader, kept: bytearray) -> None:
        most = self.limits.output_kb * 1024
        while part := await stream.read(65536):
            kept += part[: most - len(kept)]
            if len(kept) == most and self.stopped is None:
                self.stopped = Outcome.OUTPUT
                self._kill()

    async def _watch_memory(self) -> None:
        most = self.limits.memory_mb * 2**20
        while not uses_more(list(processes_below(self.process.pid)), most):
            await asyncio.sleep(LOOK_SECONDS)
        self.stopped = self.stopped or Outcome.MEMORY
        self._kill()

    def _kill(self) -> None:
        """The outermost process takes all others with it: by namespace, or by user id."""
        how = signal.SIGTERM if self.method is Method.UID else signal.SIGKILL
        if self.pidfd is None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, how)

    def verdict(self) -> tuple[Outcome, int]:
        code = self.process.returncode
        assert code is not None
        if self.stopped:
            return self.stopped, code
        if code == 128 + signal.SIGXCPU:
            return Outcome.TIMEOUT, code
        named = {0: Outcome.OK} | {number: outcome for outcome, number in CODES.items()}
        return named.get(code, Outcome.KILLED if code > 128 or code < 0 else Outcome.ERROR), code


async def _start(
    method: Method, plan: dict[str, Any], fds: tuple[int, ...]
) -> asyncio.subprocess.Process:
    home = plan["folder"] if method is Method.UID else PRIVATE
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": home,
        "TMPDIR": home,
        "PYTHONHASHSEED": "0",  # the order of a set must not decide a grade
        "OPENBLAS_NUM_THREADS": "1",
    }
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *command(method, plan),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            pass_fds=fds,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    except OSError as error:
        raise SandboxError(f"the `{method}` sandbox could not be started: {error}") from error


def processes_below(pid: int) -> Iterator[int]:
    """The processes that this one started, and those that they started."""
    with contextlib.suppress(OSError):  # it has just ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from processes_below(int(child))


def uses_more(processes: list[int], most: int) -> bool:
    """Whether they have more bytes of memory together; what they share counts once."""
    # Asking for the exact share takes tens of milliseconds, so it is asked for only when in doubt.
    return sum(map(_resident, processes)) > most and sum(map(_share, processes)) > most


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def _share(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


@contextlib.asynccontextmanager
async def _private_folder() -> AsyncIterator[str]:
    folder = tempfile.mkdtemp(prefix="tacit-")
    try:
        yield folder
    finally:
        try:
            Path(folder).rmdir()
        except OSError:
            # What a program left may be large, or nested too deep for Python to remove.
            remover = await asyncio.create_subprocess_exec("rm", "-rf", "--", folder)
            await remover.wait()


async def _first_byte(pipe: int) -> bytes:
    """One byte, or none if the other end was closed first."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(pipe)
    return os.read(pipe, 1)
