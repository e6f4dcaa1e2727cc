"""Who is let in: keys, web sites, sizes, requests a minute, and how many are under way at once."""

import asyncio
import hmac
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from tacit.errors import ConfigError
from tacit.report.loopback import is_loopback, names_loopback
from tacit.serve.http_error import HttpError, retry_later

CONTAINERS = "host.docker.internal"
"""This machine as apps in containers name it. `.internal` is reserved, so no public site has this
name; and a page of that name is refused as soon as it shows its Origin, as it must to post."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one server takes on."""

    keys: Sequence[str] = ()
    """Bearer keys that are let in; empty lets everyone in."""
    body_bytes: int = 1 << 20
    rate: float | None = None
    """Requests a minute for each key, or for each address if there are no keys."""
    places: int = 64
    """Requests under way at once."""
    waiting: int = 256
    """Requests that may wait for a place."""
    deadline: float = 120.0
    """Seconds from a request's arrival to the end of its answer."""
    strict: bool = False
    """Refuse fields that would have no effect."""
    headers: float = 20.0
    """Seconds from connecting, or from a request's first byte, to its last header."""


def keys_from(variable: str) -> tuple[str, ...]:
    """The keys in an environment variable, separated by commas."""
    keys = tuple(filter(None, (key.strip() for key in os.environ.get(variable, "").split(","))))
    if any(not key.isascii() for key in keys):
        raise ConfigError(f"the keys in {variable} must be plain ASCII, as HTTP headers are")
    return keys


def check_key(request: Request, keys: Sequence[str]) -> str:
    """Which client this is: its key, or its address if no key is asked for."""
    if not keys:
        _check_site(request)
        return request.client.host if request.client else ""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    given = given.strip()
    known = [key for key in keys if hmac.compare_digest(key.encode(), given.encode())]
    if scheme.lower() == "bearer" and known:
        return known[0]
    wrong = "the API key is wrong" if given else "no API key was given"
    told, ask = f"{wrong}: send `Authorization: Bearer KEY`", {"www-authenticate": "Bearer"}
    raise HttpError(401, told, code="invalid_api_key", headers=ask)


def _check_site(request: Request) -> None:
    """Without a key, refuse whatever a browser here sends on behalf of another web site."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    server = request.scope["server"]
    apps = (CONTAINERS,) if request.method == "POST" and not origin else ()  # pages' have one
    if server and is_loopback(server[0]) and not names_loopback(host, *apps):
        told = "use 127.0.0.1 or localhost in the URL, or send `Host: localhost`"
        raise HttpError(421, f"without a key this host name is refused: {told}")
    fetched = request.headers.get("sec-fetch-site", "none")
    own = origin is None or origin.partition("://")[2] == host
    if not own or fetched not in ("none", "same-origin"):
        raise HttpError(403, "without a key the server answers no web page of another origin")


async def read_body(request: Request, limits: ServerLimits, *, json: bool = True) -> bytes:
    """The whole body, unless it is too large or too late, or does not say that it is JSON.

    A page of another site cannot say so without asking first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0]
    if json and kind.strip().lower() != "application/json":
        raise HttpError(415, "the body must be JSON: send `Content-Type: application/json`")
    too_large = HttpError(413, f"the body is over the server's limit of {limits.body_bytes} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.deadline):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.body_bytes:
                    raise too_large
    except TimeoutError:
        raise HttpError(408, f"the body did not come within {limits.deadline:g} seconds") from None
    except ClientDisconnect:
        raise HttpError(400, "the client went away before its request was whole") from None
    return bytes(body)


class RateLimit:
    """So many requests a minute for each client, saved up to a tenth of that: a token bucket."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, per_minute / 10)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> None:
        now = self._clock()
        level, since = self._buckets.get(client, (self._most, now))
        level = min(self._most, level + (now - since) * self._rate)
        if level < 1:
            seconds = math.ceil((1 - level) / self._rate)
            raise retry_later(429, "too many requests a minute", seconds, "rate_limit_exceeded")
        if len(self._buckets) >= 10_000:  # drop full ones: many addresses must not fill the memory
            full = self._most / self._rate
            self._buckets = {c: b for c, b in self._buckets.items() if now - b[1] < full}
        self._buckets[client] = (level - 1, now)


class Admission:
    """Lets so many requests in at once, has so many wait in order, and turns the rest away.

    A request that waits has been accepted: closing refuses newcomers only.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self.inside = 0
        """Under way or waiting."""
        self.closed = False
        self.emptied = asyncio.Event()
        """Set once it is closed and every request from before has its reply."""
        self._places = places
        self._most = places + waiting
        self._free = asyncio.Semaphore(places)
        self._open = 0
        self._seconds = 1.0
        """What a request takes: a moving average."""

    @property
    def waiting(self) -> int:
        return max(0, self.inside - self._places)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        if self.closed:
            raise retry_later(503, "the server is shutting down", 5, "shutting_down")
        if self.inside >= self._most:
            turns = 1 + self.waiting / self._places
            seconds = min(60, math.ceil(self._seconds * turns))
            told = "the server has all the work it can take"
            raise retry_later(429, told, seconds, "queue_full")
        self.inside += 1
        try:
            async with self._free:
                began = time.monotonic()
                yield
                self._seconds += 0.1 * (time.monotonic() - began - self._seconds)
        finally:
            self.inside -= 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A request from its first byte to its reply's last; after closing none is counted."""
        counts = not self.closed
        self._open += counts
        try:
            yield
        finally:
            self._open -= counts
            self._tell()

    def close(self) -> None:
        self.closed = True
        self._tell()

    def _tell(self) -> None:
        if self.closed and not self._open:
            self.emptied.set()
