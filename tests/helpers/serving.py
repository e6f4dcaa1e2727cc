"""Servers for the tests: a service in a thread of its own, and `tacit serve` as people start it."""

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tacit.serve.admission import ServerLimits
from tacit.serve.app import Service
from tacit.serve.backend import Backend
from tacit.serve.http_server import bind, serve
from tacit.serve.proxy import ProxyBackend
from tests.helpers.commands import Process, started

ASKED = {"model": "team", "messages": [{"role": "user", "content": "What is 17 + 25?"}]}


@dataclass
class Running:
    """A service under way; `stop` asks it to leave as a signal does."""

    url: str
    service: Service
    _loop: asyncio.AbstractEventLoop
    _asked: asyncio.Semaphore
    _thread: threading.Thread

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._asked.release)

    def wait(self) -> None:
        self._thread.join(timeout=30)
        assert not self._thread.is_alive(), "the server hangs"

    def post(
        self, body: Any = None, key: str = "", headers: dict[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        headers = (headers or {}) | ({"authorization": f"Bearer {key}"} if key else {})
        return httpx2.post(
            f"{self.url}/chat/completions", json=body or ASKED, headers=headers, timeout=30, **more
        )


@contextmanager
def running(
    backend: Backend, limits: ServerLimits | None = None, grace: float = 5.0
) -> Iterator[Running]:
    ready: list[Running] = []
    started = threading.Event()
    sock = bind("127.0.0.1", 0)
    sock.listen()  # whoever connects before the server is up waits

    async def main() -> None:
        service = Service(backend, limits or ServerLimits())
        routes = backend.routes(service) if isinstance(backend, ProxyBackend) else ()
        asked = asyncio.Semaphore(0)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        loop = asyncio.get_running_loop()
        ready.append(Running(url, service, loop, asked, thread))
        started.set()
        await serve(service, service.app(routes), sock, grace, asked)
        if isinstance(backend, ProxyBackend):
            await backend.upstream.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(10)
    server = ready[0]
    try:
        yield server
    finally:
        if thread.is_alive():
            server.stop()
            server.stop()
        server.wait()


@contextmanager
def served(
    here: Path, *arguments: str, verb: str = "serve", warm: bool = True, **variables: str
) -> Iterator[tuple[str, Process]]:
    """`tacit serve`, or `record`, in a process of its own: its URL, and the process."""
    process = started(here, verb, *arguments, "--port", "0", warm=warm, **variables)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r" at (http\S+/v1),", line)
        assert found, line + process.stderr.read()
        yield found[1], process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def log_of(process: Process) -> str:
    """Stop the server as an operator does, and return what it logged."""
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return errors


def texts(lines: Sequence[str]) -> list[str]:
    """The data of server-sent events."""
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
