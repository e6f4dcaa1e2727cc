"""OpenAI's chat completions on the wire: a request checked, a reply or its chunks built.

Only the fields that some part of the server reads are checked. Every other field is kept, so that
it can be passed on.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.responses import Response

from tacit.economy.ledger import ledger
from tacit.serve.http_error import HttpError
from tacit.types import Call, Episode, Stop, Usage

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
MOST_CHOICES = 128
"""Answers that one request may ask for."""
LONGEST_NAME = 200
"""Characters of a conversation's name."""
CONVERSATION = "x-tacit-conversation"
"""The header that names a conversation; `metadata.conversation_id` does it too."""
FINISH = {Stop.EOS: "stop", Stop.LENGTH: "length"}
STARTED = int(time.time())


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


class WireMessage(_Lenient):
    role: str
    content: str | list[Json] | None = None

    @property
    def text(self) -> str:
        """The text parts. Images have none."""
        text = self.content or ""
        if isinstance(text, list):
            parts = [part.get("text") for part in text if part.get("type") == "text"]
            text = "\n".join(part for part in parts if isinstance(part, str))
        return _readable(text)

    @property
    def odd_part(self) -> int | None:
        """The first part that is not text, by its number; None if there is none."""
        parts = self.content if isinstance(self.content, list) else []
        return next((n for n, part in enumerate(parts) if part.get("type") != "text"), None)


def _readable(text: str) -> str:
    """The text with `?` for half a character, which no model reads."""
    return text.encode(errors="replace").decode()


Messages = Sequence[WireMessage]


class StreamOptions(_Lenient):
    include_usage: bool | None = None


class Wish(BaseModel):
    """Ours: what a client asks of the server. `true` is short for an account, `{}` likewise."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    account: bool = True
    """Put the conversation and the ledger into the reply."""
    tokens: int | None = Field(default=None, ge=1)
    """What this request may spend at most, as far as the server allows it."""
    turns: int | None = Field(default=None, ge=1)
    money: float | None = Field(default=None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return given if isinstance(given, dict) else {"account": given}


class ChatFields(_Lenient):
    """The fields of a request that some part of the server reads."""

    model: str
    messages: list[WireMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    stop: str | list[str] | None = None
    views: dict[str, str] | None = None
    """Ours: agent or role → what it alone is shown beside the question."""
    tacit: Wish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One chat completion that a client asked for."""

    fields: ChatFields
    body: Json
    """Everything the client sent."""
    prompts: Sequence[Messages]
    """The messages to answer; several lists if the client sent several prompts at once."""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def streams(self) -> bool:
        return bool(self.fields.stream)

    @property
    def wish(self) -> Wish:
        return self.fields.tacit or Wish(account=False)

    @property
    def conversation(self) -> str:
        """The name that the client gives to a conversation of several requests, or nothing."""
        named = self.headers.get(CONVERSATION)
        data = self.body.get("metadata")
        if named is None and isinstance(data, dict):
            named = data.get("conversation_id")
        if not isinstance(named, str):
            return ""
        if len(named) > LONGEST_NAME:
            told = f"a conversation's name may have at most {LONGEST_NAME} characters"
            raise HttpError(400, told)
        return named

    @property
    def views(self) -> dict[str, str]:
        return {agent: _readable(text) for agent, text in (self.fields.views or {}).items()}

    @property
    def max_tokens(self) -> int | None:
        return self.fields.max_completion_tokens or self.fields.max_tokens

    @property
    def stops(self) -> list[str]:
        """The texts before which an answer ends."""
        stop = self.fields.stop or []
        return [text for text in ([stop] if isinstance(stop, str) else stop) if text]


def parse_json(raw: bytes) -> Json:
    """The object of a body, or an HttpError."""
    try:
        body = json.loads(raw, parse_constant=int)  # which refuses NaN and Infinity
    except (ValueError, RecursionError) as error:  # also of a number with too many digits
        reason = "it cannot be read"
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at character {error.pos}"
        raise HttpError(400, f"the body is not valid JSON: {reason}") from None
    if not isinstance(body, dict):
        raise HttpError(400, "the body must be a JSON object")
    return body


