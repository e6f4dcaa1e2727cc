"""A second network on this machine: a namespace, and a link to it that can be cut (iproute2).

Both ends of a cut link stay up and hear nothing, as when a switch in between fails.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

NET = "198.18"
"""Set aside for tests of networks (RFC 2544), so that nobody's addresses are hidden."""


def refusal() -> str | None:
    """Why this machine lets nobody make such a network, or None."""
    name = f"tacit-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except (OSError, subprocess.CalledProcessError) as error:
        return (getattr(error, "stderr", None) or str(error)).strip()
    return None


@dataclass(frozen=True, slots=True)
class Link:
    namespace: str
    port: str
    bridge: str
    here: str
    """Address of this side."""
    there: str
    """Address inside the namespace."""

    @property
    def inside(self) -> tuple[str, ...]:
        """Begins a command that runs in the namespace."""
        return ("ip", "netns", "exec", self.namespace)

    def kill_all_inside(self) -> None:
        found = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True)
        for pid in map(int, found.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        _ip("link", "set", self.port, "nomaster")

    def mend(self) -> None:
        _ip("link", "set", self.port, "master", self.bridge)


@contextmanager
def linked_namespace() -> Iterator[Link]:
    number = os.getpid()
    place = f"{NET}.{number % 256}"
    link = Link(f"tacit-{number}", f"tp{number}", f"tb{number}", f"{place}.1", f"{place}.2")
    own = f"tn{number}"
    _ip("netns", "add", link.namespace)
    try:
        _ip("link", "add", link.bridge, "type", "bridge")
        _ip("link", "add", link.port, "type", "veth", "peer", own, "netns", link.namespace)
        _ip("address", "add", f"{link.here}/24", "dev", link.bridge)
        _ip("-n", link.namespace, "address", "add", f"{link.there}/24", "dev", own)
        for device in (link.bridge, link.port):
            _ip("link", "set", device, "up")
        for device in ("lo", own):
            _ip("-n", link.namespace, "link", "set", device, "up")
        link.mend()
        yield link
    finally:
        _ip("netns", "delete", link.namespace)  # and with it both ends of the pair
        subprocess.run(["ip", "link", "delete", link.bridge], capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
