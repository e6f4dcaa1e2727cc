"""A served team calls its tools inside; clients see the answer only."""

import json
from typing import Any

import pytest

from tacit.config.file import parse_config
from tacit.engine.base import Request
from tacit.engine.scripted import ScriptedEngine
from tacit.serve.team_backend import TeamBackend
from tacit.team.roster import build_roster
from tacit.types import ToolCall
from tests.helpers.scripted_teams import scripted
from tests.helpers.serving import ASKED, running

ANSWER = r"It is \boxed{42}."


def answer(request: Request) -> Any:
    if request.messages[-1].role == "tool":
        return ANSWER
    return ToolCall("add", '{"a": 17, "b": 25}')


def team() -> TeamBackend:
    tools = {"actor": {"tools": ["tests.helpers.outside_tools:add"]}}
    return TeamBackend("team", scripted("solo", {"actor": answer}, **tools), "Box it.")


def test_clients_see_the_answer_and_the_account_what_was_called() -> None:
    with running(team()) as server:
        reply = server.post(ASKED | {"tacit": True}).json()
        counted = server.service.metrics.text().decode()
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == ANSWER and choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]
    first, last = reply["tacit"]["conversation"]
    assert first["tool_calls"] == [{"name": "add", "arguments": '{"a": 17, "b": 25}', "id": ""}]
    assert last["text"] == ANSWER and last["observed_tokens"] == 1
    (row,) = reply["tacit"]["ledger"]
    assert (row["calls"], row["turns"], row["observed_tokens"]) == (2, 1, 1)
    assert 'tacit_tokens_total{agent="actor",kind="observed",model="actor"} 1.0' in counted


def test_a_stream_holds_nothing_of_the_calls() -> None:
    with running(team()) as server:
        lines = server.post(ASKED | {"stream": True}).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])
    assert text == ANSWER and "tool_call" not in "".join(lines)


def test_a_server_of_tools_that_is_not_there_is_named_in_the_log_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = {"command": ["/nowhere/at/all"], "allow": ["read"]}
    team = {"topology": "solo", "agents": {"actor": {"tools": ["mcp/files"]}}}
    config = parse_config({"mcp": {"files": files}, "team": team}).team
    assert config is not None
    roster = build_roster(config, {"actor": ScriptedEngine([ANSWER])})
    with running(TeamBackend("team", roster, "Box it.")) as server:
        reply = server.post()
    assert reply.status_code == 502 and reply.json()["error"]["code"] == "tool_failed"
    assert "the MCP server `files`" in caplog.text and "files" not in reply.text
