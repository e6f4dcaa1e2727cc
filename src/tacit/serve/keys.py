"""Who may ask, how much at a time, and how often."""

import asyncio
import hmac
import math
import os
import time
from collections.abc import Callable, Sequence

from starlette.requests import ClientDisconnect, Request

from tacit.errors import ConfigError
from tacit.report.loopback import is_loopback, names_loopback
from tacit.serve.problem import Problem, retry_later


def keys_from(variable: str) -> tuple[str, ...]:
    """The keys that an environment variable holds, several with commas between them."""
    keys = tuple(filter(None, (key.strip() for key in os.environ.get(variable, "").split(","))))
    if any(not key.isascii() for key in keys):
        raise ConfigError(f"the keys in {variable} must be plain ASCII, as HTTP headers are")
    return keys


def check_key(request: Request, keys: Sequence[str]) -> str:
    """Which client this is: its key, or its address where no key is asked for."""
    if not keys:
        _check_site(request)
        return request.client.host if request.client else ""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    given = given.strip()
    known = [key for key in keys if hmac.compare_digest(key.encode(), given.encode())]
    if scheme.lower() == "bearer" and known:
        return known[0]
    missing = "no API key was given" if not given else "the API key is wrong"
    raise Problem(
        401,
        f"{missing}: send `Authorization: Bearer KEY`",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def _check_site(request: Request) -> None:
    """Without a key, whatever a browser here sends on behalf of another web site is refused."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    server = request.scope["server"]
    if server and is_loopback(server[0]) and not names_loopback(host):
        raise Problem(421, "without a key the server answers to 127.0.0.1 and localhost only")
    fetched = request.headers.get("sec-fetch-site", "none")
    own = origin is None or origin.partition("://")[2] == host
    if not own or fetched not in ("none", "same-origin"):
        raise Problem(403, "without a key the server answers no page of another origin")


def check_json(request: Request) -> None:
    """The body says that it is JSON, as no page can of another site without asking first."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind.strip().lower() != "application/json":
        raise Problem(415, "the body must be JSON: send `Content-Type: application/json`")


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The whole body, unless it is over the limit or does not come in time."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise Problem(408, f"the body did not come within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise Problem(400, "the client went away before its request was whole") from None
    return bytes(body)


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body is over the limit of {limit} bytes")


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
        self._forget(now)
        self._buckets[client] = (level - 1, now)

    def _forget(self, now: float) -> None:
        """Drop full buckets, so that many addresses do not fill the memory."""
        if len(self._buckets) >= 10_000:
            full = self._most / self._rate
            self._buckets = {c: b for c, b in self._buckets.items() if now - b[1] < full}
