"""Which runs of an app without an agent count, how they count, and what they may spend."""

import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tacit.audit.apps import AppOptions, audit_recording
from tacit.audit.audit_tables import audit_tables, estimate_lines
from tacit.cli.terminal import out as console
from tacit.config import Config
from tacit.errors import ConfigError, EngineError, SpendCap
from tacit.external.recording import RecordOptions, run_record
from tacit.types import Task
from tests.helpers.model_server import ModelServer, model_server

pytestmark = pytest.mark.slow

HERE = __name__
TASKS = 8
KEY = "sk-a-secret-of-theirs-0123456789"
SHOWN = {"authorization": f"Bearer {KEY}"}
LOCK = threading.Lock()
STATE: dict[str, Any] = {}
"""What changes by itself between two runs of the app: set by a test."""


def asked(base_url: str, system: str, *heard: str) -> str:
    named = STATE.get("named", "") if "planner" in system else ""
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n".join(filter(None, heard))},
    ]
    body = {"model": "m", "messages": messages}
    headers = SHOWN | ({"x-tacit-role": named} if named else {})
    reply = httpx2.post(
        f"{base_url}/chat/completions", json=body, headers=headers, timeout=60.0, verify=False
    )
    return str(reply.raise_for_status().json()["choices"][0]["message"]["content"] or "")


def solve(base_url: str, task: Task) -> str:
    """A planner that knows the sum and a cheerleader who does not; the solver trusts both."""
    with LOCK:
        STATE["under way"] = STATE.get("under way", 0) + 1
        STATE["most"] = max(STATE["under way"], STATE.get("most", 0))
    try:
        return solved(base_url, task)
    finally:
        with LOCK:
            STATE["under way"] -= 1


def solved(base_url: str, task: Task) -> str:
    date = STATE.get("date", "")
    plan = asked(base_url, f"{STATE.get('before', '')}You are the planner. {date}", task.question)
    if STATE.get("fragile") and not plan:
        raise ValueError("no plan")
    if STATE.get("telling") and not plan:
        raise ValueError(asked(base_url, "You are the teller.", task.question))
    if STATE.get("halves") and not plan and int(task.id[-1]) % 2:
        raise ValueError("no plan")
    cheer = asked(base_url, f"You are the cheerleader. {date}", task.question)
    if "breaks" in STATE and int(task.id[-1]) % 2 == STATE["breaks"]:
        raise ValueError("bad luck")
    try:
        return asked(base_url, f"You are the solver. {date}", task.question, plan, cheer)
    except Exception:
        if STATE.get("careless"):
            return "I do not know."
        raise


def models(path: str, body: Any) -> str:
    system, heard = (message["content"] for message in body["messages"])
    if "planner" in system:
        return "I have worked it out, and the sum is 42."
    if "teller" in system:
        return f"Incorrect API key provided: {KEY}"
    if "cheerleader" in system:
        return "Thank you, that is great work from all of you!"
    return r"\boxed{42}" if "the sum is 42" in heard else r"\boxed{0}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ModelServer]:
    """With a recording of the app in `rec`."""
    STATE.clear()
    rows = [{"id": f"sum/{n}", "question": f"Question {n}?", "answer": "42"} for n in range(TASKS)]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with model_server(models) as found:
        yield found
    STATE.clear()


async def record(folder: Path, to: str, tasks: str = "tasks.jsonl") -> None:
    await run_record(
        RecordOptions(
            to=to, out=folder / "rec", host="127.0.0.1", port=0, key_env=None, pause=30.0,
            program=f"{HERE}:solve", tasks=str(folder / tasks), split="test", limit=None,
            at_once=4, quiet=True,
        )
    )  # fmt: skip


async def audit(folder: Path, dry: bool = False, **config: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"program": f"{HERE}:solve", "tasks": str(folder / "tasks.jsonl")}
    options |= config.pop("options", {})
    config = {"audit": {"messages": 0}} | config
    said: list[str] = []
    return await audit_recording(
        folder / "rec", Config.model_validate(config), AppOptions(**options),
        lambda name, total: lambda episode: None, said.append, dry,
    )  # fmt: skip


def worth(result: dict[str, Any]) -> dict[str, float]:
    return {part["name"]: part["value"]["mean"] for part in result["parts"]}


def printed(result: dict[str, Any]) -> str:
    with console.capture() as caught:
        for one in audit_tables(result):
            console.print(one, soft_wrap=True)
    return caught.get()


async def test_an_agent_is_known_again_although_its_prompt_holds_the_date(
    tmp_path: Path, server: ModelServer
) -> None:
    STATE["date"] = "Today is 2026-11-17."
    await record(tmp_path, server.url)
    STATE["date"] = "Today is 2026-11-18."
    assert worth(await audit(tmp_path)) == {"planner": 1.0, "cheerleader": 0.0}


