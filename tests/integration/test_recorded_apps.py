"""Apps of five frameworks, recorded by their base URL: unchanged, and who said what beside it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tacit.external.calls import read_calls
from tacit.external.reading import read_recording
from tests.helpers.commands import environment
from tests.helpers.model_server import ModelServer, model_server
from tests.helpers.serving import log_of, served

ROOT = Path(__file__).parents[2]
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TESTING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "OPENAI_API_KEY": "sk-a-secret-of-the-apps-0123",
}
QUESTIONS = ("What is 17 + 25?", "What is 3 + 4?")


@dataclass(frozen=True)
class App:
    package: str
    agents: tuple[str, ...]
    """Of an episode's calls."""
    tools: tuple[str, ...]
    says: str
    """What the answer to the first question holds."""
    streams: int
    """Calls of an episode that are streamed."""
    why: str = "extra `integration` is not installed"


APPS = {
    "langgraph_app": App("langgraph", ("solver", "solver", "writer"), ("add",), "Remark", 1),
    "agents_sdk_app": App(
        "agents", ("triage agent", "solver", "solver"), ("transfer_to_solver", "add"), "42", 3
    ),
    "ag2_app": App("ag2", ("lead", "solver", "solver", "lead"), ("ask_solver", "add"), "42", 0),
    "pydantic_ai_app": App(
        "pydantic_ai", ("lead", "solver", "solver", "lead"), ("ask_solver", "add"), "42", 2
    ),
    "crewai_app": App(
        "crewai", ("Solver", "Solver", "Writer"), ("add",), "Remark", 0,
        "CrewAI wants an older openai: pip install 'tacit[serve,crewai]' in an environment apart",
    ),
}  # fmt: skip


@pytest.fixture(params=APPS)
def app(request: pytest.FixtureRequest) -> str:
    known = APPS[request.param]
    if find_spec(known.package) is None:
        pytest.skip(known.why)
    return str(request.param)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


def run(app: str, *arguments: str) -> Any:
    command = [sys.executable, "-m", "tests.integration.run_app", app, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=environment(**QUIET)
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_app_is_recorded_as_it_was(app: str, server: ModelServer, tmp_path: Path) -> None:
    known = APPS[app]
    direct = [run(app, server.url, question) for question in QUESTIONS]
    assert known.says in direct[0]["answer"]
    sent, replied, shown = [*server.asked], [*server.replies], [*server.headers]
    server.forget()
    with served(tmp_path, "--to", server.url, "--out", "kept", verb="record", warm=False) as (
        base,
        process,
    ):
        names = [base.replace("/v1", "/first/v1"), base]
        passed = [run(app, *pair) for pair in zip(names, QUESTIONS, strict=True)]
        log = log_of(process)
    assert passed == direct
    assert server.asked == sent, "what the server was asked, to the byte"
    assert server.replies == replied
    named = ("authorization", "content-type", "user-agent")
    ours, theirs = ([[h.get(n) for n in named] for h in one] for one in (server.headers, shown))
    assert ours == theirs
    recording = read_recording(tmp_path / "kept")
    assert [episode.task_id for episode in recording.episodes] == ["first", "episode 1"]
    assert (recording.failed, recording.apart) == (0, 0)
    for episode, answer in zip(recording.episodes, direct, strict=True):
        assert tuple(call.agent for call in episode.calls) == known.agents
        tools = {call.name for one in episode.calls for call in one.tool_calls}
        assert tools == {*known.tools}
        assert episode.answer == answer["answer"]
        assert episode.usage.prompt > 0
    records = [*read_calls(tmp_path / "kept")]
    assert sum(record.streamed for record in records) == 2 * known.streams
    everything = (tmp_path / "kept" / "calls.jsonl").read_text(encoding="utf-8") + log
    assert QUIET["OPENAI_API_KEY"] not in everything


def test_an_app_is_replayed_at_no_cost(app: str, server: ModelServer, tmp_path: Path) -> None:
    """And without its solver's result, which is the message that the others build on."""
    with served(tmp_path, "--to", server.url, "--out", "kept", verb="record", warm=False) as (
        base,
        process,
    ):
        answer = run(app, base.replace("/v1", "/first/v1"), QUESTIONS[0])["answer"]
        log_of(process)
    server.forget()
    where = ("--replay", str(tmp_path / "kept"), QUESTIONS[0], "first")
    same = run(app, *where)
    calls = len(APPS[app].agents)
    assert (same["answer"], same["error"]) == (answer, None)
    assert same["sources"] == ["recorded"] * calls and server.asked == []
    solved = max(n for n, name in enumerate(APPS[app].agents) if re.match("(?i)solver", name))
    changed = run(app, *where, str(solved), "I have no idea.")
    assert changed["error"] is None
    assert changed["sources"][: solved + 1] == ["recorded"] * solved + ["changed"]
    after = changed["sources"][solved + 1 :]
    assert after == ["real"] * (calls - solved - 1) and len(server.asked) == len(after)
    if after:
        assert "I have no idea." in changed["heard"][solved + 1]
    else:
        assert changed["answer"] == "I have no idea."
