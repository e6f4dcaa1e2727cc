"""`python` and `run_tests` in the real sandbox, and `lookup`."""

import json
from typing import Any

import pytest

from tacit.team.tools import ToolContext, find_tool
from tacit.tools.lookup import paragraphs
from tacit.tools.run_tests import run_visible
from tacit.tools.running import limits_of
from tacit.types import Task, ToolCall
from tests.helpers.scripted_teams import play, scripted


def code_task(*visible: str, **data: Any) -> Task:
    return Task(
        id="code/1",
        question="Double it.",
        answer="",
        grader="code",
        data={"visible": list(visible), **data},
    )


def context(task: Task | None = None, view: str = "", timeout: float = 10.0) -> ToolContext:
    return ToolContext(task=task or code_task(), agent="actor", view=view, timeout=timeout)


async def call(name: str, given: ToolContext, **arguments: Any) -> Any:
    return await find_tool(name).call(arguments, given)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(6 * 7)", "42"),
        ("x = 6\nx * 7", "42"),
        ("```python\nprint('fenced')\n```", "fenced"),
        ("print(1)\n1 / 0", "1\nError: ZeroDivisionError: division by zero"),
        ("print(", "Error: SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit(3)", "Error: exit code 3"),
        ("x = 1", ""),
    ],
)
async def test_python_says_what_was_printed_or_the_last_error(code: str, said: str) -> None:
    assert await call("python", context(), code=code) == said


async def test_python_cannot_reach_this_machine(tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    said = await call("python", context(), code=f"print(open({str(secret)!r}).read())")
    assert "hidden" not in said and "Error" in said


async def test_endless_and_flooding_programs_are_stopped() -> None:
    endless = await call("python", context(timeout=1.0), code="while True: pass")
    assert endless.startswith("Error: stopped after 1 s")
    flood = await call("python", context(), code="while True: print('x' * 1000)")
    assert flood.endswith("Error: stopped: more than 64 kB printed")


@pytest.mark.parametrize(
    ("timeout", "cpu", "wall"),
    [(0.2, 1, 1), (3.0, 3, 3), (20.0, 5, 20), (60.0, 15, 60), (float("inf"), 21_600, 86_400)],
)
def test_programs_have_the_time_that_the_agent_has(timeout: float, cpu: int, wall: float) -> None:
    limits = limits_of(timeout)
    assert (limits.cpu_seconds, limits.wall_seconds) == (cpu, wall)


async def test_failed_visible_tests_are_told_with_what_came_out() -> None:
    task = code_task("assert double(2) == 4", "assert double('a') == 'aa'", "assert double(0) == 1")
    right = "```python\ndef double(x):\n    return x * 2\n```"
    assert await run_visible(task, right) == (
        "1 of 3 tests fail:\n- assert double(0) == 1\n  double(0) gave 0"
    )
    assert await run_visible(code_task("assert double(2) == 4"), right) == ""
    assert await run_visible(code_task(), "nonsense(") == ""
    raising = "def double(x):\n    print('noise')\n    raise ValueError('no')"
    assert (await run_visible(task, raising)).endswith("  ValueError: no")
    assert "cannot be loaded: SyntaxError" in await run_visible(task, "def double(")
    assert "ended the process" in await run_visible(task, "import os\nos._exit(1)")
    looping = "def double(x):\n    while True: pass"
    assert "stopped after" in await run_visible(task, looping, seconds=1.0)


async def test_the_tool_runs_a_prompts_continuation_too() -> None:
    task = code_task("assert inc(1) == 2", prompt="def inc(x):\n", entry_point="inc")
    assert await call("run_tests", context(task), code="    return x + 1") == (
        "All visible tests pass."
    )
    assert await call("run_tests", context(), code="") == "This task has no visible tests."


async def test_lookup_finds_the_best_paragraphs_of_the_callers_view() -> None:
    view = "\n\n".join(
        ["The Seine flows through Paris.", "Oslo is in Norway.", "Paris, Paris and Paris!"]
        + [f"Filler number {n}." for n in range(5)]
    )
    found = await call("lookup", context(view=view), query="Which river is in PARIS? the seine")
    assert found.split("\n\n")[0] == "The Seine flows through Paris."
    assert "Filler" not in found
    assert await call("lookup", context(view=view), query="xyz") == "Nothing found."
    assert await call("lookup", context(), query="Paris") == "You have no documents."
    assert paragraphs("a\nb") == ["a", "b"] and paragraphs("a\nb\n\nc") == ["a\nb", "c"]


async def test_an_agent_mends_its_code_by_the_visible_tests() -> None:
    task = code_task("assert double(2) == 4", tests="assert double(3) == 6", entry_point="double")
    wrong, right = (f"def double(x): return x {op} 2" for op in ("+ 1 +", "*"))
    script = [
        ToolCall("python", json.dumps({"code": "2 * 2"})),
        ToolCall("run_tests", json.dumps({"code": wrong})),
        ToolCall("run_tests", json.dumps({"code": right})),
        right,
    ]
    tools = {"tools": ["python", "run_tests"]}
    episode = await play(scripted("solo", {"actor": script}, actor=tools), task)
    assert episode.grade and episode.grade.right, episode.error
    told = [m.content for m in episode.calls[-1].messages if m.role == "tool"]
    assert told == [
        "4",
        "1 of 1 tests fail:\n- assert double(2) == 4\n  double(2) gave 5",
        "All visible tests pass.",
    ]