@pytest.mark.parametrize("named", ["../../../planner", "Q/A", "p" * 300])
async def test_an_agent_may_have_any_name(tmp_path: Path, server: ModelServer, named: str) -> None:
    STATE["named"] = named
    await record(tmp_path, server.url)
    assert worth(await audit(tmp_path)) == {named: 1.0, "cheerleader": 0.0}
    assert len(list((tmp_path / "rec" / "episodes").glob("without *.jsonl"))) == 2


async def test_a_play_that_never_met_the_agent_is_none_without_it(
    tmp_path: Path, server: ModelServer
) -> None:
    STATE["before"] = "Today is Tuesday. "
    await record(tmp_path, server.url)
    STATE["before"] = "Today is Wednesday. "
    result = await audit(tmp_path)
    assert worth(result) == {"cheerleader": 0.0}, "nothing is said of the planner's worth"
    (told,) = (note for note in result["notes"] if "is not valued" in note)
    assert told.startswith("Today is Tuesday is not valued") and "x-tacit-role" in told
    assert told in printed(result)


async def test_an_app_that_breaks_without_an_agent_has_failed_the_task(
    tmp_path: Path, server: ModelServer
) -> None:
    STATE["fragile"] = True
    await record(tmp_path, server.url)
    result = await audit(tmp_path)
    assert worth(result) == {"planner": 1.0, "cheerleader": 0.0}
    planner, cheer = result["parts"]
    assert (planner["tasks"], planner["failed"], cheer["failed"]) == (TASKS, TASKS, 0)
    (told,) = result["notes"]
    assert "without planner, 8 of 8 plays failed, which counts as reward 0" in told
    assert "ValueError: no plan" in told and told in printed(result)


async def test_no_key_is_kept_although_the_app_breaks_with_it(
    tmp_path: Path, server: ModelServer
) -> None:
    STATE["telling"] = True
    await record(tmp_path, server.url)
    told = printed(await audit(tmp_path))
    assert "Incorrect API key provided: [key]" in told and KEY not in told
    kept = [path for path in (tmp_path / "rec").rglob("*") if path.is_file()]
    assert not any(KEY in path.read_text(encoding="utf-8") for path in kept)
    assert any("provided: [key]" in path.read_text(encoding="utf-8") for path in kept)


async def test_plays_that_break_now_and_then_count_beside_the_others(
    tmp_path: Path, server: ModelServer
) -> None:
    STATE["halves"] = True
    await record(tmp_path, server.url)
    (planner, _) = (await audit(tmp_path))["parts"]
    assert (planner["tasks"], planner["failed"], planner["value"]["mean"]) == (TASKS, 4, 1.0)


async def test_an_app_that_breaks_by_itself_makes_no_agent_vital(
    tmp_path: Path, server: ModelServer
) -> None:
    """Half of all runs break whoever is asked, other ones each time."""
    STATE["breaks"] = 0
    await record(tmp_path, server.url)
    STATE["breaks"] = 1
    result = await audit(tmp_path)
    assert (result["reward"], worth(result)["cheerleader"]) == (0.5, 0.0)
    assert "with all, 4 of 8 plays failed, which counts as reward 0" in printed(result)


async def test_tasks_are_told_apart_although_one_is_called_like_a_second_try(
    tmp_path: Path, server: ModelServer
) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()[:2]]
    rows[1]["id"] = f"{rows[0]['id']} (2)"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    await record(tmp_path, server.url)
    result = await audit(tmp_path)
    assert worth(result) == {"planner": 1.0, "cheerleader": 0.0}
    (plays,) = (tmp_path / "rec" / "episodes").glob("without cheerleader *")
    episodes = [json.loads(line) for line in plays.read_text().splitlines()]
    assert all(episode["calls"][0]["reused"] for episode in episodes), "each by its own recording"


@pytest.mark.parametrize("careless", [False, True])
async def test_a_server_that_is_down_makes_no_agent_vital(
    tmp_path: Path, server: ModelServer, careless: bool
) -> None:
    """Also where the app takes the error for an answer."""
    STATE["careless"] = careless
    await record(tmp_path, server.url)
    with pytest.raises(EngineError, match=r"the server failed: .*the same command goes on"):
        await audit(tmp_path, options={"to": "http://127.0.0.1:9/v1"})
    assert not (tmp_path / "rec" / "audit.json").exists()


