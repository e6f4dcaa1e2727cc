"""How models write tool calls: the syntax of a chat template, or a plain form of ours.

A template's syntax is found by letting it render a call and reading that back. A model whose
template has none, or one that none of the readers knows, is told our plain form in its prompt.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tacit.types import ChatMessage, Prompt, ToolCall, ToolSpec

Reader = Callable[[str], tuple[ToolCall, ...]]

PROBE = ToolSpec(
    name="probe_tool",
    description="Probes.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
PROBED = ToolCall(PROBE.name, '{"word": "probed"}', "call00001")

_JSON = json.JSONDecoder(strict=False)
"""Models write code as it stands, with line breaks inside its quotes."""
_TAGGED = re.compile(r"<\s?tool_call>(.*?)(?:<\s?/tool_call>|\Z)", re.S)
_FUNCTION = re.compile(r"<function=([^>\n]*)>(.*?)(?:</function>|\Z)", re.S)
_PARAMETER = re.compile(r"<parameter=([^>\n]*)>\n?(.*?)\n?</parameter>", re.S)
_BEGUN = re.compile(r"^[ \t]*(?:(?:```(?:json)?|<tools>|<\|python_tag\|>)\s*)?(?=\{)", re.M)
_NAMED = re.compile(r"\[TOOL_CALLS\]\s*([\w.-]+)\s*\[ARGS\]\s*(.*?)(?=\[TOOL_CALLS\]|\Z)", re.S)


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """How one model calls tools."""

    read: Reader
    plain: bool
    """True if the template has no syntax that can be read, so that ours is used."""


def read_tagged(text: str) -> tuple[ToolCall, ...]:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Qwen, Hermes, and our plain form."""
    return numbered(map(_from_json, _TAGGED.findall(text)))


def read_functions(text: str) -> tuple[ToolCall, ...]:
    """`<function=name><parameter=key>value</parameter></function>`: Qwen3-Coder."""
    return numbered(
        ToolCall(name.strip(), json.dumps(dict(_PARAMETER.findall(body))))
        for name, body in _FUNCTION.findall(text)
    )


def read_list(text: str) -> tuple[ToolCall, ...]:
    """`[TOOL_CALLS] [{…}]` or `[TOOL_CALLS]name[ARGS]{…}`: Mistral."""
    if named := _NAMED.findall(text):
        return numbered(ToolCall(name, _first_json(body)) for name, body in named)
    _, found, rest = text.partition("[TOOL_CALLS]")
    if not found:
        return ()
    try:
        listed, _ = _JSON.raw_decode(rest.lstrip())
    except (ValueError, RecursionError):
        return numbered([ToolCall("", rest.strip())])
    return numbered(map(_from_tree, listed if isinstance(listed, list) else [listed]))


def read_bare(text: str) -> tuple[ToolCall, ...]:
    """`{"name": …, "parameters": {…}}` and nothing before it: Llama 3."""
    try:
        tree, _ = _JSON.raw_decode(text.lstrip().removeprefix("<|python_tag|>").lstrip())
    except (ValueError, RecursionError):
        return ()
    call = _from_tree(tree)
    return numbered([call] if call.name else [])


def read_untagged(text: str, names: Collection[str]) -> tuple[ToolCall, ...]:
    """Calls of known tools in JSON that begins a line, bare or in a code block.

    Qwen2.5-Coder writes them so, although its template asks for tags.
    """
    calls, end = [], 0
    for start in _BEGUN.finditer(text):
        with suppress(ValueError, RecursionError):
            if start.end() >= end:  # not inside of the call before it
                tree, end = _JSON.raw_decode(text, start.end())
                calls.append(_from_tree(tree))
    return numbered(call for call in calls if call.name in names)


READERS: tuple[Reader, ...] = (read_functions, read_list, read_tagged, read_bare)


PLAIN = ToolSyntax(read_tagged, plain=True)


