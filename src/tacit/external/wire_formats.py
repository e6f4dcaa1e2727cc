"""What OpenAI-compatible requests and replies say: prompts, answers, tool calls and usage.

Chat completions, completions and responses. Whatever has an unexpected shape is read as far as it
makes sense: a recording must not fail because a server has a mind of its own.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.api.answer import tool_calls_of, usage_of
from tacit.serve.upstream import parsed
from tacit.types import ChatMessage, Stop, ToolCall, Usage

Json = dict[str, Any]
CHAT, COMPLETIONS, RESPONSES = "chat/completions", "completions", "responses"
GENERATING = (CHAT, COMPLETIONS, RESPONSES)
"""Paths at which a model says something."""
SYSTEM = ("system", "developer")
MOST_TOOL_CALLS = 1024
"""Of one message; a larger number in a stream is an error of the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer. Of several choices it is the first."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    stop: Stop
    usage: Usage | None
    """None if the server did not say, as in streams whose client did not ask for it."""
    served: str
    fingerprint: str


def text_of(content: Any) -> str:
    """The text of a message's content; other parts by their kind: `[image]`."""
    if isinstance(content, list):
        return "\n".join(map(_part, content))
    return content if isinstance(content, str) else ""


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    said = [part[name] for name in ("text", "refusal") if isinstance(part.get(name), str)]
    if said:
        return str(said[0])
    kind = str(part.get("type", "part")).removeprefix("input_").removesuffix("_url")
    return f"[{kind}]"


def messages_of(path: str, request: Any) -> tuple[ChatMessage, ...]:
    """The prompt as messages; `developer` is read as `system`."""
    if not isinstance(request, dict):
        return ()
    if path == COMPLETIONS:
        return (ChatMessage("user", text_of(request.get("prompt"))),)
    if path == CHAT:
        items = _list(request.get("messages"))
    else:
        told, asked = request.get("instructions"), request.get("input")
        items = [{"role": "system", "content": told}] if told else []
        items += asked if isinstance(asked, list) else [{"role": "user", "content": asked}]
    return tuple(_messages(item for item in items if isinstance(item, dict)))


def _messages(items: Iterator[Json]) -> Iterator[ChatMessage]:
    asked: dict[str, ToolCall] = {}
    for item in items:
        kind, role = item.get("type", "message"), str(item.get("role", ""))
        answers = item.get("tool_call_id") or item.get("call_id")
        if kind == "function_call":
            calls: tuple[ToolCall, ...] = (_function_call(item),)
            yield ChatMessage("assistant", "", calls)
        elif role == "tool" or kind == "function_call_output":
            calls = (asked.get(str(answers), ToolCall("", "{}", str(answers or ""))),)
            said = item.get("content") if role == "tool" else item.get("output")
            yield ChatMessage("tool", text_of(said), calls)
        elif kind == "message":
            calls = _tool_calls(item.get("tool_calls"))
            role = "system" if role in SYSTEM else role
            yield ChatMessage(role, text_of(item.get("content")), calls)
        else:
            calls = ()  # reasoning, searches: the server's own
        asked |= {call.id: call for call in calls}


def system_of(path: str, request: Any) -> str:
    """All that the prompt tells the model as its system prompt."""
    told = (m.content for m in messages_of(path, request) if m.role == "system")
    return "\n\n".join(filter(None, told))


def said_of(path: str, response: Json) -> Said:
    """What a successful reply says."""
    finish: Any
    if path == RESPONSES:
        output = [item for item in _list(response.get("output")) if isinstance(item, dict)]
        parts = [text_of(item.get("content")) for item in output if item.get("type") == "message"]
        text, finish = "\n".join(parts), response.get("status")
        calls = [_function_call(item) for item in output if item.get("type") == "function_call"]
    else:
        choices = _list(response.get("choices"))
        choice = choices[0] if choices and isinstance(choices[0], dict) else {}
        message = choice.get("message")
        message = message if isinstance(message, dict) else {"content": choice.get("text")}
        text, finish = text_of(message.get("content")), choice.get("finish_reason")
        calls = list(_tool_calls(message.get("tool_calls")))
    return Said(
        text=text.encode(errors="replace").decode(),
        tool_calls=tuple(calls),
        stop=Stop.LENGTH if finish in ("length", "incomplete") else Stop.EOS,
        usage=_usage(response.get("usage")),
        served=str(response.get("model") or ""),
        fingerprint=str(response.get("system_fingerprint") or ""),
    )


