"""API models call tools through `tools` and `tool_calls`, against a real server on the loopback."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.api.api_engine import ApiEngine
from tacit.config import ModelConfig, TeamConfig
from tacit.engine.base import Account
from tacit.team.roster import build_roster
from tacit.types import Episode, ToolCall
from tests.helpers.loopback import Answer, Sent, Server, completion
from tests.helpers.scripted_teams import play

HERE = "tests.helpers.outside_tools"


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Sent], Answer]], Server]]:
    servers: list[Server] = []

    def start(by: Callable[[Sent], Answer]) -> Server:
        servers.append(Server(by))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


async def played(server: Server, cache: Path | None = None, **settings: Any) -> Episode:
    model = ModelConfig(
        engine="api", model="m", base_url=server.url, api_key_env="HOME", retries=0, timeout=10
    )
    engine = ApiEngine(model, Account(cache=cache))
    agent = {"tools": [f"{HERE}:add"], **settings}
    config = TeamConfig.model_validate({"topology": "solo", "agents": {"actor": agent}})
    try:
        return await play(build_roster(config, {"actor": engine}))
    finally:
        await engine.close()


def called(*calls: tuple[Any, str, Any], prompt: int = 20) -> Answer:
    """A completion that calls tools, each given by its id, name and arguments."""
    listed = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": listed}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7}
    return completion(choices=[choice], usage=usage)


def answered(prompt: int = 45) -> Answer:
    usage = {"prompt_tokens": prompt, "completion_tokens": 3, "total_tokens": prompt + 3}
    return completion(r"\boxed{42}", usage=usage)


def first_then_answer(first: Answer) -> Callable[[Sent], Answer]:
    return lambda sent: answered() if sent["messages"][-1]["role"] == "tool" else first


async def test_a_call_its_result_and_the_answer(serve: Callable[..., Server]) -> None:
    server = serve(first_then_answer(called(("abc", "add", '{"a": 17, "b": 25}'))))
    episode = await played(server)
    one, two = server.asked
    (tool,) = one["tools"]
    assert tool["type"] == "function" and tool["function"]["name"] == "add"
    assert tool["function"]["parameters"]["required"] == ["a"] and "tool_choice" not in one
    assert two["messages"][:-2] == one["messages"] and two["tools"] == one["tools"]
    function = {"name": "add", "arguments": '{"a": 17, "b": 25}'}
    assert two["messages"][-2:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "abc", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "abc"},
    ]
    first, last = episode.calls
    assert first.tool_calls == (ToolCall("add", '{"a": 17, "b": 25}', "abc"),)
    assert first.text == "" and episode.answer == r"\boxed{42}"
    assert last.usage.observed == 45 - 20 - 7 and first.usage.observed == 0


@pytest.mark.parametrize(
    ("name", "arguments", "said", "sent_name"),
    [
        ("add", '{"a": 1', "Error: the arguments are not JSON", "add"),
        ("add", "[1]", "Error: the arguments must be a JSON object", "add"),
        ("add up!", "{}", "Error: there is no tool `add up!`", "add_up_"),
        ("add", {"a": 1}, "2", "add"),
        ("add", None, "Error: a: Field required", "add"),
        ("add", "", "Error: a: Field required", "add"),
    ],
)
async def test_malformed_calls_go_back_as_something_that_servers_take(
    serve: Callable[..., Server], name: str, arguments: Any, said: str, sent_name: str
) -> None:
    server = serve(first_then_answer(called((None, name, arguments))))
    episode = await played(server)
    assert episode.grade and episode.grade.right
    call, result = server.asked[1]["messages"][-2:]
    (function,) = [one["function"] for one in call["tool_calls"]]
    assert function["name"] == sent_name and isinstance(json.loads(function["arguments"]), dict)
    assert arguments or json.loads(function["arguments"]) == {}, "as the tool was given them"
    assert result["content"].startswith(said)
    assert result["tool_call_id"] == call["tool_calls"][0]["id"] == "call00001"
    assert episode.calls[0].tool_calls[0].name == name


async def test_code_with_line_breaks_goes_back_as_the_object_that_the_tool_was_given(
    serve: Callable[..., Server],
) -> None:
    """Models write line breaks as they stand inside quotes, and such a call is run."""
    server = serve(first_then_answer(called((None, "add", '{"a": 1, "code": "x = 1\ny"}'))))
    await played(server)
    call, result = server.asked[1]["messages"][-2:]
    (function,) = [one["function"] for one in call["tool_calls"]]
    assert json.loads(function["arguments"]) == {"a": 1, "code": "x = 1\ny"}
    assert "not JSON" not in result["content"]


async def test_arguments_go_back_to_the_letter(serve: Callable[..., Server]) -> None:
    """Else a server would not find the prompt in its cache."""
    server = serve(first_then_answer(called((None, "add", '{"a":17, "b" : 25}'))))
    await played(server)
    (one,) = server.asked[1]["messages"][-2]["tool_calls"]
    assert one["function"]["arguments"] == '{"a":17, "b" : 25}'


async def test_a_model_that_only_calls_is_told_to_answer(serve: Callable[..., Server]) -> None:
    server = serve(lambda sent: called(("x", "add", '{"a": 1}')))
    episode = await played(server, max_tool_calls=2)
    assert len(server.asked) == 3
    assert [sent.get("tool_choice") for sent in server.asked] == [None, None, "none"]
    assert episode.answer == "" and episode.grade and not episode.grade.right
    assert [len(call.tool_calls) for call in episode.calls] == [1, 1, 0]


async def test_calls_are_cached_with_their_results(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(first_then_answer(called(("abc", "add", '{"a": 17, "b": 25}'))))
    first = await played(server, tmp_path)
    again = await played(server, tmp_path)
    assert len(server.asked) == 2 and all(call.reused for call in again.calls)
    assert [c.tool_calls for c in again.calls] == [c.tool_calls for c in first.calls]
    assert again.usage == first.usage


async def test_calls_of_a_model_that_was_offered_no_tools_are_nothing(
    serve: Callable[..., Server],
) -> None:
    server = serve(lambda sent: called(("abc", "add", "{}")))
    episode = await played(server, tools=[])
    assert "tools" not in server.asked[0] and len(episode.calls) == 1
    assert episode.calls[0].tool_calls == ()
