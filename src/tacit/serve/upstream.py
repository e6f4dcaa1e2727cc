"""The Actor's own server, asked over HTTP as the client would have asked it.

Nothing is retried here: the client knows best how patient it is. The server's refusals come back
with its own status and words.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
from starlette.responses import StreamingResponse

from tacit.errors import ConfigError
from tacit.serve.problem import Problem
from tacit.serve.reply import check_models
from tacit.serve.schema import Json, encoded

CONNECT_SECONDS = 10.0
_OF_ONE_HOP = {
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
    "proxy-authorization",
}
_OURS = _OF_ONE_HOP | {"host", "content-length", "authorization", "accept-encoding", "expect"}
"""Request headers that are ours to set."""


class Refusal(Problem):
    """What the Actor's server said instead of an answer, passed on as it is."""

    def __init__(self, status: int, said: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, "the Actor's server refused", code="actor_failed", headers=headers)
        self._said = said

    def body(self) -> Any:
        return self._said if isinstance(self._said, dict) and self._said else super().body()


class Upstream:
    def __init__(self, url: str, key: str | None, *, pass_keys: bool) -> None:
        """`key`: what the Actor's server is shown; without one, the client's own if `pass_keys`."""
        self.url = url.rstrip("/")
        if not _is_url(self.url):
            raise ConfigError(f"--actor-url: `{url}` is no URL; write it as https://host/v1")
        if "@" in self.url or "?" in self.url:
            raise ConfigError(
                "--actor-url: an address is no place for a key, since it is shown; write it as "
                "https://host/v1 and name the key's environment variable with --actor-key-env"
            )
        self._key = key
        self._pass_keys = pass_keys
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def ask(self, body: Json, headers: Mapping[str, str]) -> Json:
        """A whole completion."""
        async with self._asked("POST", "chat/completions", headers, body) as reply:
            return await _object(reply)

    async def stream(self, body: Json, headers: Mapping[str, str]) -> AsyncIterator[Json]:
        """The chunks of a stream; a server that answers in one piece gives that piece."""
        async with self._asked("POST", "chat/completions", headers, body) as reply:
            if "event-stream" not in reply.headers.get("content-type", ""):
                yield await _object(reply)
                return
            async for line in reply.aiter_lines():
                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                if data == "[DONE]":
                    return
                if data:
                    yield _parsed(data)
            raise Problem(502, "the Actor's stream broke off", code="actor_failed")

    async def models(self, headers: Mapping[str, str]) -> Json:
        async with self._asked("GET", "models", headers) as reply:
            listed = await _object(reply)
        check_models(listed)
        return listed

    @asynccontextmanager
    async def passed_on(
        self, path: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[StreamingResponse]:
        """Any other request; its reply is to be passed on as it comes, refusals too."""
        with _failures():
            reply = await self._send("POST", path, headers, body)
            try:
                kept = {k: v for k, v in reply.headers.items() if k.lower() not in _OF_ONE_HOP}
                yield StreamingResponse(reply.aiter_raw(), reply.status_code, kept)
            finally:
                await reply.aclose()

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, headers: Mapping[str, str], body: Json | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """A reply that is not a refusal; whatever breaks while it is read is a Problem."""
        content = None if body is None else encoded(body)
        with _failures():
            reply = await self._send(method, path, headers, content)
            try:
                if reply.status_code >= 400:
                    raise await _refusal(reply)
                yield reply
            finally:
                await reply.aclose()

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> httpx2.Response:
        kept = {name: value for name, value in headers.items() if name.lower() not in _OURS}
        if self._key:
            kept["authorization"] = f"Bearer {self._key}"
        elif self._pass_keys and "authorization" in headers:
            kept["authorization"] = headers["authorization"]
        kept["accept-encoding"] = "identity"
        request = self._client.build_request(
            method, f"{self.url}/{path}", headers=kept, content=body
        )
        return await self._client.send(request, stream=True)


async def _refusal(reply: httpx2.Response) -> Refusal:
    wait = reply.headers.get("retry-after")
    try:
        said = json.loads(await reply.aread())
    except (ValueError, RecursionError):
        said = None
    return Refusal(
        reply.status_code if reply.status_code < 600 else 502,
        said,
        {"retry-after": wait} if wait else {},
    )


def _is_url(url: str) -> bool:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)


@contextmanager
def _failures() -> Iterator[None]:
    """Whatever breaks between here and the Actor's server, in a sentence without its address."""
    try:
        yield
    except httpx2.RequestError as error:
        kind = type(error).__name__
        raise Problem(502, f"the Actor cannot be asked ({kind})", code="actor_failed") from error


async def _object(reply: httpx2.Response) -> Json:
    return _parsed(await reply.aread())


def _parsed(data: bytes | str) -> Json:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Problem(502, "the Actor's server did not answer with JSON", code="actor_failed")
    return value
