"""What the Actor's server sent, read with care: whatever makes no sense is a Problem with 502."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.types import MOST_TOKENS
from tacit.engine.base import Completion
from tacit.serve.problem import Problem
from tacit.serve.schema import Json
from tacit.types import Stop, Usage

Kind = TypeVar("Kind", bound=BaseModel)
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Details(_Read):
    cached_tokens: Tokens = None
    reasoning_tokens: Tokens = None


class _Usage(_Read):
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Message(_Read):
    content: Any = None
    tool_calls: list[Json] | None = None


class _Choice(_Read):
    message: _Message
    finish_reason: str | None = None


class _Whole(_Read):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None
    model: Any = None


class _Delta(_Read):
    content: str | None = None


class Piece(_Read):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class Chunk(_Read):
    choices: list[Piece] | None = None
    usage: _Usage | None = None


class _Model(_Read):
    id: str


class _Models(_Read):
    data: list[_Model] = []


def read(kind: type[Kind], reply: Json) -> Kind:
    try:
        return kind.model_validate(reply)
    except ValidationError as error:
        place = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        raise Problem(
            502, f"the Actor's answer makes no sense at `{place}`", code="actor_failed"
        ) from None


def check_models(reply: Json) -> None:
    read(_Models, reply)


def is_whole(reply: Json) -> bool:
    """Whether it is a completion and not a chunk of one."""
    choices = reply.get("choices")
    return isinstance(choices, list) and any(
        isinstance(c, dict) and "message" in c for c in choices
    )


def completion_of(reply: Json) -> Completion:
    whole = read(_Whole, reply)
    text, usage = whole.choices[0].message.content, whole.usage or _Usage()
    return Completion(
        text=text.encode(errors="replace").decode() if isinstance(text, str) else "",
        stop=Stop.LENGTH if whole.choices[0].finish_reason == "length" else Stop.EOS,
        usage=Usage(
            prompt=usage.prompt_tokens or 0,
            generated=usage.completion_tokens or 0,
            cached=_detail(usage.prompt_tokens_details, "cached_tokens"),
            reasoning=_detail(usage.completion_tokens_details, "reasoning_tokens"),
        ),
        model=str(whole.model or ""),
    )


def _detail(details: _Details | None, name: Literal["cached_tokens", "reasoning_tokens"]) -> int:
    return (getattr(details, name) if details else 0) or 0


def chunks_of(reply: Json) -> Iterator[Json]:
    """A whole reply as the chunks of a stream."""
    head = {name: value for name, value in reply.items() if name not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    for choice in reply["choices"]:
        delta = {name: value for name, value in choice["message"].items() if value is not None}
        if tools := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **tool} for i, tool in enumerate(tools)]
        for part, finish in ((delta, None), ({}, choice.get("finish_reason"))):
            piece = {"index": choice.get("index", 0), "delta": part, "finish_reason": finish}
            yield head | {"choices": [piece]}