def find_syntax(render: Callable[..., str], own: Reader | None = None) -> ToolSyntax:
    """The syntax of a template, given what renders messages and tools as text.

    `own` reads answers by the tokenizer's own response template, if it has one.
    """
    question = (ChatMessage("user", "asked by the probe"),)
    called = ChatMessage("assistant", "", (PROBED,))
    answered = (*question, called, ChatMessage("tool", "seen by the probe", (PROBED,)))
    try:
        asked = render(question, (PROBE,), add_generation_prompt=True)
        whole = render(answered, (PROBE,))
    except Exception:  # templates are programs; one that cannot do this has no syntax
        return PLAIN
    if PROBE.name not in asked:
        return PLAIN
    prompt = asked if whole.startswith(asked) else "asked by the probe"
    said, seen, _ = whole.partition(prompt)[2].partition("seen by the probe")
    for read in (*([own] if own else []), *READERS):
        if seen and [(c.name, loaded(c.arguments)) for c in read(said)] == [
            (PROBED.name, loaded(PROBED.arguments))
        ]:
            return ToolSyntax(read, plain=False)
    return PLAIN


def describe_tools(messages: Prompt, tools: Iterable[ToolSpec]) -> Prompt:
    """The prompt with the tools described in our plain form, at the end of its first message."""
    listed = [
        f"- {tool.name}: {tool.description} Arguments: {json.dumps(tool.parameters)}"
        for tool in tools
    ]
    told = "\n".join(
        [
            "You have tools. To use one, reply with exactly this and wait for what it says:",
            '<tool_call>{"name": "…", "arguments": {…}}</tool_call>',
            *listed,
        ]
    )
    first, *rest = messages
    return (ChatMessage(first.role, f"{first.content}\n\n{told}".strip()), *rest)


def plain_results(observations: Iterable[ChatMessage]) -> ChatMessage:
    """Tool results as the user's next message, in our plain form."""
    quoted = [
        f'<observation from="{_label(one)}">\n{one.content}\n</observation>' for one in observations
    ]
    return ChatMessage("user", "\n".join(quoted))


def _label(observation: ChatMessage) -> str:
    """The tool's name; the model wrote it, so it may hold anything."""
    name = observation.tool_calls[0].name if observation.tool_calls else ""
    return re.sub(r"[^\w./-]", "", name)[:64]


def template_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """The tools in the form of chat templates and OpenAI-style APIs."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


def typed(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments converted to the types of a schema; some syntaxes have only strings."""
    known = parameters.get("properties") or {}
    return {
        name: loaded(value)
        if isinstance(value, str) and not _takes_text(known.get(name))
        else value
        for name, value in arguments.items()
    }


def _takes_text(schema: Any) -> bool:
    """True if a schema allows a string, in one of its alternatives or by default."""
    if not isinstance(schema, Mapping):  # also `true`, which allows everything
        return True
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return any(map(_takes_text, several))
    return "string" in (schema.get("type") or "string")  # one type or a list of them


def numbered(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Ids of nine letters and digits, the only ones that every template takes."""
    return tuple(ToolCall(c.name, c.arguments, f"call{n:05d}") for n, c in enumerate(calls, 1))


def _from_json(text: str) -> ToolCall:
    try:
        return _from_tree(_JSON.decode(text))
    except (ValueError, RecursionError):
        return ToolCall("", text.strip())


def _from_tree(tree: Any) -> ToolCall:
    """A call without a name if the tree is none."""
    if not isinstance(tree, Mapping) or not isinstance(tree.get("name"), str):
        return ToolCall("", json.dumps(tree))
    arguments = tree.get("arguments", tree.get("parameters", {}))
    return ToolCall(
        tree["name"], arguments if isinstance(arguments, str) else json.dumps(arguments)
    )


def _first_json(text: str) -> str:
    try:
        _, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return text.strip()
    return text[:end]


def loaded(text: str) -> Any:
    """A value as the tool is given it; the text itself if it is not JSON."""
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        return text
