"""The messages in the attributes and events of a span, in the shapes that instrumentations use.

Only texts, tool calls and what tools said are taken: no images, and no reasoning, which other
agents are not shown. Of several answers to one prompt the first counts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tacit.report.tolerant import tree_at
from tacit.traffic.span_files import Span
from tacit.types import ChatMessage, ToolCall

DETAILS = "gen_ai.client.inference.operation.details"
FLAT = (("gen_ai.prompt", "gen_ai.completion"), ("llm.input_messages", "llm.output_messages"))
"""Prefixes of OpenLLMetry and of OpenInference: `gen_ai.prompt.0.content` is one attribute."""
EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def messages_of(span: Span) -> tuple[tuple[ChatMessage, ...], ChatMessage]:
    """The prompt and the answer; both are empty if no content was recorded."""
    answer = ChatMessage("assistant", "")
    for prompt, answers in _shapes(span):
        if prompt or answers:
            return prompt, answers[0] if answers else answer
    return (), answer


Shape = tuple[tuple[ChatMessage, ...], tuple[ChatMessage, ...]]


def _shapes(span: Span) -> Iterable[Shape]:
    """Prompt and answers by every convention, the newest first."""
    details = [attributes for name, attributes in span.events if name == DETAILS]
    for found in (span.attributes, *details):
        told = _parts(_parsed(found.get("gen_ai.system_instructions")))[0]
        system = (ChatMessage("system", told),) if told else ()
        asked = _list(found.get("gen_ai.input.messages"), "user")
        yield (*system, *asked), _list(found.get("gen_ai.output.messages"), "assistant")
    yield _from_events(span.events)
    for before, after in FLAT:
        prompt, answers = (_rows(_nested(span.attributes, f"{key}.")) for key in (before, after))
        yield _list(prompt, "user"), _list(answers, "assistant")


def _from_events(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Shape:
    """The events of v1.36 and before: one for each message, and `gen_ai.choice` for an answer."""
    prompt, answers = [], []
    for name, found in events:
        body = tree_at(_parsed(found.get("gen_ai.event.content"))) or dict(found)
        if name in EVENT_ROLES:
            prompt.append(_message(body, EVENT_ROLES[name]))
        elif name == "gen_ai.choice":
            inner = _parsed(body.get("message"))
            given = inner if isinstance(inner, dict) else {"content": inner}
            answers.append(_message(given if inner else body, "assistant"))
        elif name == "gen_ai.content.prompt":
            prompt += _list(body.get("gen_ai.prompt"), "user")
        elif name == "gen_ai.content.completion":
            answers += _list(body.get("gen_ai.completion"), "assistant")
    return tuple(prompt), tuple(answers)


def _list(value: Any, role: str) -> tuple[ChatMessage, ...]:
    """Messages given as a list, as JSON in a string, or as a plain text."""
    found = _parsed(value)
    if isinstance(found, str):
        return (ChatMessage(role, _clean(found)),) if found else ()
    rows = found if isinstance(found, list) else [found]
    return tuple(_message(row, role) for row in rows if isinstance(row, dict) and row)


def _message(tree: Mapping[str, Any], role: str) -> ChatMessage:
    """One message: with `parts`, with `content` as OpenAI has it, or as OpenInference has it."""
    tree = tree_at(tree.get("message")) or tree
    role = str(tree.get("role") or role)
    text, calls, answered = "", [], False
    for key in ("parts", "content", "contents"):
        found = _rows(_parsed(tree.get(key)))
        more, asked, answers = _parts(found)
        text = "\n".join(part for part in (text, more) if part)
        calls += asked
        answered |= answers
    calls += [_tool_call(one) for one in _as_list(_rows(_parsed(tree.get("tool_calls"))))]
    return ChatMessage("tool" if answered and not calls else role, text, tuple(calls))


def _parts(found: Any) -> tuple[str, list[ToolCall], bool]:
    """Text, tool calls, and whether it is a tool that speaks."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    answered = False
    for part in _as_list(found):
        if isinstance(part, str):
            texts.append(part)
            continue
        tree = tree_at(tree_at(part).get("message_content")) or tree_at(part)
        kind = str(tree.get("type", "text")).removeprefix("input_").removeprefix("output_")
        if kind in ("tool_call", "tool_use", "function_call"):
            calls.append(_tool_call(tree))
        elif kind in ("tool_call_response", "tool_result"):
            said = next((tree[k] for k in ("response", "result", "content") if k in tree), "")
            texts.append(said if isinstance(said, str) else json.dumps(said, ensure_ascii=False))
            answered = True
        elif kind == "text":
            texts.append(str(tree.get("content") or tree.get("text") or ""))
    return _clean("\n".join(filter(None, texts))), calls, answered


def _tool_call(value: Any) -> ToolCall:
    tree = tree_at(tree_at(value).get("tool_call")) or tree_at(value)
    inner = tree_at(tree.get("function")) or tree
    arguments = inner.get("arguments", inner.get("input"))
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    return ToolCall(
        _clean(str(inner.get("name", ""))), _clean(arguments), str(tree.get("id") or "")
    )


def _nested(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """`a.0.b: x` as {"0": {"b": x}}, for the attributes with a prefix."""
    whole: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(prefix):
            *path, last = key.removeprefix(prefix).split(".")
            at = whole
            for step in path:
                inner = at.get(step)
                at[step] = at = inner if isinstance(inner, dict) else {}
            at[last] = value
    return whole


def _rows(value: Any) -> Any:
    """An object with numbers as keys, as a list in their order."""
    if isinstance(value, dict) and value and all(key.isdecimal() for key in value):
        return [value[key] for key in sorted(value, key=lambda key: (len(key), key))]
    return value


def _as_list(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _parsed(value: Any) -> Any:
    """JSON in a string as what it says; any other string as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return found if _messages_like(found) else value
    return value


def _messages_like(found: Any) -> bool:
    """True for messages and parts; an answer that happens to be JSON is a text."""
    keys = {"role", "type", "content", "parts", "text", "message", "function", "tool_calls"}
    rows = found if isinstance(found, list) else [found]
    return bool(rows) and all(isinstance(row, dict) and not keys.isdisjoint(row) for row in rows)


def _clean(text: str) -> str:
    """Without halves of characters, which could be neither printed nor stored."""
    return text.encode(errors="replace").decode()
