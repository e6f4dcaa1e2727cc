"""Spans of other people's programs as episodes: every convention, every file format, and junk."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tacit.errors import DataError
from tacit.traffic.audit_traffic import audit_traffic
from tacit.traffic.spans import load_spans
from tacit.types import ChatMessage, Episode, Stop, ToolCall, Usage

Attributes = dict[str, Any]
START = 1_700_000_000
ASK, TOLD = "How many legs have three spiders?", "A spider has eight legs."


def typed(value: Any) -> dict[str, Any]:
    """A value as OTLP/JSON types it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [typed(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": listed(value)}}
    return {"stringValue": value}


def listed(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": typed(value)} for key, value in attributes.items()]


def otlp_span(
    own: str,
    parent: str,
    attributes: Attributes,
    at: tuple[float, float] = (0.0, 1.0),
    trace: str = "t1",
    events: list[tuple[str, Attributes]] | None = None,
) -> dict[str, Any]:
    start, end = (str(int((START + second) * 1e9)) for second in at)
    return {
        "traceId": trace,
        "spanId": own,
        "parentSpanId": parent,
        "name": own,
        "startTimeUnixNano": start,
        "endTimeUnixNano": end,
        "attributes": listed(attributes),
        "events": [{"name": name, "attributes": listed(more)} for name, more in events or []],
    }


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": listed({"service.name": "shop"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]}


def printed(own: str, parent: str | None, attributes: Attributes, second: int) -> dict[str, Any]:
    """As ConsoleSpanExporter of opentelemetry-sdk 1.45.2 prints it."""
    return {
        "name": own,
        "context": {"trace_id": "0xabc", "span_id": own, "trace_state": "[]"},
        "kind": "SpanKind.INTERNAL",
        "parent_id": parent,
        "start_time": f"2026-11-17T17:57:{second:02d}.500000Z",
        "end_time": f"2026-11-17T17:57:{second + 2:02d}.000000Z",
        "status": {"status_code": "UNSET"},
        "attributes": attributes,
        "events": [],
        "links": [],
        "resource": {"attributes": {"service.name": "shop"}, "schema_url": ""},
    }


def loaded(folder: Path, *values: Any, indent: int | None = None) -> list[Episode]:
    path = folder / "spans.jsonl"
    path.write_text("\n".join(json.dumps(one, indent=indent) for one in values))
    return load_spans(path)


def chat(**more: Any) -> Attributes:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "big",
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 6,
        **more,
    }


def agent(name: str) -> Attributes:
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}


NEW = {
    "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
    "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": ASK}]}],
    "gen_ai.output.messages": [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": TOLD},
            ],
            "finish_reason": "stop",
        }
    ],
}
PROMPT = (ChatMessage("system", "Be brief."), ChatMessage("user", ASK))


def test_the_current_conventions_structured_and_as_json_in_a_string(tmp_path: Path) -> None:
    more = {
        "gen_ai.response.model": "big-0613",
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.cache_read.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    text = {key: json.dumps(value) for key, value in NEW.items()}
    for shape in (NEW, text):
        spans = (
            otlp_span("root", "", agent("helper")),
            otlp_span("step", "root", {"name": "no agent here"}),
            otlp_span("call", "step", chat(**more, **shape), (0.25, 2.75)),
        )
        (episode,) = loaded(tmp_path, otlp(*spans))
        (call,) = episode.calls
        assert (call.agent, call.model, call.served) == ("helper", "big", "big-0613")
        assert (call.messages, call.text, call.stop) == (PROMPT, TOLD, Stop.LENGTH)
        assert call.usage == Usage(prompt=40, generated=6, cached=10, reasoning=2)
        assert call.seconds == episode.seconds == pytest.approx(2.5, abs=1e-5)
        assert (episode.task_id, episode.answer) == ("t1", TOLD)


def test_the_event_that_holds_the_details(tmp_path: Path) -> None:
    events = [("gen_ai.client.inference.operation.details", NEW)]
    (episode,) = loaded(tmp_path, otlp(otlp_span("call", "", chat(), events=events)))
    assert (episode.calls[0].messages, episode.calls[0].text) == (PROMPT, TOLD)
    assert episode.calls[0].agent == "shop", "the service, where no span names an agent"


def test_tools_are_called_and_answer(tmp_path: Path) -> None:
    asked = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"for": "legs"}}
    answer = {"type": "tool_call_response", "id": "c1", "response": {"legs": 8}}
    first = {
        "gen_ai.input.messages": NEW["gen_ai.input.messages"],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [asked]}],
    }
    second = {
        "gen_ai.input.messages": [
            *NEW["gen_ai.input.messages"],
            {"role": "assistant", "parts": [asked]},
            {"role": "tool", "parts": [answer]},
        ],
        "gen_ai.output.messages": NEW["gen_ai.output.messages"],
    }
    spans = (
        otlp_span("one", "", chat(**first), (0, 1)),
        otlp_span("tool", "", {"gen_ai.operation.name": "execute_tool"}, (1, 2)),
        otlp_span("two", "", chat(**second), (2, 3)),
    )
    (episode,) = loaded(tmp_path, otlp(*spans))
    look = ToolCall("look", '{"for": "legs"}', "c1")
    assert episode.calls[0].tool_calls == (look,)
    assert episode.calls[1].messages[1:] == (
        ChatMessage("assistant", "", (look,)),
        ChatMessage("tool", '{"legs": 8}'),
    )
    (row,) = audit_traffic([episode]).prompts
    assert {part.name for part in row.parts} == {"question", "own", "observations"}


