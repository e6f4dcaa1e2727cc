"""An app of somebody else: recorded by its URL, audited, and run again without each agent."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import tacit_
from tests.helpers.model_server import ModelServer, model_server

PROGRAM = "app:solve"
APP = '''
"""A planner that knows the sum, a cheerleader who does not, and a solver who trusts both."""

from openai import OpenAI


def solve(base_url, task):
    with OpenAI(base_url=base_url, api_key="sk-secret-of-the-app") as client:

        def ask(agent, *heard):
            messages = [
                {"role": "system", "content": f"You are the {agent}."},
                {"role": "user", "content": "\\n".join(filter(None, heard))},
            ]
            reply = client.chat.completions.create(model="m", messages=messages)
            return reply.choices[0].message.content or ""

        plan = ask("planner", task.question)
        cheer = ask("cheerleader", task.question, plan)
        return ask("solver", task.question, plan, cheer)
'''


def models(path: str, body: Any) -> str:
    system, asked = (message["content"] for message in body["messages"])
    if "planner" in system:
        return "I have worked it out, and the sum is 42."
    if "cheerleader" in system:
        return "Thank you, that is great work from all of you!"
    return r"\boxed{42}" if "the sum is 42" in asked else r"\boxed{0}"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(models) as found:
        yield found


@pytest.fixture
def recorded(tmp_path: Path, server: ModelServer) -> Path:
    rows = [{"id": f"sum/{n}", "question": f"Question {n}?", "answer": "42"} for n in range(6)]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "app.py").write_text(APP)
    done = tacit_(
        tmp_path, "record", "--to", server.url, "--out", "rec", "--port", "0", "--program", PROGRAM,
        "--tasks", "tasks.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.slow
def test_a_recording_alone_says_what_talk_costs_and_claims_no_worth(recorded: Path) -> None:
    done = tacit_(recorded, "audit", "rec")
    assert done.returncode == 0, done.stderr
    assert "needs --program and --tasks" in done.stderr
    result = json.loads((recorded / "rec" / "audit.json").read_text())
    assert "parts" not in result and result["traffic"]["episodes"] == 6
    for agent in ("planner", "cheerleader", "solver"):
        assert agent in done.stdout
    everything = "".join(p.read_text() for p in recorded.rglob("*.json*"))
    assert "sk-secret-of-the-app" not in everything


@pytest.mark.slow
def test_run_again_without_each_agent_it_says_who_is_worth_what(
    recorded: Path, server: ModelServer
) -> None:
    server.forget()
    command = ("audit", "rec", "--program", PROGRAM, "--tasks", "tasks.jsonl")
    done = tacit_(recorded, *command)
    assert done.returncode == 0, done.stderr
    result = json.loads((recorded / "rec" / "audit.json").read_text())
    worth = {part["name"]: part["value"]["mean"] for part in result["parts"]}
    assert worth == {"planner": 1.0, "cheerleader": 0.0}
    asked = [body["messages"][0]["content"] for body in server.bodies]
    assert not any("planner" in system for system in asked), "what came before is not asked again"
    helped = [one for one in result["messages"] if one["value"] > 0]
    assert helped and all(one["agent"] == "planner" for one in helped)
    before = len(server.asked)
    again = tacit_(recorded, *command)
    assert again.returncode == 0 and len(server.asked) - before <= 4 * len(result["messages"]) * 2
    page = tacit_(recorded, "report", "rec")
    assert page.returncode == 0 and (recorded / "rec" / "report.html").exists(), page.stderr


@pytest.mark.slow
def test_options_of_apps_are_for_recordings(tmp_path: Path) -> None:
    done = tacit_(tmp_path, "audit", "pocket-critic", "--program", PROGRAM)
    assert done.returncode == 2 and "--program is for recordings" in done.stderr
    done = tacit_(tmp_path, "audit", "no.jsonl")
    assert done.returncode != 0 and "no.jsonl" in done.stderr
    done = tacit_(tmp_path, "audit", "no.jsonl", "--key-env", "HOME")
    assert done.returncode == 2 and "--key-env says how an app is run again" in done.stderr


@pytest.mark.slow
def test_an_app_is_not_pruned_by_us(recorded: Path) -> None:
    done = tacit_(recorded, "prune", "rec")
    assert done.returncode == 2
    assert "`rec` is of an app, whose control flow is its own" in done.stderr