def _function_call(item: Json) -> ToolCall:
    name, arguments = str(item.get("name", "")), str(item.get("arguments") or "{}")
    return ToolCall(name, arguments, str(item.get("call_id") or item.get("id") or ""))


def _tool_calls(reported: Any) -> tuple[ToolCall, ...]:
    try:
        return tool_calls_of(reported or ())
    except (KeyError, TypeError, AttributeError):
        return ()


def _usage(reported: Any) -> Usage | None:
    """Responses have names of their own for the same counts."""
    if not isinstance(reported, dict):
        return None
    names = {"input": "prompt", "output": "completion"}
    renamed: Json = dict(reported)
    for theirs, ours in names.items():
        for end in ("tokens", "tokens_details"):
            if f"{theirs}_{end}" in reported:
                renamed[f"{ours}_{end}"] = reported[f"{theirs}_{end}"]
    renamed.setdefault("completion_tokens", 0)  # as of embeddings
    try:
        return usage_of(renamed)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def assembled(path: str, stream: bytes | bytearray) -> tuple[Json | None, bool]:
    """A stream's events as the reply that would have come whole, and whether it came to its end.

    Some servers send no `[DONE]`: there the end is that every choice has a reason to end.
    """
    events, ended = [], False
    for line in stream.splitlines():
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        ended = ended or data == b"[DONE]"
        if isinstance(event := parsed(data) if data else None, dict):
            events.append(event)
    failure = next((event for event in events if event.get("error")), None)
    if failure and path != RESPONSES:
        return failure, False
    if path == RESPONSES:
        return _last_response(events)
    if not events:
        return None, ended
    joined = _joined(path, events)
    reasons = [choice["finish_reason"] for choice in joined["choices"]]
    return joined, ended or (bool(reasons) and all(reasons))


def _last_response(events: list[Json]) -> tuple[Json | None, bool]:
    ends = ("response.completed", "response.incomplete")
    for event in reversed(events):
        if isinstance(event.get("response"), dict):
            return event["response"], event.get("type") in ends
    return (events[-1] if events else None), False


def _joined(path: str, events: list[Json]) -> Json:
    head = {k: v for k, v in events[0].items() if k not in ("choices", "usage", "object")}
    choices: dict[int, Json] = {}
    usage = None
    for event in events:
        usage = event.get("usage") or usage
        for choice in _list(event.get("choices")):
            if isinstance(choice, dict):
                index = choice.get("index")
                _add(choices.setdefault(index if isinstance(index, int) else 0, {}), choice)
    kind = "chat.completion" if path == CHAT else "text_completion"
    said = [{"index": index, **choices[index]} for index in sorted(choices)]
    return head | {"object": kind, "choices": said, "usage": usage}


def _add(choice: Json, piece: Mapping[str, Any]) -> None:
    """Add one chunk to what a choice has said so far."""
    if isinstance(delta := piece.get("delta"), dict):
        message = choice.setdefault("message", {"role": "assistant", "content": None})
        _merge(message, delta)
    if isinstance(text := piece.get("text"), str):
        choice["text"] = choice.get("text", "") + text
    if isinstance(logprobs := piece.get("logprobs"), dict):
        _merge(choice.setdefault("logprobs", {}) or {}, logprobs)
    choice["finish_reason"] = piece.get("finish_reason") or choice.get("finish_reason")


def _merge(whole: Json, delta: Mapping[str, Any]) -> None:
    """Texts and lists grow, tool calls by their index; what comes once stays."""
    for name, value in delta.items():
        known = whole.get(name)
        if name == "tool_calls":
            calls = whole.setdefault(name, [])
            for piece in _list(value):
                _merge_call(calls, piece)
        elif name in ("role", "id") and known:
            continue
        elif isinstance(value, str | list) and type(known) is type(value):
            whole[name] += value
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif value is not None:
            whole[name] = dict(value) if isinstance(value, dict) else value


def _merge_call(calls: list[Json], piece: Any) -> None:
    if not isinstance(piece, dict):
        return
    place = piece.get("index", max(0, len(calls) - 1))
    if not isinstance(place, int) or not 0 <= place < MOST_TOOL_CALLS:
        return
    while len(calls) <= place:
        calls.append({"function": {"name": "", "arguments": ""}})
    call, function = calls[place], piece.get("function")
    call |= {k: v for k, v in piece.items() if k in ("id", "type") and v}
    for name in ("name", "arguments"):
        said = function.get(name) if isinstance(function, dict) else None
        call["function"][name] += said if isinstance(said, str) else json.dumps(said) * bool(said)