def test_the_events_of_older_conventions(tmp_path: Path) -> None:
    message = json.dumps({"role": "assistant", "content": TOLD})
    events: list[tuple[str, Attributes]] = [
        ("gen_ai.system.message", {"content": "Be brief."}),
        ("gen_ai.user.message", {"gen_ai.event.content": json.dumps({"content": ASK})}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": message}),
    ]
    (episode,) = loaded(tmp_path, otlp(otlp_span("call", "", chat(), events=events)))
    assert (episode.calls[0].messages, episode.calls[0].text) == (PROMPT, TOLD)


def test_openllmetry(tmp_path: Path) -> None:
    told = {
        "llm.request.type": "chat",
        "gen_ai.request.model": "big",
        "gen_ai.usage.prompt_tokens": 40,
        "gen_ai.usage.completion_tokens": 6,
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": ASK,
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": TOLD,
        "gen_ai.completion.0.tool_calls.0.name": "look",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"for": "legs"}',
    }
    above = {"traceloop.span.kind": "agent", "traceloop.entity.name": "helper"}
    node = {"traceloop.association.properties.langgraph_checkpoint_ns": "writer:1f"}
    spans = [otlp_span("root", "", above), otlp_span("call", "root", told)]
    spans.append(otlp_span("next", "root", told | node, (1, 2)))
    (episode,) = loaded(tmp_path, otlp(*spans))
    call, then = episode.calls
    assert then.agent == "writer", "a node of LangGraph is nearer than the graph"
    assert (call.agent, call.messages, call.text) == ("helper", PROMPT, TOLD)
    assert call.tool_calls == (ToolCall("look", '{"for": "legs"}'),)
    assert call.usage == Usage(prompt=40, generated=6)


def test_openinference_with_a_node_of_langgraph(tmp_path: Path) -> None:
    said = "llm.output_messages.0.message"
    told = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "big",
        "llm.token_count.prompt": 40,
        "llm.token_count.completion": 6,
        "llm.token_count.prompt_details.cache_read": 10,
        "llm.token_count.completion_details.reasoning": 2,
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "Be brief.",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": ASK,
        f"{said}.role": "assistant",
        f"{said}.content": TOLD,
        f"{said}.tool_calls.0.tool_call.function.name": "look",
        f"{said}.tool_calls.0.tool_call.function.arguments": "{}",
    }
    node = json.dumps({"langgraph_node": "agent", "langgraph_checkpoint_ns": "planner:1f|agent:7"})
    above = {"openinference.span.kind": "CHAIN", "metadata": node}
    spans = otlp_span("node", "", above), otlp_span("call", "node", told)
    (episode,) = loaded(tmp_path, otlp(*spans))
    (call,) = episode.calls
    assert (call.agent, call.messages, call.text) == ("planner", PROMPT, TOLD)
    assert call.tool_calls == (ToolCall("look", "{}"),)
    assert call.usage == Usage(prompt=40, generated=6, cached=10, reasoning=2)


@pytest.mark.parametrize("layout", ["list", "lines", "indented"])
def test_spans_as_the_python_sdk_prints_them(tmp_path: Path, layout: str) -> None:
    spans = [printed("0x2", "0x1", chat(), 3), printed("0x1", None, agent("helper"), 0)]
    values = [spans] if layout == "list" else spans
    (episode,) = loaded(tmp_path, *values, indent=4 if layout == "indented" else None)
    (call,) = episode.calls
    assert (call.agent, call.seconds, episode.task_id) == ("helper", 1.5, "0xabc")


def test_a_conversation_spans_traces_and_traces_are_apart(tmp_path: Path) -> None:
    talk = {"gen_ai.conversation.id": "c9"}
    lines = [
        otlp(otlp_span("a", "", chat(**talk), (4, 5), "t2")),
        otlp(otlp_span("b", "", chat(**talk), (0, 1), "t1")),
        otlp(otlp_span("c", "", chat(), (2, 3), "t3")),
    ]
    first, second = loaded(tmp_path, *lines)
    assert (first.task_id, len(first.calls), first.seconds) == ("c9", 2, 5.0)
    assert (second.task_id, len(second.calls)) == ("t3", 1)


