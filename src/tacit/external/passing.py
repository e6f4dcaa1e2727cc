"""Passes requests on to another server unchanged, and hands each with its reply to a keeper.

Bodies go on byte by byte, and so do replies: a stream's pieces as they come. Web sockets are not
passed on.
"""

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx2
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tacit.external.loopback_server import EPISODE, ROLE, split_path
from tacit.serve.admission import Admission, ServerLimits, check_key, read_body
from tacit.serve.http_error import HttpError, retry_later
from tacit.serve.in_flight import disconnected
from tacit.serve.monitoring import log_failure
from tacit.serve.schema import json_response
from tacit.serve.upstream import OF_ONE_HOP, Upstream

log = logging.getLogger(__name__)

LIMITS = ServerLimits(body_bytes=1 << 26, places=1 << 16, waiting=0, deadline=3600.0)
"""Wide, since the app is the user's own: 64 MiB for a request and an hour to read its reply."""
LABELLED = re.compile(r"tacit/([^/:]*)(?:/([^:]*))?(?::(.*))?")
"""An API key that begins with labels: `tacit/EPISODE`, `tacit/EPISODE/ROLE`, `tacit/…:KEY`."""
OF_START = " of start "
KEY_HEADERS = ("api-key", "x-api-key", "x-goog-api-key")
"""Where some servers look for a key, beside `Authorization`."""
_APART = time.time() - time.perf_counter()


def clock() -> float:
    """Seconds since 1970 that never run backwards while the process lives."""
    return _APART + time.perf_counter()


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request as it goes on, whom it is for, and what came back so far."""

    method: str
    path: str
    """Below `/v1/`, as the client wrote it."""
    query: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes
    place: str = ""
    """The episode in the path. The next two are what path, headers and key say together."""
    episode: str | None = None
    role: str | None = None
    key: str | None = None
    """The API key's label: `key 1`, `key 2`, … in order of appearance; `key 1 of start 2`."""
    start: float
    end: float = 0.0
    status: int = 0
    kind: str = ""
    """The reply's content type."""
    packing: str = ""
    """How the reply is compressed, if the server did so without being asked to."""
    reply: bytearray = field(default_factory=bytearray)
    error: str | None = None
    source: str = ""
    """Empty if the server was asked; else what a local reply is made of."""

    @property
    def secrets(self) -> list[str]:
        """The API keys themselves, which are kept nowhere."""
        shown = (self.headers.get(name, "") for name in ("authorization", *KEY_HEADERS))
        return [value.rpartition(" ")[2] for value in shown]


@dataclass(frozen=True, slots=True)
class Local:
    """A reply made here, with status 200."""

    body: bytes
    source: str
    """What it is made of, for the keeper."""
    kind: str = "application/json"


class KeyLabels:
    """Tells API keys apart without keeping them: by digests that end with the process."""

    def __init__(self, start: int = 1) -> None:
        """`start`: how often the recording was started; keys of two starts cannot be compared."""
        self._later = f"{OF_START}{start}" if start > 1 else ""
        self._salt = secrets.token_bytes(16)
        self._labels: dict[bytes, str] = {}

    def __call__(self, secret: str) -> str | None:
        if not secret:
            return None
        digest = hashlib.blake2b(secret.encode(), key=self._salt).digest()
        return self._labels.setdefault(digest, f"key {len(self._labels) + 1}{self._later}")


