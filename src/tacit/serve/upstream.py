"""Another server, most often the Actor's own, asked over HTTP as the client would have asked it.

Nothing is retried here: the client knows best how patient it is. The server's refusals come back
with its own status and words; a reply that makes no sense is an HttpError with status 502.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Annotated, Any

import httpx2
from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import StreamingResponse

from tacit.engine.base import Completion
from tacit.errors import ConfigError
from tacit.serve.http_error import HttpError
from tacit.serve.schema import Json, encoded
from tacit.types import MOST_TOKENS, Stop, Usage

CONNECT_SECONDS = 10.0
OF_ONE_HOP = {
    "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
    "proxy-authenticate", "proxy-authorization",
}  # fmt: skip
_OURS = OF_ONE_HOP | {"host", "content-length", "authorization", "accept-encoding", "expect"}
"""Request headers that are ours to set."""


class Upstream:
    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        pass_keys: bool,
        name: str = "the Actor",
        options: tuple[str, str] = ("--actor-url", "--actor-key-env"),
    ) -> None:
        """`key` is shown to the server; without one, the client's own if `pass_keys`.

        `name` and `options` are how errors call the server and what it was set with.
        """
        self.name = name
        self.url = url.rstrip("/")
        parsed = None
        with suppress(httpx2.InvalidURL):
            parsed = httpx2.URL(self.url)
        if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host:
            raise ConfigError(f"{options[0]}: `{url}` is no URL; write it as https://host/v1")
        if "@" in self.url or "?" in self.url:
            raise ConfigError(
                f"{options[0]}: an address is no place for a key, since it is shown; write it as "
                f"https://host/v1 and name the key's environment variable with {options[1]}"
            )
        self._key = key
        self._pass_keys = pass_keys
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # each client's own pass
        )

    async def ask(self, body: Json, headers: Mapping[str, str]) -> Json:
        """A whole completion."""
        async with self.asked("POST", "chat/completions", headers, encoded(body)) as reply:
            return _object(await reply.aread())

    async def stream(self, body: Json, headers: Mapping[str, str]) -> AsyncIterator[Json]:
        """The chunks of a stream; a server that does not stream yields its whole completion."""
        async with self.asked("POST", "chat/completions", headers, encoded(body)) as reply:
            if "event-stream" not in reply.headers.get("content-type", ""):
                yield _object(await reply.aread())
                return
            async for line in reply.aiter_lines():
                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                if data == "[DONE]":
                    return
                if data:
                    yield _object(data)
            raise failed("the Actor's stream broke off")

    async def models(self, headers: Mapping[str, str]) -> Json:
        async with self.asked("GET", "models", headers) as reply:
            listed = _object(await reply.aread())
        models = listed.get("data", [])
        if not isinstance(models, list) or not all(
            isinstance(model, dict) and isinstance(model.get("id"), str) for model in models
        ):
            raise failed("the Actor's list of models makes no sense")
        return listed

    @asynccontextmanager
    async def passed_on(
        self, path: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[StreamingResponse]:
        """The reply to any other request, to be passed on as it comes, refusals included."""
        async with self.asked("POST", path, headers, body, refusals=True) as reply:
            kept = {k: v for k, v in reply.headers.items() if k.lower() not in OF_ONE_HOP}
            yield StreamingResponse(reply.aiter_raw(), reply.status_code, kept)

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def asked(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        refusals: bool = False,
    ) -> AsyncIterator[httpx2.Response]:
        """A reply; with `refusals`, any. What breaks is an HttpError without the address."""
        kept = {name: value for name, value in headers.items() if name.lower() not in _OURS}
        theirs = headers.get("authorization") if self._pass_keys else None
        if shown := f"Bearer {self._key}" if self._key else theirs:
            kept["authorization"] = shown
        kept["accept-encoding"] = "identity"
        url = f"{self.url}/{path}"
        try:
            async with self._client.stream(method, url, headers=kept, content=body) as reply:
                if reply.status_code >= 400 and not refusals:
                    raise await _refusal(reply)
                yield reply
        except httpx2.RequestError as error:
            raise failed(f"{self.name} cannot be asked ({type(error).__name__})") from error


def failed(sentence: str, said: Any = None) -> HttpError:
    """`said`: the server's own words, if it had any."""
    return HttpError(502, sentence, code="actor_failed", said=said)


async def _refusal(reply: httpx2.Response) -> HttpError:
    """What the server said instead of an answer, with its status and its time to wait."""
    problem = failed("the Actor's server refused", parsed(await reply.aread()))
    status = reply.status_code if reply.status_code < 600 else problem.status
    wait = {k: v for k, v in reply.headers.items() if k.lower() == "retry-after"}
    return replace(problem, status=status, headers=wait)


def _object(data: bytes | str) -> Json:
    value = parsed(data)
    if not isinstance(value, dict):
        raise failed("the Actor's server did not answer with JSON")
    return value


def parsed(data: bytes | bytearray | str) -> Any:
    """JSON, or None if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Usage(_Read):
    prompt: Tokens = Field(None, alias="prompt_tokens")
    generated: Tokens = Field(None, alias="completion_tokens")
    cached: Tokens = Field(
        None, validation_alias=AliasPath("prompt_tokens_details", "cached_tokens")
    )
    reasoning: Tokens = Field(
        None, validation_alias=AliasPath("completion_tokens_details", "reasoning_tokens")
    )


class _Message(_Read):
    content: Any = None
    tool_calls: list[Json] | None = None


class _Delta(_Read):
    content: str | None = None


class _ReplyChoice(_Read):
    index: int | None = None
    message: _Message | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class Reply(_Read):
    """A completion, or a chunk of one."""

    choices: list[_ReplyChoice] | None = None
    usage: _Usage | None = None
    model: Any = None


def checked(reply: Json) -> Reply:
    try:
        return Reply.model_validate(reply)
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        raise failed(f"the Actor's answer makes no sense at `{place}`") from None


def completion_of(reply: Json) -> Completion:
    whole = checked(reply)
    choices = whole.choices or []
    if not choices or any(choice.message is None for choice in choices):
        raise failed("the Actor's answer makes no sense at `choices`")
    text = choices[0].message and choices[0].message.content
    counts = whole.usage.model_dump() if whole.usage else {}
    return Completion(
        text=text.encode(errors="replace").decode() if isinstance(text, str) else "",
        stop=Stop.LENGTH if choices[0].finish_reason == "length" else Stop.EOS,
        usage=Usage(**{name: count or 0 for name, count in counts.items()}),
        model=str(whole.model or ""),
    )
