"""Reads OpenTelemetry spans of model calls as episodes, for audits; they cannot be trained on.

Conventions, all still in development when this was written:
- OpenTelemetry GenAI, open-telemetry/semantic-conventions-genai at 002c8a6 (beside v1.41.1 of the
  general conventions): `gen_ai.operation.name`, `gen_ai.request.model`, `gen_ai.usage.*`,
  `gen_ai.agent.name`, `gen_ai.conversation.id`, and messages as attributes or in an event;
- the events of its v1.36 and before, such as `gen_ai.user.message` and `gen_ai.choice`;
- OpenLLMetry's `gen_ai.prompt.N.content`, and OpenInference's `llm.input_messages` (Arize-ai/
  openinference at 0101ec1).

A conversation, or else a trace, is an episode. A call's agent is the nearest span around it that
names one, else the service. If one model call was recorded twice, one inside the other, the inner
counts; an agent's own usage counts only if no call was recorded inside. `observed` is not known.
Not covered: log records, and content that was uploaded elsewhere.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit.report.tolerant import number, tree_at
from tacit.traffic.critical_path import ordered_in_time
from tacit.traffic.span_files import Span, read_spans
from tacit.traffic.span_messages import messages_of
from tacit.types import MOST_TOKENS, Call, Episode, Stop, Usage

CALLS = {"chat", "text_completion", "generate_content", "completion", "llm"}
AGENTS = {"invoke_agent", "invoke_workflow", "create_agent", "agent"}
TOOLS = {"execute_tool", "tool"}
PATH, PROPERTIES = "langgraph_checkpoint_ns", "traceloop.association.properties."
STEPS = {"agent", "model", "tools"}
"""Nodes of LangGraph's and LangChain's ready-made agents."""
KEYS: Mapping[str, tuple[str, ...]] = {
    "kind": (
        "gen_ai.operation.name",
        "openinference.span.kind",
        "llm.request.type",
        "traceloop.span.kind",
    ),
    "model": (
        "gen_ai.request.model",
        "llm.request.model_name",
        "gen_ai.response.model",
        "llm.model_name",
    ),
    "served": ("gen_ai.response.model", "llm.response.model_name"),
    "agent": ("gen_ai.agent.name", "agent.name", "graph.node.name", "graph.node.id"),
    "conversation": ("gen_ai.conversation.id", "session.id"),
    "finish": ("gen_ai.response.finish_reasons", "llm.finish_reason"),
    "prompt": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
    ),
    "generated": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "cached": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "reasoning": (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
}
"""Attributes by what they tell, the newest name first."""

Around = Mapping[tuple[str, str], Span]
"""Spans by trace and id."""


def load_spans(path: str | Path) -> list[Episode]:
    """The episodes in a file of spans, in order of their first call.

    Example: audit_traffic(load_spans("traces.jsonl"))
    """
    spans = read_spans(path)
    around = {(span.trace, span.id): span for span in spans}
    counted = [span for span in spans if _is(span, CALLS) or _counts(span)]
    outer = {id(above) for span in counted for above in _wrappers(span, around)}
    calls = [span for span in counted if id(span) not in outer]
    calls.sort(key=lambda span: (span.start, span.end))
    if not calls:
        raise DataError(
            f"spans: `{path}` has no model call among its {len(spans)} spans: none has "
            "`gen_ai.operation.name` chat, text_completion or generate_content, or OpenInference's "
            "span kind LLM"
        )
    by: dict[str, list[Span]] = {}
    for span in calls:
        by.setdefault(_conversation(span, around), []).append(span)
    return [_episode(task, mine, around) for task, mine in by.items()]


def _get(span: Span, what: str) -> Any:
    found = (span.attributes.get(key) for key in KEYS[what])
    return next((value for value in found if value not in (None, "")), None)


def _is(span: Span, kinds: set[str]) -> bool:
    kind = _get(span, "kind")
    if kind is None and kinds is CALLS:
        return _get(span, "model") is not None and _get(span, "generated") is not None
    return str(kind).lower() in kinds


def _counts(span: Span) -> bool:
    """True for an agent's span with usage, for programs that record no single calls."""
    return _is(span, AGENTS) and _get(span, "generated") is not None