async def test_an_app_that_breaks_before_it_meets_the_agent_says_nothing_of_the_agent(
    tmp_path: Path, server: ModelServer
) -> None:
    await record(tmp_path, server.url)
    STATE["before"] = None
    STATE["date"] = Broken()
    with pytest.raises(EngineError, match="KeyError: 'DAY'"):
        await audit(tmp_path)


class Broken:
    def __str__(self) -> str:
        raise KeyError("DAY")


@pytest.mark.parametrize("program", [f"{HERE}:sove", "no_such_app:solve", "solve"])
async def test_a_program_that_is_not_there_is_one_sentence(
    tmp_path: Path, server: ModelServer, program: str
) -> None:
    await record(tmp_path, server.url)
    with pytest.raises(ConfigError, match="program"):
        await audit(tmp_path, options={"program": program})


async def test_money_for_an_app_is_held_and_counted_although_plays_were_broken_off(
    tmp_path: Path, server: ModelServer
) -> None:
    await record(tmp_path, server.url)
    prices = tmp_path / "prices.yaml"
    million = "{input: 1000000, output: 1000000}"
    prices.write_text(f"date: 2026-11-01\ncurrency: EUR\nmodels: {{m: {million}}}\n")
    server.forget()
    free = await audit(tmp_path, dry=True, prices=str(prices))
    assert "cap" in free and free["cap"] is None
    with pytest.raises(SpendCap, match="the spend cap is reached"):
        await audit(tmp_path, prices=str(prices), spend_cap=1.0)
    capped = await audit(tmp_path, dry=True, prices=str(prices), spend_cap=1e6)
    assert "it stops at spend_cap=1e+06 EUR" in "".join(map(str, estimate_lines(capped)))
    before = len(server.asked)
    result = await audit(tmp_path, prices=str(prices), spend_cap=1e6)
    receipts = (tmp_path / "rec" / "spend.jsonl").read_text().splitlines()
    assert len(receipts) == len(server.asked) > before
    assert result["spend"]["money"] == sum(sum(usage_in(line)) for line in receipts)
    assert "paid for in this folder" not in printed(result)
    with (tmp_path / "rec" / "spend.jsonl").open("a") as file:
        file.write(f"{receipts[-1]}\n")  # of a run that was killed before its end
    assert "paid for in this folder" in printed(await audit(tmp_path, prices=str(prices)))


def usage_in(line: str) -> tuple[int, int]:
    usage = json.loads(line)["usage"]
    return usage["prompt"], usage["generated"]


@pytest.mark.parametrize("tokens", [200, 400, 900])
async def test_tokens_for_an_app_are_held_although_its_recording_is_free(
    tmp_path: Path, server: ModelServer, tokens: int
) -> None:
    await record(tmp_path, server.url)
    server.forget()
    try:
        result = await audit(tmp_path, audit={"tokens": tokens, "messages": 5})
    except ConfigError as error:
        assert tokens == 200 and "audit.tokens is too little" in str(error)
        return
    said = (json.loads(reply)["usage"] for reply in server.replies)
    assert result["spent"] == sum(one["total_tokens"] for one in said) <= tokens


def sometimes(task: Task, answer: str) -> float:
    """A grader of one's own, as one would write it."""
    if STATE["ungradable"] or task.id == "sum/3":
        raise KeyError("scale")
    return 1.0 if task.answer in answer else 0.0


@pytest.mark.parametrize("ungradable", [False, True])
async def test_a_grader_of_ones_own_and_what_it_said_when_it_failed(
    tmp_path: Path, server: ModelServer, ungradable: bool
) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = [
        json.loads(line) | {"grader": f"{HERE}:sometimes"} for line in path.read_text().splitlines()
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    STATE["ungradable"] = ungradable
    await record(tmp_path, server.url)
    if ungradable:
        with pytest.raises(ConfigError, match=r"no task was recorded to its end: .*KeyError"):
            await audit(tmp_path)
    else:
        result = await audit(tmp_path)
        assert worth(result) == {"planner": 1.0, "cheerleader": 0.0}
        assert "not recorded to the end: 1 of the tasks" in result["notes"][0]


async def test_more_than_one_play_of_each_task_is_refused_rather_than_claimed(
    tmp_path: Path, server: ModelServer
) -> None:
    await record(tmp_path, server.url)
    with pytest.raises(ConfigError, match=r"audit\.samples: a recording holds one play"):
        await audit(tmp_path, audit={"samples": 3})


async def test_as_many_runs_go_side_by_side_as_asked_for(
    tmp_path: Path, server: ModelServer
) -> None:
    await record(tmp_path, server.url)
    STATE["under way"], STATE["most"] = 0, 0
    await audit(tmp_path, options={"at_once": 3})
    assert STATE["most"] == 3