def test_no_token_is_counted_twice(tmp_path: Path) -> None:
    """Two instrumentations of one call, and agents that sum up what is inside them."""
    spans = (
        otlp_span("team", "", {**agent("team"), **chat(), "gen_ai.operation.name": "invoke_agent"}),
        otlp_span("outer", "team", chat()),
        otlp_span("inner", "outer", chat()),
        otlp_span("tool", "inner", {"gen_ai.operation.name": "execute_tool"}),
        otlp_span("other", "tool", chat()),
        otlp_span("embed", "team", {**chat(), "gen_ai.operation.name": "embeddings"}),
    )
    (episode,) = loaded(tmp_path, otlp(*spans))
    assert episode.usage == Usage(prompt=80, generated=12), "inner, and other in a tool of it"
    (alone,) = loaded(tmp_path, otlp(spans[0]))
    assert alone.usage == Usage(prompt=40, generated=6), "no single call was recorded"


def test_cached_tokens_that_were_left_out_of_the_prompt_are_added(tmp_path: Path) -> None:
    told = chat(**{"gen_ai.usage.cache_read_input_tokens": 100})
    (episode,) = loaded(tmp_path, otlp(otlp_span("call", "", told)))
    assert episode.usage == Usage(prompt=140, generated=6, cached=100)


def test_without_content_tokens_and_time_still_count(tmp_path: Path) -> None:
    """b begins after a, c beside b: the chain is a and the longer of both."""
    spans = (
        otlp_span("a", "", chat(**{"gen_ai.agent.name": "a"}), (0, 2)),
        otlp_span("b", "", chat(**{"gen_ai.agent.name": "b"}), (2, 6)),
        otlp_span("c", "", chat(**{"gen_ai.agent.name": "c"}), (3, 5)),
    )
    found = audit_traffic(loaded(tmp_path, otlp(*spans)))
    assert (found.team.total.prompt, found.team.total.generated) == (120, 18)
    assert "3 of 3 calls have no text: they count for tokens and time only." in found.notes
    assert found.path
    assert (found.path.path, found.path.total, found.path.wall) == (6.0, 8.0, 6.0)


def test_who_read_whom_is_found_in_spans(tmp_path: Path) -> None:
    second = [{"role": "user", "parts": [{"type": "text", "content": f"{ASK}\n\nNote: {TOLD}"}]}]
    spans = (
        otlp_span("one", "", agent("ann"), (0, 9)),
        otlp_span("two", "", agent("bob"), (0, 9)),
        otlp_span("x", "one", chat(**NEW), (0, 1)),
        otlp_span("y", "two", chat(**{**NEW, "gen_ai.input.messages": second}), (1, 2)),
    )
    (edge,) = audit_traffic(loaded(tmp_path, otlp(*spans))).edges
    assert (edge.sender, edge.reader, edge.messages) == ("ann", "bob", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"resourceSpans": []}\n{"resourceSpans": [}', "line 2, column 20: not JSON"),
        ('\n\n{"traceId": "a"}', "line 3: a span needs its ids, its start and its end (KeyError"),
        ('{"a": 1}', "line 1: neither a span nor an object with `resourceSpans`"),
        ('[1]', "line 1: neither a span"),
        ("", "no model call among its 0 spans"),
        ("[" * 100_000, "line 1: "),
        (json.dumps(otlp(otlp_span("x", "", {"gen_ai.operation.name": "embeddings"}))), "no model"),
        (json.dumps(otlp(otlp_span("x", "", chat(**{"gen_ai.usage.input_tokens": -5})))), "-5"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_one_sentence_with_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        load_spans(path)
    message = str(caught.value)
    assert said in message
    assert "broken.json" in message or "span x of trace t1" in message
    assert "\n" not in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load_spans(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(DataError, match="not UTF-8 text"):
        load_spans(tmp_path / "bytes.json")


def test_spans_that_are_their_own_parents_end(tmp_path: Path) -> None:
    spans = otlp_span("a", "b", chat()), otlp_span("b", "a", {})
    (episode,) = loaded(tmp_path, otlp(*spans))
    assert len(episode.calls) == 1


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("[{\"role: x}]\ud800", max_size=12),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["role", "content", "parts", "type", "text", "message",
                                       "tool_calls", "function", "arguments", "0"]), inner),
    max_leaves=8,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([*NEW, "gen_ai.agent.name", "metadata", "gen_ai.prompt.0",
    "gen_ai.prompt.0.content", "gen_ai.completion.0.tool_calls.0.name", "llm.input_messages.x",
    "gen_ai.usage.output_tokens", "gen_ai.conversation.id"]), JUNK), JUNK)  # fmt: skip
def test_no_content_however_odd_breaks_the_reader(
    tmp_path: Path, attributes: Attributes, event: Any
) -> None:
    span = printed("0x2", None, chat() | attributes, 3)
    for name in ("gen_ai.choice", "gen_ai.user.message", "gen_ai.content.prompt"):
        span["events"].append({"name": name, "attributes": {"content": event, "message": event}})
    try:
        (episode,) = loaded(tmp_path, span)
    except DataError:
        return
    audit_traffic([episode])
    episode.calls[0].text.encode()