class PassThrough:
    """The ASGI application, and what `serve` must know of it."""

    def __init__(
        self,
        upstream: Upstream,
        keep: Callable[[Exchange], None],
        *,
        keys: KeyLabels | None = None,
        local: Callable[[Exchange], Local | None] = lambda exchange: None,
    ) -> None:
        """`keep` gets every exchange once it is over; `local` may answer it in the server's place.

        The client has the last of its reply after `keep` has returned.
        """
        self.limits = LIMITS
        self.admission = Admission(LIMITS.places, LIMITS.waiting)
        self._upstream = upstream
        self._keep = keep
        self._keys = keys or KeyLabels()
        self._local = local
        self._tasks: set[asyncio.Task[None]] = set()

    def abandon(self) -> int:
        for task in self._tasks:
            task.cancel()
        return len(self._tasks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        with self.admission.counted():
            try:
                exchange = await self._read(request)
                await self._answered(exchange, receive, send)
            except HttpError as problem:
                reply = json_response(problem.body(), problem.status, problem.headers)
                await reply(scope, receive, send)
            except _CutOff as cut:  # half a reply: closing the connection tells the client so
                log.warning("a reply was cut off: %s", cut)
            except Exception as error:
                log_failure(error)

    async def _read(self, request: Request) -> Exchange:
        start = clock()
        check_key(request, ())  # which refuses what web pages send
        if self.admission.closed:
            raise retry_later(503, "the server is shutting down", 5, "shutting_down")
        raw = request.scope.get("raw_path") or request.scope["path"].encode()
        place, path = split_path(raw.decode("ascii", errors="replace"))
        if not path:
            told = "there is nothing at this path: the base URL is http://HOST:PORT/v1"
            raise HttpError(404, told)
        headers = dict(request.headers)
        said, role = headers.pop(EPISODE, ""), headers.pop(ROLE, "")
        secret, labels = _key_of(headers)
        return Exchange(
            method=request.method,
            path=path,
            query=request.url.query,
            headers=headers,
            body=await read_body(request, self.limits, json=False),
            place=place,
            episode=said or place or labels[0] or None,
            role=role or labels[1] or None,
            key=self._keys(secret),
            start=start,
        )

    async def _answered(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        """Pass on while the client waits; what it no longer waits for is given up."""
        work = asyncio.create_task(self._pass_on(exchange, send))
        gone = asyncio.create_task(disconnected(receive))
        self._tasks.add(work)
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                exchange.error = "the client went away"
        finally:
            gone.cancel()
            work.cancel()  # without effect if it is done
            self._tasks.discard(work)
        try:
            await work
        except asyncio.CancelledError:
            if not exchange.error:
                raise

    async def _pass_on(self, exchange: Exchange, send: Send) -> None:
        kept = False

        def keep_once() -> None:
            nonlocal kept
            if not kept:
                kept = True
                self._keep(exchange)

        try:
            if local := self._local(exchange):
                await _send_local(local, exchange, keep_once, send)
                return
            path = f"{exchange.path}?{exchange.query}" if exchange.query else exchange.path
            async with self._upstream.asked(
                exchange.method, path, exchange.headers, exchange.body, refusals=True
            ) as reply:
                await _send_reply(reply, exchange, keep_once, send)
        except HttpError as problem:
            begun, exchange.error = exchange.status, str(problem)
            exchange.status = exchange.status or problem.status
            if begun:
                raise _CutOff(str(problem)) from problem
            raise
        except asyncio.CancelledError:
            exchange.error = exchange.error or "the server was stopped"
            raise
        finally:
            exchange.end = exchange.end or clock()
            keep_once()


class _CutOff(Exception):
    """A reply that broke off after it had begun."""


async def _send_reply(
    reply: httpx2.Response, exchange: Exchange, keep: Callable[[], None], send: Send
) -> None:
    exchange.kind = reply.headers.get("content-type", "")
    exchange.packing = reply.headers.get("content-encoding", "")
    ours = {*OF_ONE_HOP, "date"}
    headers = [(k.lower(), v) for k, v in reply.headers.raw if k.decode().lower() not in ours]
    start = {"type": "http.response.start", "status": reply.status_code, "headers": headers}
    if "json" in exchange.kind:  # nothing can be read before it is whole
        exchange.reply += b"".join([piece async for piece in reply.aiter_raw()])
        exchange.status, exchange.end = reply.status_code, clock()
        keep()
        await send(start)
        await send({"type": "http.response.body", "body": bytes(exchange.reply)})
        return
    exchange.status, exchange.end = reply.status_code, clock()
    await send(start)
    listening = "event-stream" in exchange.kind
    async for piece in reply.aiter_raw():
        exchange.end = clock()
        if listening:
            exchange.reply += piece
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    keep()
    await send({"type": "http.response.body"})


async def _send_local(
    local: Local, exchange: Exchange, keep: Callable[[], None], send: Send
) -> None:
    exchange.status, exchange.kind, exchange.end = 200, local.kind, clock()
    exchange.source = local.source
    exchange.reply += local.body
    keep()
    headers = [(b"content-type", local.kind.encode())]
    headers += [(b"content-length", str(len(local.body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": local.body})


def _key_of(headers: dict[str, str]) -> tuple[str, tuple[str, str]]:
    """The API key, and the episode and role that it is labelled with, which are taken off it."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        others = [headers[name] for name in KEY_HEADERS if name in headers]
        return headers.get("authorization") or (others[0] if others else ""), ("", "")
    labelled = LABELLED.fullmatch(given.strip())
    if not labelled:
        return given.strip(), ("", "")
    episode, role, secret = (part or "" for part in labelled.groups())
    del headers["authorization"]
    if secret:
        headers["authorization"] = f"Bearer {secret}"
    return secret, (episode, role)
