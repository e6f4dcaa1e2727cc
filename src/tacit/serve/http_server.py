"""A service under uvicorn: one socket, connections with limits, and a shutdown that never hangs.

Once it is asked to stop, newcomers are refused with 503 while accepted requests are finished.
Requests that are not finished within the grace are cancelled, and their clients are told. Being
asked again ends the grace at once.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from typing import ClassVar, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit.errors import ConfigError
from tacit.serve.admission import Admission, ServerLimits

log = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that may wait to be accepted."""
SPARE = 64
"""Connections beyond those with a request under way or waiting: idle ones, probes, newcomers."""
KEEP_ALIVE = 75
"""Seconds for which an idle connection stays open: longer than clients and load balancers keep
theirs, so that none is closed just as it is used again."""
LAST_BYTES = 5
"""Seconds for replies that are made but not yet sent."""
LAST_REFUSALS = 0.3
"""Seconds in which requests that were already on their way are still refused in words."""


def bind(host: str, port: int) -> socket.socket:
    """Take the address before anything heavy is done; nobody can connect yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small pieces at once (TCP_NODELAY) only where a socket says that it is TCP
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        told = f"cannot listen on {host} port {port} ({error.strerror})"
        raise ConfigError(f"{told}: choose others with --host and --port") from None
    return sock


@contextlib.contextmanager
def asked_to_stop() -> Iterator[asyncio.Semaphore]:
    """Released by each Ctrl-C and SIGTERM."""
    loop, asked = asyncio.get_running_loop(), asyncio.Semaphore(0)
    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, asked.release)
    try:
        yield asked
    finally:
        for which in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(which)


class Served(Protocol):
    """What a server must know of the work behind it: how much it takes on, and how it is ended."""

    limits: ServerLimits
    admission: Admission

    def abandon(self) -> int:
        """Cancel what is still under way; returns how many requests that were."""
        ...


async def serve(
    service: Served, app: ASGIApp, sock: socket.socket, grace: float, asked: asyncio.Semaphore
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
    server = uvicorn.Server(config)
    # signals are for the caller to handle
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    leaving = asyncio.create_task(_leave(service, server, asked, grace))
    try:
        await server.serve(sockets=[sock])
    finally:
        leaving.cancel()


async def _leave(
    service: Served, server: uvicorn.Server, asked: asyncio.Semaphore, grace: float
) -> None:
    await asked.acquire()
    admission = service.admission
    admission.close()
    log.info("stopping: new requests are refused, %d are being finished", admission.inside)
    ends = [asyncio.create_task(end) for end in (admission.emptied.wait(), asked.acquire())]
    await asyncio.wait(ends, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    for task in ends:
        task.cancel()
    if left := service.abandon():
        log.warning("%d requests could not be finished in time and were told so", left)
    await asyncio.sleep(LAST_REFUSALS)
    server.should_exit = True


class Connection(H11Protocol):
    """One connection that hangs up on clients that do not send or read in time.

    The time limit also bounds how long the rest of a refused body is read, which must be read so
    that its sender hears why.
    """

    limits: ClassVar[ServerLimits]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._since = self.loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused while anything is unsent
        self._watch()
        if len(self.connections) > most_connections(self.limits):
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._hang_up_after(self.limits.deadline, "unread")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("unread")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop("unread")
        self._stop("late")

    @property
    def idle(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.flow.write_paused)

    def _watch(self) -> None:
        """Limit the time from a request's first byte, or from connecting, to its last header."""
        if not self.idle:
            self._stop("late")
        elif "late" not in self._timers and not self.transport.is_closing():
            self._hang_up_after(self.limits.headers, "late")

    def _hang_up_after(self, seconds: float, why: str) -> None:
        self._timers[why] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, why: str) -> None:
        if timer := self._timers.pop(why, None):
            timer.cancel()

    def _make_room(self) -> None:
        """Close an idle connection: first those that never asked anything, the oldest first."""
        idle = [
            other
            for other in self.connections
            if isinstance(other, Connection)
            and other is not self
            and other.idle
            and not other.transport.is_closing()
        ]
        min(idle or [self], key=lambda one: (one.cycle is not None, one._since)).transport.abort()


def most_connections(limits: ServerLimits) -> int:
    """Enough for all requests, but at most half the files that this process may have open."""
    wanted = limits.places + limits.waiting + SPARE
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    endless = files == resource.RLIM_INFINITY
    return wanted if endless else min(wanted, max(SPARE, files // 2 - SPARE))