def _above(span: Span, around: Around) -> Iterator[Span]:
    """The spans around one, nearest first."""
    passed = {span.id}
    parent = around.get((span.trace, span.parent))
    while parent and parent.id not in passed:
        yield parent
        passed.add(parent.id)
        parent = around.get((parent.trace, parent.parent))


def _wrappers(span: Span, around: Around) -> Iterator[Span]:
    """Spans that count the same tokens as this call: agents, and calls with nothing between."""
    direct = True
    for above in _above(span, around):
        if _is(above, AGENTS) or (direct and _is(above, CALLS)):
            yield above
        direct = direct and not (_is(above, AGENTS) or _is(above, TOOLS))


def _conversation(span: Span, around: Around) -> str:
    told = (_get(one, "conversation") for one in (span, *_above(span, around)))
    return str(next(filter(None, told), span.trace))


def _agent(span: Span, around: Around) -> str:
    names = (_name(one) for one in (span, *_above(span, around)))
    return next(filter(None, names), span.service or "agent")


def _name(span: Span) -> str:
    """The agent that a span names; a node of LangGraph counts as one."""
    told = _get(span, "agent") or _node(span)
    if told or not _is(span, AGENTS):
        return str(told or "")
    entity = span.attributes.get("traceloop.entity.name")
    return str(entity or span.name.removeprefix("invoke_agent").strip())


def _node(span: Span) -> str:
    """The innermost node of LangGraph around a call that is not only a step of an agent.

    Its path is written `researcher:1f0e…|agent:77c2…`.
    """
    try:
        metadata = tree_at(json.loads(str(span.attributes.get("metadata") or "{}")))
    except (ValueError, RecursionError):
        metadata = {}
    path = metadata.get(PATH) or span.attributes.get(f"{PROPERTIES}{PATH}") or ""
    nodes = [node.partition(":")[0] for node in str(path).split("|")][::-1]
    return next((node for node in nodes if node not in STEPS), nodes[0])


def _episode(task: str, spans: Sequence[Span], around: Around) -> Episode:
    calls = [_call(span, _agent(span, around)) for span in spans]
    if not any(call.messages or call.text for call in calls):
        calls = ordered_in_time(calls, [(span.start, span.end) for span in spans])
    return Episode(
        task_id=task,
        sample=0,
        calls=tuple(calls),
        answer=next((call.text for call in reversed(calls) if call.text), ""),
        seconds=max(span.end for span in spans) - min(span.start for span in spans),
    )


def _call(span: Span, agent: str) -> Call:
    messages, answer = messages_of(span)
    model = str(_get(span, "model") or "unknown")
    finish = str(_get(span, "finish") or "").lower()
    return Call(
        agent=agent,
        model=model,
        messages=messages,
        text=answer.content,
        stop=Stop.LENGTH if "length" in finish or "max_tokens" in finish else Stop.EOS,
        usage=_usage(span),
        seconds=max(0.0, span.end - span.start),
        served=str(_get(span, "served") or ""),
        tool_calls=answer.tool_calls,
    )


def _usage(span: Span) -> Usage:
    """Some count neither cached tokens as read nor reasoning as generated: then they are added."""
    prompt, generated, cached, reasoning = (
        _tokens(span, what) for what in ("prompt", "generated", "cached", "reasoning")
    )
    return Usage(
        prompt=prompt + (cached if cached > prompt else 0),
        generated=generated + (reasoning if reasoning > generated else 0),
        cached=cached,
        reasoning=reasoning,
    )


def _tokens(span: Span, what: str) -> int:
    value = number(_get(span, what)) or 0
    if not 0 <= value <= MOST_TOKENS:
        raise DataError(f"spans: span {span.id} of trace {span.trace} has {value} {what} tokens")
    return int(value)
