"""What one locked-up process may use and see: its limits, paths, user id and command line.

Decisions only; `process.py` starts it and `inside/isolation.py` isolates it.
"""

import contextlib
import functools
import json
import os
import secrets
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tacit.errors import SandboxError


class Method(StrEnum):
    """How a program is locked in, strongest first."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    UID = "uid"


class Outcome(StrEnum):
    """How a program ended. All but the first two mean that it ran into a wall."""

    OK = "ok"
    ERROR = "error"  # it raised, or exited with another code than 0
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    PROCESSES = "processes"
    DISK = "disk"
    FORBIDDEN = "forbidden"  # it raised at something that is not permitted in here
    KILLED = "killed"  # by a signal


CODES = {Outcome.MEMORY: 91, Outcome.PROCESSES: 92, Outcome.DISK: 93, Outcome.FORBIDDEN: 94}
"""Exit codes with which the isolated process says what a program died of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use. Processor time is the measure; the clock only ends waiting.

    `memory_mb` holds for all its processes together, `cpu_seconds` for each.
    """

    cpu_seconds: int = 5
    wall_seconds: float = 20.0
    memory_mb: int = 1024
    output_kb: int = 1024
    disk_mb: int = 64
    processes: int = 16


PRIVATE = "/private"
"""Where a program with a root of its own may write: not /tmp, where its Python may lie."""


def make_plan(method: Method, uid: int, folder: str, limits: Limits, ready: int) -> dict[str, Any]:
    megabyte = 2**20
    readable, links, packages = _visible_paths()
    return {
        "method": method,
        "uid": uid,
        "folder": folder,
        "private": PRIVATE,
        "ready": ready,
        "readable": readable,
        "links": links,
        "packages": packages,
        "disk": limits.disk_mb * megabyte,
        "codes": CODES,
        "rlimits": {
            "CPU": (limits.cpu_seconds, limits.cpu_seconds + 1),
            "AS": (limits.memory_mb * megabyte,) * 2,
            "FSIZE": (limits.disk_mb * megabyte,) * 2,
            "NPROC": (limits.processes,) * 2,
            "NOFILE": (64, 64),
            "CORE": (0, 0),
        },
    }


def _visible_paths() -> tuple[list[str], dict[str, str], list[str]]:
    """Folders to show read-only, links between them, and where installed packages lie."""
    system = [Path(p) for p in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")]
    links = {str(p): str(p.readlink()) for p in system if p.is_symlink()}
    packages = list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    python = [os.path.realpath(path) for path in (sys.base_prefix, sys.base_exec_prefix)]
    shown: list[Path] = []
    for path in [*(p for p in system if not p.is_symlink()), *map(Path, python + packages)]:
        if path.is_dir() and not any(path.is_relative_to(other) for other in shown):
            shown.append(path)
    return [str(path) for path in shown], links, packages


def command(method: Method, plan: dict[str, Any]) -> list[str]:
    # Not -I: it would ignore PYTHONHASHSEED, the one Python variable in the environment given.
    flags = ["-s", "-P", "-S", "-c", inside_source("isolation")]
    python = [os.path.realpath(sys.executable), *flags, json.dumps(plan)]
    return [*_bubblewrap(plan), *python] if method is Method.BUBBLEWRAP else python


@functools.cache
def inside_source(name: str) -> str:
    """The text of a module of `inside/`, which is how it gets into a sandbox."""
    return (Path(__file__).parent / "inside" / f"{name}.py").read_text(encoding="utf-8")


def _bubblewrap(plan: dict[str, Any]) -> list[str]:
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bubblewrap is not installed: `apt-get install bubblewrap`")
    words = [program, "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    words += ["--unshare-uts", "--size", str(plan["disk"]), "--perms", "1777", "--tmpfs", PRIVATE]
    # As root the isolated process itself changes the user id, and needs these two for that alone.
    as_root = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    words += as_root if plan["uid"] else ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    for path in plan["readable"]:
        for parent in reversed(Path(path).parents[:-1]):
            words += ["--perms", "0755", "--dir", str(parent)]
        words += ["--ro-bind", path, path]
    for link, target in plan["links"].items():
        words += ["--symlink", target, link]
    words += ["--perms", "0755", "--dir", "/dev"]
    for device in ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"):
        words += ["--dev-bind", device, device]
    return [*words, "--remount-ro", "/", "--chdir", PRIVATE, "--"]


_uids_in_use: set[int] = set()


@contextlib.contextmanager
def spare_uid(method: Method) -> Iterator[int]:
    """A user id that nobody has; 0 where we may not change it and a user namespace must do."""
    spare = _spare_uids() if os.geteuid() == 0 else range(0)
    if not spare:
        if method is Method.UID:
            raise SandboxError("only root can run code as another user")
        yield 0
        return
    uid = secrets.choice(spare)
    while uid in _uids_in_use:
        uid = secrets.choice(spare)
    _uids_in_use.add(uid)
    try:
        yield uid
    finally:
        _uids_in_use.discard(uid)


def _spare_uids() -> range:
    """High ids that neither people, services nor containers use, of those this machine has."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(first), int(count)) for first, _, count in (line.split() for line in lines)]
    last = max(first + count - 1 for first, count in ranges)
    if last >= 2_100_000_000:
        return range(2_000_000_000, 2_100_000_000)
    return range(40_000, 60_000) if last >= 60_000 else range(0)
