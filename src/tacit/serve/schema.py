"""OpenAI's chat completions on the wire: a request checked, a reply or its chunks built.

Only what is needed here is checked; every other field is kept, so that it can be passed on.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.economy.ledger import ledger
from tacit.serve.problem import Problem
from tacit.types import Call, Episode, Stop, Usage

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
MOST_CHOICES = 128
"""Answers that one request may ask for."""
FINISH = {Stop.EOS: "stop", Stop.LENGTH: "length"}


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


class WireMessage(_Lenient):
    role: str
    content: str | list[Json] | None = None


class StreamOptions(_Lenient):
    include_usage: bool | None = None


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
    tacit: bool | None = None
    """Ours: put the conversation and the ledger into the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One chat completion that a client asked for."""

    fields: ChatFields
    body: Json
    """All that the client sent."""
    prompts: Sequence[Sequence[WireMessage]]
    """What is asked: its messages, or those of several prompts at once."""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def streams(self) -> bool:
        return bool(self.fields.stream)

    def last_fields(self, whole: Json) -> Json:
        """What a stream's last chunk, which has no choices, holds of the whole completion."""
        options = self.fields.stream_options
        wanted = ["usage"] if options and options.include_usage else []
        wanted += ["tacit"] if self.fields.tacit else []
        return {name: whole[name] for name in wanted if whole.get(name) is not None}

    @property
    def max_tokens(self) -> int | None:
        return self.fields.max_completion_tokens or self.fields.max_tokens

    @property
    def stops(self) -> list[str]:
        """The texts before which an answer ends."""
        stop = self.fields.stop or []
        return [text for text in ([stop] if isinstance(stop, str) else stop) if text]


def parse_json(raw: bytes) -> Json:
    """The object of a body, or a Problem."""
    try:
        body = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # also of a number with too many digits
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be read"
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise Problem(400, f"the body is not valid JSON: {reason}{place}") from None
    if not isinstance(body, dict):
        raise Problem(400, "the body must be a JSON object")
    return body


def parse_chat(body: Json, headers: Mapping[str, str]) -> Chat:
    """The request of a body, or a Problem that names the field."""
    try:
        fields = ChatFields.model_validate(body)
        return Chat(fields=fields, body=body, headers=headers, prompts=[fields.messages])
    except ValidationError as error:
        raise _named(error) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _named(error: ValidationError) -> Problem:
    """The first complaint with its field; what the client sent is not repeated."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(key) for key in first["loc"] if not _is_type(key))
    said = "is required" if first["type"] == "missing" else f": {first['msg'].lower()}"
    return Problem(400, f"`{place}`{' ' if said.startswith('is') else ''}{said}", param=place)


def _is_type(key: int | str) -> bool:
    """Whether a part of a place names a member of a union and not a field."""
    return isinstance(key, str) and (key == "str" or key.startswith("list["))


def usage_json(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def completion(chat: Chat, said: Sequence[tuple[str, str]], usage: Usage) -> Json:
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
    return {
        "id": chat.id,
        "object": "chat.completion",
        "created": chat.created,
        "model": chat.fields.model,
        "choices": choices,
        "usage": usage_json(usage),
    }


def chunk(chat: Chat, delta: Json, finish: str | None = None, index: int = 0) -> Json:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": chat.id,
        "object": "chat.completion.chunk",
        "created": chat.created,
        "model": chat.fields.model,
        "choices": [choice],
    }


def event(data: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + encoded(data) + b"\n\n"


def encoded(data: Any) -> bytes:
    """Compact JSON in ASCII, which can hold the halves into which servers cut a character."""
    return json.dumps(data, separators=(",", ":")).encode()


def account(calls: Sequence[Call]) -> Json:
    """What `tacit: true` adds to a reply: who said what, and who spent what."""
    rows = ledger([Episode(task_id="", sample=0, calls=tuple(calls))])
    return {
        "conversation": [
            {
                "agent": call.agent,
                "part": call.part,
                "round": call.round,
                "model": call.model,
                "text": call.text,
                "silent": call.silent,
                "finish_reason": FINISH[call.stop],
                "version": call.version,
                "usage": usage_json(call.usage),
            }
            for call in calls
        ],
        "ledger": [
            {
                "agent": row.agent,
                "model": row.model,
                "calls": row.calls,
                "turns": row.turns,
                "usage": usage_json(row.usage),
            }
            for row in rows
        ],
    }


def models_json(names: Sequence[str], created: int) -> Json:
    return {"object": "list", "data": [model_json(name, created) for name in names]}


def model_json(name: str, created: int) -> Json:
    return {"id": name, "object": "model", "created": created, "owned_by": "tacit"}
