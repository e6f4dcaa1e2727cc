"""Running a service under uvicorn: one socket, and a way out that finishes or refuses, never hangs.

On SIGTERM or SIGINT newcomers are refused with 503 while what was accepted is finished; what is not
finished within the grace is given up, and told so. A second signal ends the grace at once.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from tacit.errors import ConfigError
from tacit.serve.app import Service
from tacit.serve.connection import Connection

log = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that may wait to be taken."""
KEEP_ALIVE = 75
"""Seconds for which an idle connection stays open: longer than clients and load balancers keep
theirs, so that none is closed just as it is used again."""
LAST_BYTES = 5
"""Seconds for replies that are made but not yet sent."""
LAST_REFUSALS = 0.3
"""Seconds in which requests that were already on their way are still refused in words."""


class _Uvicorn(uvicorn.Server):
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """Take the address before anything heavy is done; nobody can connect yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"cannot listen on {host} port {port} ({reason}): choose others with --host and --port"
        ) from None
    return sock


async def run(service: Service, app: ASGIApp, sock: socket.socket, grace: float) -> None:
    """Serve until a signal asks to stop."""
    loop, asked = asyncio.get_running_loop(), asyncio.Semaphore(0)
    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, asked.release)
    try:
        await serve(service, app, sock, grace, asked)
    finally:
        for which in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(which)


async def serve(
    service: Service, app: ASGIApp, sock: socket.socket, grace: float, asked: asyncio.Semaphore
) -> None:
    """Serve until `asked` is released; releasing it again ends the grace."""
    config = uvicorn.Config(
        app,
        http=type("LimitedConnection", (Connection,), {"limits": service.limits}),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=LAST_BYTES,
    )
    server = _Uvicorn(config)
    leaving = asyncio.create_task(_leave(service, server, asked, grace))
    try:
        await server.serve(sockets=[sock])
    finally:
        leaving.cancel()


async def _leave(
    service: Service, server: uvicorn.Server, asked: asyncio.Semaphore, grace: float
) -> None:
    await asked.acquire()
    gate = service.gate
    gate.close()
    log.info("stopping: new requests are refused, %d are being finished", gate.inside)
    emptied, again = asyncio.create_task(gate.emptied()), asyncio.create_task(asked.acquire())
    await asyncio.wait({emptied, again}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    for task in (emptied, again):
        task.cancel()
    if left := service.abandon():
        log.warning("%d requests could not be finished in time and were told so", left)
    await asyncio.sleep(LAST_REFUSALS)
    server.should_exit = True
