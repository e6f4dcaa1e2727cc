"""Replays: what was recorded costs nothing, the changed message arrives, all else is real."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tacit.errors import ConfigError
from tacit.external.calls import CallLog, KeylessFolder, read_calls
from tacit.external.loopback_server import Loopback
from tacit.external.passing import PassThrough
from tacit.external.program import answer_of
from tacit.external.reading import recorded_episodes
from tacit.external.replay import Change, Mute, Replayed, Source, replaying
from tacit.serve.upstream import Upstream
from tacit.types import Call, Task
from tests.helpers.model_server import ModelServer, Tool, model_server

TASK = Task(id="sum", question="What is 17 + 25?", answer="42", grader="math")
HERE = __name__
FORM: dict[str, Any] = {}
"""How the programs of this file ask: set by a test."""


def ask(client: OpenAI, agent: str, *heard: str) -> str:
    """One call in the form that the test wants; an empty answer is nothing said."""
    system, user = f"You are the {agent}.", "\n".join(filter(None, heard))
    if FORM.get("responses"):
        reply: Any = client.responses.create(
            model="m", instructions=system, input=user, stream=FORM["stream"]
        )
        if FORM["stream"]:
            return "".join(e.delta for e in reply if e.type == "response.output_text.delta")
        return str(reply.output_text)
    messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    options = {"stream_options": {"include_usage": True}} if FORM["stream"] else {}
    reply = client.chat.completions.create(
        model="m", messages=messages, stream=FORM["stream"], **options
    )
    if FORM["stream"]:
        return "".join(c.choices[0].delta.content or "" for c in reply if c.choices)
    return reply.choices[0].message.content or ""


def team(base_url: str, task: Task) -> str:
    """Three agents: each hears the task and all that was said before."""
    with OpenAI(base_url=base_url, api_key="any") as client:
        plan = ask(client, "planner", task.question)
        remark = ask(client, "critic", task.question, plan)
        return ask(client, "solver", task.question, plan, remark)


def twice(base_url: str, task: Task) -> str:
    """The same question twice, word for word."""
    with OpenAI(base_url=base_url, api_key="any") as client:
        return " | ".join(ask(client, "planner", task.question) for _ in range(2))


def several(base_url: str, task: Task) -> str:
    """The better of two answers to one request."""
    with OpenAI(base_url=base_url, api_key="any") as client:
        asked: Any = [{"role": "user", "content": task.question}]
        reply = client.chat.completions.create(model="m", messages=asked, n=2)
    return f"{reply.choices[0].message.content} | {reply.choices[1].message.content}"


def failing(base_url: str, task: Task) -> str:
    with OpenAI(base_url=base_url, api_key="any") as client:
        if not ask(client, "planner", task.question):
            raise ValueError("no plan")
        return "fine"


def tooled(base_url: str, task: Task) -> str:
    """Runs the tool that the model asks for; without a call its words are the answer."""
    tool: Any = {"type": "function", "function": {"name": "add", "parameters": {}}}
    messages: Any = [{"role": "user", "content": task.question}]
    with OpenAI(base_url=base_url, api_key="any") as client:
        create = client.chat.completions.create
        said = create(model="m", messages=messages, tools=[tool]).choices[0].message
        if not said.tool_calls:
            return said.content or ""
        messages += [said.model_dump(exclude_none=True)]
        messages += [{"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "42"}]
        return create(model="m", messages=messages, tools=[tool]).choices[0].message.content or ""


COUNT = itertools.count(1)


def counting(path: str, body: Any) -> str:
    """Never the same twice."""
    return f"Remark number {next(COUNT)}."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(counting) as found:
        yield found


@pytest.fixture(
    params=[(False, False), (False, True), (True, False), (True, True)],
    ids=["chat", "chat-stream", "responses", "responses-stream"],
)
def form(request: pytest.FixtureRequest) -> None:
    FORM.update(responses=request.param[0], stream=request.param[1])


@pytest.fixture
def chat() -> None:
    FORM.update(responses=False, stream=False)


async def record(folder: Path, server: ModelServer, program: str) -> str:
    """What the program answers while it is recorded, as episode `one`."""
    run = KeylessFolder(folder)
    run.write_json("recording.json", {"to": server.url, "pause": 30.0})
    log, upstream = CallLog(run), Upstream(server.url, None, pass_keys=True)
    app = PassThrough(upstream, lambda exchange: void(log.keep(exchange)), keys=log.keys)
    loopback = Loopback(app, app)
    try:
        return await answer_of(f"{HERE}:{program}", loopback.url("one"), TASK)
    finally:
        await loopback.close()
        await upstream.close()


def void(value: object) -> None:
    """For a callback that returns nothing."""


def heard(call: Call) -> str:
    return call.messages[-1].content


async def replay(folder: Path, program: str, change: Change | Mute | None = None) -> Replayed:
    async with replaying(folder) as replays:
        return await replays.run(f"{HERE}:{program}", TASK, "one", change)


async def test_without_a_change_all_is_as_it_was_and_free(
    tmp_path: Path, server: ModelServer, form: None
) -> None:
    answer = await record(tmp_path, server, "team")
    server.forget()
    again = await replay(tmp_path, "team")
    assert (again.answer, again.error, again.changed) == (answer, None, False)
    assert server.asked == [] and again.spent.total == 0
    assert set(again.sources) == {Source.RECORDED} and all(call.reused for call in again.calls)
    (episode,) = recorded_episodes(tmp_path)
    told = [(c.agent, c.text, c.messages, c.usage) for c in episode.calls]
    assert told == [(c.agent, c.text, c.messages, c.usage) for c in again.calls]
    assert [call.agent for call in again.calls] == ["planner", "critic", "solver"]


@pytest.mark.parametrize("text", ["", "I have nothing to add."])
async def test_the_changed_message_reaches_the_next_agent(
    tmp_path: Path, server: ModelServer, form: None, text: str
) -> None:
    before = await record(tmp_path, server, "team")
    (episode,) = recorded_episodes(tmp_path)
    server.forget()
    played = await replay(tmp_path, "team", Change(1, text))
    assert played.changed and played.sources == (Source.RECORDED, Source.CHANGED, Source.REAL)
    plan, remark, solved = played.calls
    assert plan.text == episode.calls[0].text and remark.text == text
    assert remark.silent == (not text) and remark.usage.total == 0 and not remark.tool_calls
    assert episode.calls[1].text in heard(episode.calls[2])
    assert heard(solved) == "\n".join(filter(None, (TASK.question, plan.text, text)))
    assert len(server.asked) == 1 and TASK.question in server.asked[0][1].decode()
    assert played.answer == solved.text != before
    assert played.spent == solved.usage and solved.usage.generated > 0
    (kept,) = read_calls(tmp_path, "replays.jsonl")
    assert kept.episode == "one" and kept.request == server.bodies[0]


async def test_a_muted_agent_says_nothing_whatever_it_is_asked(
    tmp_path: Path, server: ModelServer, form: None
) -> None:
    await record(tmp_path, server, "team")
    server.forget()
    played = await replay(tmp_path, "team", Mute("planner"))
    assert played.sources == (Source.CHANGED, Source.REAL, Source.REAL)
    assert played.calls[0].silent and len(server.asked) == 2
    later = await replay(tmp_path, "team", Mute("critic", "Fine."))
    assert [call.text for call in later.calls][1] == "Fine." and len(server.asked) == 3


async def test_the_nth_equal_request_has_the_nth_answer(
    tmp_path: Path, server: ModelServer, chat: None
) -> None:
    first, second = (await record(tmp_path, server, "twice")).split(" | ")
    assert first != second
    played = await replay(tmp_path, "twice", Change(1, "changed"))
    assert played.answer == f"{first} | changed"


async def test_each_of_several_answers_is_replaced(
    tmp_path: Path, server: ModelServer, chat: None
) -> None:
    await record(tmp_path, server, "several")
    played = await replay(tmp_path, "several", Change(0, "changed"))
    assert (played.answer, played.error) == ("changed | changed", None)


async def test_a_tool_call_may_be_replaced_by_words(tmp_path: Path, chat: None) -> None:
    def script(path: str, body: Any) -> str | Tool:
        answered = any(message["role"] == "tool" for message in body["messages"])
        return counting(path, body) if answered else Tool("add", {"a": 17, "b": 25})

    with model_server(script) as server:
        await record(tmp_path, server, "tooled")
        (episode,) = recorded_episodes(tmp_path)
        assert [call.name for call in episode.calls[0].tool_calls] == ["add"]
        server.forget()
        same = await replay(tmp_path, "tooled")
        assert same.answer == episode.answer and server.asked == []
        played = await replay(tmp_path, "tooled", Change(0, "I do not know."))
    assert played.answer == "I do not know." and played.sources == (Source.CHANGED,)
    assert server.asked == []


async def test_an_app_that_fails_without_the_message_is_told_of(
    tmp_path: Path, server: ModelServer, chat: None
) -> None:
    await record(tmp_path, server, "failing")
    played = await replay(tmp_path, "failing", Change(0))
    assert played.answer == "" and played.error is not None and "no plan" in played.error
    assert played.server_failure is None
    assert played.changed


async def test_a_server_that_fails_is_told_from_an_app_that_does(
    tmp_path: Path, server: ModelServer, chat: None
) -> None:
    await record(tmp_path, server, "team")
    async with replaying(tmp_path, to="http://127.0.0.1:9/v1") as replays:
        played = await replays.run(f"{HERE}:team", TASK, "one", Change(0))
    assert played.error is not None and "ConnectError" in str(played.server_failure)
    assert played.sources == (Source.CHANGED,)


async def test_several_runs_at_once_do_not_meet(
    tmp_path: Path, server: ModelServer, chat: None
) -> None:
    await record(tmp_path, server, "team")
    async with replaying(tmp_path) as replays:
        runs = [
            replays.run(f"{HERE}:team", TASK, "one", Change(n % 3, f"text {n}")) for n in range(9)
        ]
        played = await asyncio.gather(*runs)
    for n, one in enumerate(played):
        assert one.calls[n % 3].text == f"text {n}" and len(one.calls) == 3
        assert one.sources.count(Source.REAL) == 2 - n % 3
    assert len([*read_calls(tmp_path, "replays.jsonl")]) == 3 * (2 + 1 + 0)


async def test_what_is_not_there_is_refused(
    tmp_path: Path, server: ModelServer, chat: None
) -> None:
    await record(tmp_path, server, "team")
    async with replaying(tmp_path) as replays:
        with pytest.raises(ConfigError, match="no episode `on` was recorded: did you mean `one`"):
            await replays.run(f"{HERE}:team", TASK, "on")
        with pytest.raises(ConfigError, match="has 3 messages, and none at 3"):
            await replays.run(f"{HERE}:team", TASK, "one", Change(3))


async def test_fields_that_do_not_reach_the_model_may_differ(
    tmp_path: Path, server: ModelServer, chat: None
) -> None:
    await record(tmp_path, server, "team")
    path = tmp_path / "calls.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["request"] |= {"metadata": {"run": 17}, "prompt_cache_key": "x"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert set((await replay(tmp_path, "team")).sources) == {Source.RECORDED}
