"""What a training run is compared with, and how it is stopped and saved from outside."""

import asyncio
import json
from pathlib import Path

from tacit.configfile import parse_config
from tacit.runfolder import Request, RunFolder, read_lines
from tacit.training import _tests, run_training
from tacit.types import Episode, Grade
from training_runs import tiny_config

SOLO = {"topology": "solo", "agents": {"actor": {}}}


def episodes(rights: str) -> list[Episode]:
    return [
        Episode(task_id=str(n), sample=0, grade=Grade(reward=float(r == "1"), right=r == "1"))
        for n, r in enumerate(rights)
    ]


def test_the_untrained_team_is_tested_against_the_first_baseline() -> None:
    config = parse_config({"teams": {"solo": SOLO, "other": SOLO}})
    played = {
        "untrained": episodes("1000"),
        "solo": episodes("1100"),
        "other": episodes("1110"),
        "trained": episodes("1111"),
    }
    trained_against, paired = _tests(played, config)
    assert {n: t and t.difference.mean for n, t in paired.items()} == {
        "untrained": -0.25,
        "other": 0.25,
    }
    assert {n: t and t.difference.mean for n, t in trained_against.items()} == {
        "untrained": 0.75,
        "solo": 0.5,
        "other": 0.25,
    }


def test_without_baselines_only_the_untrained_team_is_left() -> None:
    trained_against, paired = _tests(
        {"untrained": episodes("10"), "trained": episodes("11")}, parse_config({})
    )
    assert list(trained_against) == ["untrained"] and paired == {}


async def test_a_run_stops_and_saves_when_its_folder_says_so(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    train = {"steps": 500, "evaluate_every": 0, "checkpoint_every": 500}

    async def visitor() -> None:
        requests: dict[Request, int] = {"save": 1, "stop": 2}
        for request, step in requests.items():
            while _steps(run) < step:
                await asyncio.sleep(0.01)
            run.ask(request)

    asking = asyncio.create_task(visitor())
    result = await run_training(tiny_config(train=train), run.path, as_json=False)
    await asking
    assert result["paused"]
    assert 2 <= result["steps"] <= 5
    assert run.read_json("checkpoints/last.json")["step"] == result["steps"]
    assert not (run.path / "summary.json").exists(), "it has not ended"
    assert list((run.path / "asked").iterdir()) == []


def _steps(run: RunFolder) -> int:
    lines = list(read_lines(run.path / "metrics.jsonl"))
    return int(json.loads(lines[-1])["step"]) if lines else 0
