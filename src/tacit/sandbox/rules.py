"""What a sandbox process may use and see: its limits, and the policy it isolates itself by."""

import functools
import itertools
import os
import secrets
import sys
import sysconfig
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tacit.errors import SandboxError


class Method(StrEnum):
    """How a program is isolated, the stronger first."""

    NAMESPACES = "namespaces"
    UID = "uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use. Processor time is the measure; the clock only ends waiting."""

    cpu_seconds: int = 5
    wall_seconds: float = 20.0
    memory_mb: int = 1024
    output_kb: int = 1024
    disk_mb: int = 64
    threads: int = 16


LIMITS = Limits()
HOME = "/private"
"""Where a program with its own file system may write. Not /tmp: Python may be installed there."""
OUT_OF_MEMORY = 91
"""Exit code of a program that raised MemoryError."""


def make_policy(method: Method, folder: str, limits: Limits) -> dict[str, Any]:
    """What `inside/isolation.py` is told. `folder` is empty and for this program alone."""
    uid = _spare_uid()
    if method is Method.UID and not uid:
        raise SandboxError("only root can run code as another user")
    megabyte = 2**20
    readable, links, packages = _visible_paths()
    return {
        "method": method,
        "uid": uid,
        "folder": folder,
        "home": folder if method is Method.UID else HOME,
        "readable": readable,
        "links": links,
        "packages": packages,
        "disk": limits.disk_mb * megabyte,
        "out_of_memory": OUT_OF_MEMORY,
        "rlimits": {
            "CPU": (limits.cpu_seconds, limits.cpu_seconds + 1),
            "AS": (limits.memory_mb * megabyte,) * 2,
            "FSIZE": (limits.disk_mb * megabyte,) * 2,
            "NPROC": (limits.threads,) * 2,
            "NOFILE": (64, 64),
            "CORE": (0, 0),
        },
    }


@functools.cache
def _visible_paths() -> tuple[list[str], dict[str, str], list[str]]:
    """Folders to show read-only, links between them, and where installed packages lie."""
    folders = ("bin", "sbin", "lib", "lib32", "lib64")
    system = [Path(above) / name for above in ("/", "/usr") for name in folders]
    system += map(Path, ("/usr/libexec", "/usr/share", "/usr/local/lib"))
    links = {str(p): str(p.readlink()) for p in system if p.is_symlink()}
    packages = list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    prefixes = map(os.path.realpath, (sys.base_prefix, sys.base_exec_prefix))
    python = [path for path in prefixes if path != "/usr"]  # beside it, /usr/src may hold tasks
    shown: list[Path] = []
    plain = [str(path) for path in system if not path.is_symlink()]
    for path in map(Path, python + plain + packages):
        if path.is_dir() and not any(path.is_relative_to(other) for other in shown):
            shown.append(path)
    return [str(path) for path in shown], links, packages


@functools.cache
def inside_source(name: str) -> str:
    """The text of a module of `inside/`: it is passed into the sandbox as source."""
    return (Path(__file__).parent / "inside" / f"{name}.py").read_text(encoding="utf-8")


_next = itertools.count(secrets.randbelow(2**32))


def _spare_uid() -> int:
    """A user id that nobody has; 0 if we may not change ours and need a user namespace."""
    spare = _spare_uids() if os.geteuid() == 0 else range(0)
    return spare[next(_next) % len(spare)] if spare else 0


@functools.cache
def _spare_uids() -> range:
    """High ids that neither people, services nor containers use, of those this machine has."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(first), int(count)) for first, _, count in (line.split() for line in lines)]
    last = max(first + count - 1 for first, count in ranges)
    if last >= 2_100_000_000:
        return range(2_000_000_000, 2_100_000_000)
    return range(40_000, 60_000) if last >= 60_000 else range(0)
