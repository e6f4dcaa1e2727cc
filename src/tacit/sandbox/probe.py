"""Tries what a program in a sandbox can reach here, and chooses the stronger method that works."""

import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import SandboxError
from tacit.sandbox.process import Outcome, run
from tacit.sandbox.rules import Limits, Method


@dataclass(frozen=True, slots=True)
class Isolation:
    """A method that works here, and what a program can do in spite of it, as sentences."""

    method: Method
    open: tuple[str, ...]


UNSAFE = {
    "signal": "it can kill this process",
    "environment": "it can read this process's environment",
    "processes": "it can start processes",
}
"""A method under which one of these succeeds is not used."""
WEAK = {
    "network": "it can open network connections or send datagrams",
    "shared": "it can leave shared memory behind",
    "read": "it can read files that everybody may read",
    "write": "it can write to folders open to everybody",
}

PROBE = """
import ctypes, json, os, socket, sys
outside = json.loads(sys.argv[1])

def succeeds(attempt):
    try:
        attempt()
    except OSError:
        return False
    return True

def fork():
    if not os.fork():
        os._exit(0)

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

print(json.dumps({
    "signal": succeeds(lambda: os.kill(outside["pid"], 0)),
    "environment": succeeds(lambda: open("/proc/%d/environ" % outside["pid"]).read(1)),
    "network": succeeds(connect) or succeeds(send),
    "shared": succeeds(leave_memory),
    "read": succeeds(lambda: open(outside["folder"] + "/marker").read()),
    "write": succeeds(lambda: open(outside["folder"] + "/written", "w")),
    "processes": succeeds(fork),
}))
"""


async def probe(method: Method) -> Isolation:
    """Run a program that tries to get out; SandboxError if it could do harm."""
    with _outside() as outside:
        result = await run(method, PROBE, json.dumps(outside), limits=Limits(wall_seconds=30))
    if result.outcome is not Outcome.OK:
        raise SandboxError(f"the `{method}` sandbox does not run Python: {result.stderr[-400:]}")
    succeeded = json.loads(result.stdout)
    for name, sentence in UNSAFE.items():
        if succeeded[name]:
            raise SandboxError(f"the `{method}` sandbox is too weak: {sentence}")
    return Isolation(method, tuple(said for name, said in WEAK.items() if succeeded[name]))


@contextlib.contextmanager
def _outside() -> Iterator[dict[str, Any]]:
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
        }


_chosen: Isolation | None = None


async def chosen() -> Isolation:
    """The stronger isolation that works here, found once per process."""
    global _chosen
    if sys.platform != "linux":
        raise SandboxError("code can be graded on Linux only: no other sandbox is supported")
    reasons = []
    for method in Method if _chosen is None else ():
        try:
            _chosen = await probe(method)
            break
        except SandboxError as error:
            reasons.append(str(error))
    if _chosen is None:
        raise SandboxError(
            "no sandbox for running code: allow user namespaces "
            "(`sysctl -w kernel.unprivileged_userns_clone=1`, on Ubuntu "
            "`kernel.apparmor_restrict_unprivileged_userns=0`), or run as root, for instance in a "
            f"container; tried: {'; '.join(reasons)}"
        )
    return _chosen
