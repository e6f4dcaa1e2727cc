"""Recordings as episodes: who is one agent, what is one episode, and what is said when unsure."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.economy.ledger import ledger
from tacit.errors import ConfigError
from tacit.external.calls import Record, line_of
from tacit.external.reading import Recording, name_in, read_recording, recorded_episodes
from tacit.external.wire_formats import assembled, messages_of, said_of
from tacit.types import ChatMessage, Stop, ToolCall, Usage


def record(
    start: float,
    seconds: float = 1.0,
    *,
    system: str = "",
    said: Any = "yes",
    model: str = "small",
    path: str = "chat/completions",
    request: Any = None,
    response: Any = None,
    status: int = 200,
    episode: str | None = None,
    role: str | None = None,
    key: str | None = "key 1",
    generated: int = 5,
) -> Record:
    told = [{"role": "system", "content": system}] if system else []
    asked = {"model": model, "messages": [*told, {"role": "user", "content": "Well?"}]}
    usage = {"prompt_tokens": 10, "completion_tokens": generated}
    choice = {"index": 0, "message": {"content": said}, "finish_reason": "stop"}
    answer = {"model": f"{model}-1", "choices": [choice], "usage": usage}
    return Record(
        start=start, end=start + seconds, method="POST", path=path, status=status, episode=episode,
        role=role, key=key, streamed=False, request=request or asked, error=None,
        response=response or answer,
    )  # fmt: skip


def read(folder: Path, records: Sequence[Record], pause: float = 30.0) -> Recording:
    about = json.dumps({"to": "http://x/v1", "pause": pause})
    (folder / "recording.json").write_text(about, encoding="utf-8")
    lines = b"".join(line_of(one) + b"\n" for one in records)
    (folder / "calls.jsonl").write_bytes(lines)
    return read_recording(folder)


def agents(recording: Recording) -> list[str]:
    return [call.agent for episode in recording.episodes for call in episode.calls]


def test_an_agent_is_its_model_and_system_prompt(tmp_path: Path) -> None:
    plan, check = "You are the Planner of a team. Plan.", "You are a careful checker, always."
    records = [
        record(0, system=plan),
        record(1, system=check),
        record(2, system=plan),
        record(3),
        record(4, model="large"),
        record(5, system=plan, model="large"),
        record(6, role="Judge", system=plan),
    ]
    found = agents(read(tmp_path, records))
    planner = "Planner of a team"
    assert found == [planner, "careful checker", planner, "small", "large", f"{planner} 2", "Judge"]


def test_names_do_not_depend_on_the_order_in_which_calls_ended(tmp_path: Path) -> None:
    records = [
        record(0, 9.0, system="Ann. one", episode="x"),
        record(1, system="Ann. two", episode="x"),
    ]
    assert (
        agents(read(tmp_path, records)) == agents(read(tmp_path, records[::-1])) == ["Ann", "Ann 2"]
    )


def test_several_keys_are_several_agents(tmp_path: Path) -> None:
    records = [record(0, system="One."), record(1, key="key 2"), record(2, system="Two.")]
    assert agents(read(tmp_path, records)) == ["key 1", "key 2", "key 1"]
    later = [record(0, system="One."), record(1, system="One.", key="key 1 of start 2")]
    assert agents(read(tmp_path, later)) == ["One", "One"], "which may be the same key"


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("You are Senior Researcher. You're an expert", "Senior Researcher"),
        ("You're the critic", "critic"),
        ("# Role: Editor\n\nDo this", "Editor"),
        ("Answer in one word", "Answer in one word"),
        ("You are an agent of the people who", "agent of the people"),
        ("You are a", ""),
        ("You are Agent A. Plan.", "Agent A"),
        ("   ", ""),
    ],
)
def test_a_name_is_made_of_the_first_words(system: str, name: str) -> None:
    assert name_in(system) == name


def test_episodes_are_told_apart_by_name_or_by_pauses(tmp_path: Path) -> None:
    records = [
        record(0, said="a"),
        record(20, said="b"),
        record(100, said="c"),
        record(21, said="d", episode="named"),
        record(22, said="e", episode="named"),  # it overlaps with the last, which is fine here
    ]
    recording = read(tmp_path, records)
    said = {one.task_id: [call.text for call in one.calls] for one in recording.episodes}
    assert said == {"episode 1": ["a", "b"], "named": ["d", "e"], "episode 2": ["c"]}
    assert [one.answer for one in recording.episodes] == ["b", "e", "c"]
    assert not recording.notes and recording.apart == 0
    assert len(recorded_episodes(tmp_path, pause=10)) == 4
    assert len(recorded_episodes(tmp_path, pause=1000)) == 2


def test_calls_that_overlap_without_a_name_are_left_out_and_told_of(tmp_path: Path) -> None:
    recording = read(tmp_path, [record(0, 5.0), record(3, 5.0), record(100)])
    assert [one.task_id for one in recording.episodes] == ["episode 1"]
    assert recording.apart == 2
    (note,) = recording.notes
    assert note.startswith("2 calls named no episode, and some of them overlap")
    assert "/RUN/v1" in note and "x-tacit-episode: RUN" in note and "tacit/RUN:KEY" in note


def test_who_waits_for_a_call_that_fails_is_not_quiet(tmp_path: Path) -> None:
    slow = record(2, 60.0, status=504, response={"error": {"message": "late"}})
    (episode,) = read(tmp_path, [record(0), slow, record(63)]).episodes
    assert len(episode.calls) == 2


def test_paths_at_which_no_agent_is_heard_are_named(tmp_path: Path) -> None:
    recording = read(tmp_path, [record(0, path="messages"), record(2, path="messages")])
    (note,) = recording.notes
    assert recording.others == 2 and note.startswith("no agent was heard")
    assert note.endswith("not from `messages`") and "chat/completions" in note


def test_failed_calls_and_other_requests_are_counted_and_left_out(tmp_path: Path) -> None:
    embeds = record(2, path="embeddings", request={"model": "e", "input": "a"})
    refused = record(1, status=429, response={"error": {"message": "slow down"}})
    recording = read(tmp_path, [record(0), refused, embeds])
    assert (recording.failed, recording.others, len(agents(recording))) == (1, 1, 1)
    assert recording.notes == ("1 call failed and is left out",)


def test_prompts_that_change_from_call_to_call_are_told_of(tmp_path: Path) -> None:
    records = [record(n, system=f"Task {n}: solve it") for n in range(12)]
    (note,) = read(tmp_path, records).notes
    assert "12 agents made 12 calls" in note and "x-tacit-role" in note


def test_usage_time_and_chains(tmp_path: Path) -> None:
    """Two calls side by side, then one that could know both."""
    records = [
        record(0, 2.0, generated=7, episode="x"),
        record(1, 3.0, generated=5, episode="x"),
        record(4, 1.0, generated=2, episode="x"),
    ]
    (episode,) = read(tmp_path, records).episodes
    assert [call.path_tokens for call in episode.calls] == [7, 5, 9]
    assert episode.seconds == pytest.approx(4.0)
    assert episode.usage == Usage(prompt=30, generated=14)
    (row,) = ledger([episode])
    assert (row.calls, row.turns, row.choices) == (3, 3, 0)


def test_a_stream_without_usage_is_told_of(tmp_path: Path) -> None:
    response = {"choices": [{"message": {"content": "yes"}}], "usage": None}
    (note,) = read(tmp_path, [record(0, response=response)]).notes
    assert note.startswith("1 call told no usage") and "include_usage" in note


def test_an_empty_answer_is_silence_but_a_tool_call_is_not(tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "look", "arguments": "{}"}}
    tools = {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}
    (episode,) = read(tmp_path, [record(0, said=""), record(1, response=tools)]).episodes
    silent, calls = episode.calls
    assert silent.silent and not silent.is_turn
    assert not calls.silent and calls.tool_calls == (ToolCall("look", "{}", "c"),)


def test_a_chat_prompt_is_read_with_tools_and_placeholders_for_images() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    image = {"type": "image_url", "image_url": {"url": "data:…"}}
    request = {
        "messages": [
            {"role": "developer", "content": "Be terse."},
            {"role": "user", "content": [{"type": "text", "text": "And this?"}, image]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]
    }
    add = ToolCall("add", '{"a": 1}', "c1")
    assert messages_of("chat/completions", request) == (
        ChatMessage("system", "Be terse."),
        ChatMessage("user", "And this?\n[image]"),
        ChatMessage("assistant", "", (add,)),
        ChatMessage("tool", "2", (add,)),
    )


def test_a_response_is_read_with_its_items_and_usage() -> None:
    request = {
        "instructions": "Be terse.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "And this?"},
                                         {"type": "input_image", "image_url": "data:…"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
    }  # fmt: skip
    add = ToolCall("add", "{}", "c1")
    assert messages_of("responses", request) == (
        ChatMessage("system", "Be terse."),
        ChatMessage("user", "And this?\n[image]"),
        ChatMessage("assistant", "", (add,)),
        ChatMessage("tool", "2", (add,)),
    )
    response = {
        "status": "incomplete",
        "model": "small-1",
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": "Two"}]},
            {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
        ],
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 6,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 15,
        },
    }
    said = said_of("responses", response)
    assert (said.text, said.stop) == ("Two", Stop.LENGTH)
    assert said.tool_calls == (ToolCall("add", "{}", "c2"),)
    assert said.usage == Usage(prompt=9, generated=6, cached=4, reasoning=3)


def test_what_the_server_remembered_is_part_of_the_prompt(tmp_path: Path) -> None:
    def response(number: int, asked: str, **more: Any) -> Record:
        request = {"model": "m", "instructions": f"Told {number}.", "input": asked, **more}
        part = {"type": "output_text", "text": f"said {number}"}
        output = [{"type": "message", "content": [part]}]
        said = {"id": f"resp_{number}", "output": output, "usage": {"input_tokens": 1}}
        return record(
            number, path="responses", request=request, response=said, episode="x", role="a"
        )

    records = [response(1, "one"), response(2, "two", previous_response_id="resp_1")]
    (episode,) = read(tmp_path, records).episodes
    said = [(message.role, message.content) for message in episode.calls[1].messages]
    assert said == [
        ("user", "one"), ("assistant", "said 1"), ("system", "Told 2."), ("user", "two"),
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
@pytest.mark.parametrize(
    "odd",
    [{}, {"choices": [3]}, {"choices": "x", "output": 3}, {"choices": [{"message": 3}]},
     {"usage": {"prompt_tokens": "many"}}, {"usage": 3}, {"output": [{"type": "message"}]},
     {"usage": {"prompt_tokens": float("inf"), "completion_tokens": 1}},
     {"choices": [{"message": {"tool_calls": [{"function": 3}]}}]},
     {"choices": [{"index": [0], "delta": {"tool_calls": [{"function": 3}]}}, {"index": "a"}]}],
)  # fmt: skip
def test_a_reply_that_makes_no_sense_is_read_as_far_as_it_does(path: str, odd: Any) -> None:
    assert said_of(path, odd).text == "" and said_of(path, odd).usage is None
    assert isinstance(messages_of(path, odd | {"messages": [3], "input": [3]}), tuple)
    stream = b"data: " + json.dumps(odd).encode() + b"\n\ndata: [DO"
    assert assembled(path, stream)[1] is False


def test_a_stream_is_read_whose_arguments_are_objects_and_whose_end_is_not_marked() -> None:
    """As some servers send it."""
    function = {"name": "add", "arguments": {"a": 17}}
    deltas = [{"content": "So"}, {"tool_calls": [{"function": function}]}]
    events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    half, ended = assembled("chat/completions", b"".join(lines))
    assert half and not ended
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    lines.append(b"data: " + json.dumps(last).encode() + b"\n\n")
    whole, ended = assembled("chat/completions", b"".join(lines))
    assert whole and ended
    said = said_of("chat/completions", whole)
    assert (said.text, said.tool_calls) == ("So", (ToolCall("add", '{"a": 17}', "call00001"),))


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    read(tmp_path, [record(0)])
    with (tmp_path / "calls.jsonl").open("ab") as file:
        file.write(b'{"other": 1}\n')
    with pytest.raises(ConfigError, match=r"calls.jsonl line 2 is no call"):
        read_recording(tmp_path)
    read(tmp_path, [record(0)])
    (tmp_path / "outcomes.jsonl").write_bytes(b'{"episode": "a"}\n')
    with pytest.raises(ConfigError, match=r"outcomes.jsonl line 1 is no outcome"):
        read_recording(tmp_path)


@pytest.mark.parametrize(
    ("path", "status", "broke", "wrong"),
    [
        ("chat/completions", 200, {"broke": True}, True),
        ("chat/completions", 502, {"broke": True}, False),
        ("embeddings", 502, {"broke": True}, False),
        ("chat/completions", 200, {}, False),
    ],
    ids=["by itself", "the server failed", "another call failed", "from before this was kept"],
)
def test_an_app_that_broke_was_wrong_unless_a_call_of_it_failed(
    path: str, status: int, broke: dict[str, bool], wrong: bool, tmp_path: Path
) -> None:
    line = {"episode": "a", "task": "a", "answer": "", "grade": None, "error": "boom", **broke}
    (tmp_path / "outcomes.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    recording = read(tmp_path, [record(0, path=path, status=status, episode="a")])
    (episode,) = recording.episodes
    assert (episode.grade is not None, recording.done) == (wrong, {"a"} if wrong else set())
