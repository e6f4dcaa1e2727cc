"""Runs untrusted Python where it can reach nothing but its own empty folder.

Three methods; the strongest that works on this machine is taken:

- `bubblewrap`: namespaces and a file system of its own, made by bwrap.
- `namespaces`: the same, made with system calls (as root, or where the kernel lets ordinary users
  make user namespaces).
- `uid`: for root without the right to make namespaces, as in most containers, where neither of the
  others works. Another user id; Landlock limits the files, and a system-call filter takes away the
  network and whatever outlives a process.

All of them: a fresh interpreter (never a fork of this process), a user id nobody else has where we
are root, an empty environment, an empty private folder that is gone afterwards, rlimits, limits on
processor time and on the clock after which every process is killed, bounded output. `probe` tries
the walls for real and says which stand. Where neither another user id nor a user namespace can be
had, running is refused with a SandboxError.

Not covered: bugs in the kernel, and hardware side channels. The memory of a program's processes is
summed up 20 times a second: for a moment they can have more than the limit together. Under `uid` a
program sees that other processes exist, its folder lies on the disk (each file is limited, their
number is not), and without Landlock (Linux before 5.13) it can reach the files that are open to
everybody.
"""

import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import SandboxError
from tacit.sandbox.process import Result, run_in
from tacit.sandbox.rules import Limits, Method, Outcome

__all__ = ["Isolation", "Limits", "Method", "Outcome", "Result", "chosen", "probe", "run"]


async def run(
    program: str,
    payload: str = "",
    *,
    modules: Mapping[str, str] | None = None,
    fds: tuple[int, ...] = (),
    limits: Limits | None = None,
    method: Method | None = None,
) -> Result:
    """Run Python source as `__main__`, `payload` being sys.argv[1]; its failure is a Result.

    `modules` maps names that the program may import to their source. `fds` are handed over to the
    program under their numbers and closed here.

    Example: (await run("print(6 * 7)")).stdout == "42\\n"
    """
    method = method or (await chosen()).method
    job = {"program": program, "payload": payload, "modules": dict(modules or {})}
    return await run_in(method, json.dumps(job).encode("ascii"), fds, limits or Limits())


@dataclass(frozen=True, slots=True)
class Isolation:
    """What a program can reach here, as sentences: the walls that stood, and those that did not."""

    method: Method
    held: tuple[str, ...]
    open: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Wall:
    held: str
    open: str
    needed: bool = False


WALLS = {
    "signal": _Wall(
        "it cannot signal the processes outside", "it can kill this process", needed=True
    ),
    "environment": _Wall(
        "it cannot read this process's environment", "it can read this environment", needed=True
    ),
    "processes": _Wall(
        "the number of its processes is limited",
        "it can start any number of processes",
        needed=True,
    ),
    "network": _Wall("it has no network", "it can open network connections or send datagrams"),
    "shared": _Wall("it leaves no shared memory behind", "it can leave shared memory behind"),
    "memory": _Wall(
        "the memory of all its processes together is limited",
        "each of its processes may use as much memory as all of them should",
    ),
    "read": _Wall("it sees none of your files", "it can read files that everybody may read"),
    "write": _Wall("it writes only to its own folder", "it can write to folders open to everybody"),
}

PROBE = """
import ctypes, json, os, socket, sys, time
outside = json.loads(sys.argv[1])

def held(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False

def start_many():
    for _ in range(outside["processes"] + 1):
        if not os.fork():
            time.sleep(60)

def connect():
    socket.create_connection(("127.0.0.1", outside["port"]), timeout=2).close()

def send():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", outside["address"])

def leave_memory():
    libc = ctypes.CDLL(None)
    kept = libc.shmget(0, 4096, 0o1600)
    if kept < 0:
        raise OSError
    libc.shmctl(kept, 0, None)

marker = outside["folder"] + "/marker"
print(json.dumps({
    "signal": held(lambda: os.kill(outside["pid"], 0)),
    "environment": held(lambda: open("/proc/%d/environ" % outside["pid"]).read(1)),
    "network": held(connect) and held(send),
    "shared": held(leave_memory),
    "read": held(lambda: open(marker).read()),
    "write": held(lambda: open(outside["folder"] + "/written", "w")),
    "processes": held(start_many),
}))
"""

HOARD = """
import os, time
for _ in range(4):
    if not os.fork():
        kept = b"x" * (40 * 2**20)
        time.sleep(2)
        os._exit(0)
os.wait()
"""


async def probe(method: Method | None = None) -> Isolation:
    """Run a program that tries every wall; SandboxError where one that is needed does not stand.

    Without a method: the strongest that works here.
    """
    if method is None:
        return await _strongest()
    limits = Limits(wall_seconds=30)
    with _outside(limits) as outside:
        result = await run(PROBE, json.dumps(outside), limits=limits, method=method)
    if result.outcome is not Outcome.OK:
        raise SandboxError(f"the `{method}` sandbox does not run Python: {result.stderr[-400:]}")
    hoard = await run(HOARD, limits=Limits(memory_mb=128, wall_seconds=30), method=method)
    stands = json.loads(result.stdout) | {"memory": hoard.outcome is Outcome.MEMORY}
    down = [wall for name, wall in WALLS.items() if wall.needed and not stands[name]]
    if down:
        raise SandboxError(f"the `{method}` sandbox is too weak: {down[0].open}")
    held = tuple(wall.held for name, wall in WALLS.items() if stands[name])
    return Isolation(method, held, tuple(w.open for name, w in WALLS.items() if not stands[name]))


@contextlib.contextmanager
def _outside(limits: Limits) -> Iterator[dict[str, Any]]:
    """What the probe tries to reach: this process, a file and a folder open to all, two sockets."""
    with (
        tempfile.TemporaryDirectory(prefix="tacit-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind("")  # the kernel finds a name that needs no file
        Path(folder).chmod(0o777)
        (Path(folder) / "marker").write_text("outside")
        yield {
            "folder": folder,
            "pid": os.getpid(),
            "port": server.getsockname()[1],
            "address": datagrams.getsockname().decode("latin-1"),
            "processes": limits.processes,
        }


async def _strongest() -> Isolation:
    if sys.platform != "linux":
        raise SandboxError("code can be graded on Linux only: no other sandbox is supported")
    reasons = []
    for method in Method:
        try:
            return await probe(method)
        except SandboxError as error:
            reasons.append(str(error))
    raise SandboxError(
        "no sandbox for running code: install bubblewrap (`apt-get install bubblewrap`), or allow "
        "user namespaces (`sysctl -w kernel.unprivileged_userns_clone=1` or "
        "`kernel.apparmor_restrict_unprivileged_userns=0`), or run as root, for instance in a "
        f"container; tried: {'; '.join(reasons)}"
    )


_chosen: Isolation | None = None


async def chosen() -> Isolation:
    """The isolation that `run` uses, probed once per process."""
    global _chosen
    if _chosen is None:
        _chosen = await _strongest()
    return _chosen