def parse_chat(body: Json, headers: Mapping[str, str]) -> ChatRequest:
    """The request of a body, or an HttpError that names the field. It never repeats a value."""
    try:
        fields = ChatFields.model_validate(body)
    except ValidationError as errors:
        error = errors.errors(include_input=False, include_url=False)[0]
        keys = [str(key) for key in error["loc"]]
        place = ".".join(key for key in keys if key != "str" and "[" not in key)  # no union members
        wrong = " is required" if error["type"] == "missing" else f": {error['msg'].lower()}"
        raise HttpError(400, f"`{place}`{wrong}", param=place) from None
    return ChatRequest(fields=fields, body=body, headers=headers, prompts=[fields.messages])


def usage_json(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def usage_of(calls: Sequence[Call]) -> Json:
    return usage_json(sum((call.usage for call in calls), Usage()))


def completion(chat: ChatRequest, said: Sequence[tuple[str, str]], calls: Sequence[Call]) -> Json:
    """`said`: each choice's text and why it ended."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": finish,
        }
        for index, (text, finish) in enumerate(said)
    ]
    return _head(chat, "chat.completion") | {"choices": choices, "usage": usage_of(calls)}


def chunk(chat: ChatRequest, delta: Json, finish: str | None = None, index: int = 0) -> Json:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _head(chat, "chat.completion.chunk") | {"choices": [choice]}


def _head(chat: ChatRequest, kind: str) -> Json:
    return {"id": chat.id, "object": kind, "created": chat.created, "model": chat.fields.model}


def chunks_of(reply: Json) -> Iterator[Json]:
    """A whole reply as the chunks of a stream."""
    for choice in reply["choices"]:
        delta = {name: value for name, value in choice["message"].items() if value is not None}
        if tools := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **tool} for i, tool in enumerate(tools)]
        for part, finish in ((delta, None), ({}, choice.get("finish_reason"))):
            piece = {"index": choice.get("index", 0), "delta": part, "finish_reason": finish}
            yield chunk_head(reply) | {"choices": [piece]}


def chunk_head(reply: Json) -> Json:
    """What every chunk of a reply shares."""
    whole = ("choices", "usage", "tacit")
    head = {name: value for name, value in reply.items() if name not in whole}
    return head | {"object": "chat.completion.chunk"}


def account(calls: Sequence[Call]) -> Json:
    """What `tacit: true` adds to a reply: who said what, and who spent what."""
    said = ("agent", "part", "round", "model", "text", "silent", "version")
    spent = ("agent", "model", "calls", "turns")
    return {
        "conversation": [
            {name: getattr(call, name) for name in said}
            | {"finish_reason": FINISH[call.stop], "usage": usage_json(call.usage)}
            | ({"tool_calls": [asdict(one) for one in call.tool_calls]} if call.tool_calls else {})
            | ({"observed_tokens": call.usage.observed} if call.usage.observed else {})
            for call in calls
        ],
        "ledger": [
            {name: getattr(row, name) for name in spent}
            | {"usage": usage_json(row.usage)}
            | ({"observed_tokens": row.usage.observed} if row.usage.observed else {})
            for row in ledger([Episode(task_id="", sample=0, calls=tuple(calls))])
        ],
    }


def models_json(names: Sequence[str]) -> Json:
    ours = {"object": "model", "created": STARTED, "owned_by": "tacit"}
    return {"object": "list", "data": [{"id": name, **ours} for name in names]}


def encoded(data: Any) -> bytes:
    """Compact JSON in ASCII, which can hold the halves into which servers cut a character."""
    return json.dumps(data, separators=(",", ":")).encode()


def event(data: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + encoded(data) + b"\n\n"


def json_response(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(encoded(body), status, headers, media_type="application/json")
