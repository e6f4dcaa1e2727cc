"""What a training run is compared with, and how it is stopped and saved from outside."""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.cli.training import check_run, run_training
from tacit.config.file import parse_config
from tacit.errors import ConfigError, RunError
from tacit.evaluation.teams import Measured, Measurement
from tacit.learn.loop import Trainer
from tacit.run.folder import RunFolder, RunRequest, read_lines
from tacit.types import Episode, Grade, Task
from tests.helpers.commands import tacit_
from tests.helpers.training_runs import tiny_config, tree


@pytest.fixture(autouse=True)
def plain_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


SOLO = {"topology": "solo", "agents": {"actor": {}}}


def episodes(rights: str) -> list[Episode]:
    return [
        Episode(task_id=str(n), sample=0, grade=Grade(reward=float(r == "1"), right=r == "1"))
        for n, r in enumerate(rights)
    ]


def paired_means(tmp_path: Path, first: str | None, **rights: str) -> list[dict[str, float]]:
    """Differences of the baselines, and of the trained team, from what they are paired with."""
    tasks = [Task(id=str(n), question="?", answer="1", grader="math") for n in range(4)]
    measurement = Measurement(config=parse_config({}), run=RunFolder(tmp_path), tasks=tasks)
    teams = {name: Measured(episodes(one)) for name, one in rights.items()}
    result = measurement.compared_with_trained(teams, first)
    return [
        {name: test["difference"]["mean"] for name, test in result[place].items()}
        for place in ("paired", "trained_compared_with")
    ]


def test_the_untrained_team_is_tested_against_the_first_baseline(tmp_path: Path) -> None:
    paired, trained = paired_means(
        tmp_path, "solo", untrained="1000", solo="1100", other="1110", trained="1111"
    )
    assert paired == {"untrained": -0.25, "other": 0.25}
    assert trained == {"untrained": 0.75, "solo": 0.5, "other": 0.25}


def test_without_baselines_only_the_untrained_team_is_left(tmp_path: Path) -> None:
    paired, trained = paired_means(tmp_path, None, untrained="10", trained="11")
    assert paired == {} and list(trained) == ["untrained"]


async def test_a_run_stops_and_saves_when_its_folder_says_so(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    train = {"steps": 500, "evaluate_every": 0, "checkpoint_every": 500}

    async def visitor() -> None:
        requests: dict[RunRequest, int] = {"save": 1, "stop": 2}
        for request, step in requests.items():
            while _steps(run) < step:
                await asyncio.sleep(0.01)
            run.ask(request)

    asking = asyncio.create_task(visitor())
    result = await run_training(tiny_config(train=train), run.path)
    await asking
    assert result["paused"]
    assert 2 <= result["steps"] <= 5
    assert run.read_json("checkpoints/last.json")["step"] == result["steps"]
    assert not (run.path / "summary.json").exists(), "it has not ended"
    assert list((run.path / "asked").iterdir()) == []
    ended = await run_training(tiny_config(train={**train, "steps": result["steps"]}), run.path)
    assert ended["steps"] == result["steps"] and (run.path / "summary.json").exists()
    last = run.path / "evals" / f"eval-{result['steps']:06d}.json"
    assert last.exists(), "a run that is to end where it stopped is evaluated there"


def history(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(run / "started.jsonl")]


async def trained(folder: Path, *, start: str | Path | None = None, **changed: Any) -> Path:
    config = tiny_config(**{"train": {"steps": 3}, **changed})
    await run_training(config, folder, start=str(start) if start else None)
    return folder


async def test_a_finished_run_goes_on_for_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = await trained(tmp_path / "whole", train={"steps": 5})
    run = await trained(tmp_path / "run")
    more = {"train": {"steps": 5, "patience": 7}, "evaluation": {"resamples": 60}}
    await trained(run, **more)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert RunFolder(run).read_json("summary.json")["steps"] == 5
    assert [start.get("changed") for start in history(run)] == [
        None,
        {"evaluation.resamples": [50, 60], "train.patience": [0, 7], "train.steps": [3, 5]},
    ]
    with pytest.raises(ConfigError, match=r"train\.steps is 4, but .* is at step 5 already"):
        await trained(run, train={"steps": 4})
    assert "learning rate" not in capsys.readouterr().err, "a constant one stays"


async def test_a_longer_schedule_goes_on_at_its_own_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    falling = {"optimizer": {"learning_rate": 1e-3, "warmup_steps": 0, "schedule": "linear"}}
    run = await trained(tmp_path / "run", train={"steps": 2}, **falling)
    capsys.readouterr()
    await trained(run, train={"steps": 4}, **falling)
    said = " ".join(capsys.readouterr().err.split())
    assert "train.steps was 2: the linear schedule now ends at step 4" in said
    assert "goes on at 0.0005" in said


async def test_more_patience_takes_up_a_run_that_had_none_left(tmp_path: Path) -> None:
    impatient = {"steps": 6, "evaluate_every": 1, "patience": 1}
    still = {"learning_rate": 1e-30, "warmup_steps": 0}  # nothing ever gets better
    run = await trained(tmp_path / "run", train=impatient, optimizer=still)
    assert RunFolder(run).read_json("summary.json")["stopped"] == "no better evaluation in 1"
    await trained(run, train={**impatient, "steps": 9}, optimizer=still)
    assert RunFolder(run).read_json("summary.json")["steps"] == 1, "what stopped it still does"
    await trained(run, train={**impatient, "patience": 3}, optimizer=still)
    summary = RunFolder(run).read_json("summary.json")
    assert (summary["steps"], summary["stopped"]) == (3, "no better evaluation in 3")


async def test_other_bounds_on_empty_messages_take_up_a_run_that_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.learn.loop.empty_share", lambda groups: 0.5)
    run = await trained(tmp_path / "run", train={"steps": 2, "empty_share": 0.4})
    for share in (0.4, 0.5):
        summary = RunFolder(run).read_json("summary.json")
        assert summary["steps"] == 1 and "have become empty" in summary["stopped"]
        await trained(run, train={"steps": 2, "empty_share": share})
    await trained(run, train={"steps": 2, "empty_share": 0.9})
    summary = RunFolder(run).read_json("summary.json")
    assert (summary["steps"], summary["stopped"]) == (2, None)


async def test_a_new_run_begins_with_the_weights_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = await trained(tmp_path / "first")
    last = RunFolder(first).read_json("checkpoints/last.json")["step"]
    other = {"budget": {"tokens": 25}, "optimizer": {"learning_rate": 1e-4, "warmup_steps": 0}}
    for name, start in (
        ("by-name", "first:last"),
        ("by-folder", first / "checkpoints" / f"step-{last:06d}"),
    ):
        run = await trained(tmp_path / name, start=start, train={"steps": 1}, **other)
        mine = list(RunFolder(run).episodes("eval-000000"))
        theirs = list(RunFolder(first).episodes(f"eval-{last:06d}"))
        assert [e.calls[0].text for e in mine] == [e.calls[0].text for e in theirs]
        assert [e.calls[0].logprobs for e in mine] == [e.calls[0].logprobs for e in theirs]
        assert history(run)[0]["from"] == str(first / "checkpoints" / f"step-{last:06d}")
        assert RunFolder(run).read_json("summary.json")["from"] == history(run)[0]["from"]
    again = await trained(tmp_path / "by-name", start=first, train={"steps": 2}, **other)
    assert "from" not in history(again)[1], "the same command goes on"
    assert RunFolder(again).read_json("checkpoints/last.json")["step"] == 2
    with pytest.raises(ConfigError, match=r"began with untrained weights.*without --from"):
        await trained(first, start=again)
    with pytest.raises(ConfigError, match=r"began with .*first"):
        await trained(again, start=tmp_path / "by-folder", train={"steps": 2}, **other)


async def test_killed_before_its_first_checkpoint_it_begins_with_the_same_weights_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await trained(tmp_path / "first")

    async def killed(self: Trainer) -> None:
        raise RunError("killed")

    with monkeypatch.context() as patch, pytest.raises(RunError, match="killed"):
        patch.setattr(Trainer, "_evaluate", killed)
        await trained(tmp_path / "run", start=f"{first}:last", train={"steps": 1})
    run = await trained(tmp_path / "run", train={"steps": 1})
    mine, theirs = (
        [e.calls[0].logprobs for e in RunFolder(folder).episodes(f"eval-00000{step}")]
        for folder, step in ((run, 0), (first, 3))
    )
    assert mine == theirs


async def test_episodes_of_untrained_weights_are_not_mixed_with_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, run = await trained(tmp_path / "first", train={"steps": 1}), tmp_path / "run"
    add = RunFolder.append_episode

    def stopped(folder: RunFolder, name: str, episode: Episode) -> None:
        add(folder, name, episode)
        raise RunError("stopped")

    with monkeypatch.context() as patch, pytest.raises(RunError, match="stopped"):
        patch.setattr(RunFolder, "append_episode", stopped)
        await trained(run)
    assert list(RunFolder(run).episodes("eval-000000"))
    assert not (run / "checkpoints").exists()
    with pytest.raises(ConfigError, match=r"began with untrained weights.*without --from"):
        await trained(run, start=first)


@pytest.mark.parametrize(
    ("start", "changed", "said"),
    [
        ("nowhere", {}, r"`nowhere` has no checkpoint: name a run that was trained"),
        ("first", {"policy": {"alpha": 9.0}}, "with another `policy` section"),
        (
            "first",
            {"models": {"pocket": {"path": "x/other"}}},
            "was trained on pocket, not on other",
        ),
        ("first", {"policy": {"share": "role"}}, "has no weights called `hinter`"),
    ],
)
async def test_weights_that_do_not_fit_are_refused_before_a_model_loads(
    start: str, changed: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun("first", best=3)
    with pytest.raises(ConfigError, match=said):
        await trained(tmp_path / "run", start=start, **changed)
    assert not (tmp_path / "run").exists()


def begun(folder: str | Path, **steps: int) -> None:
    """A run that looks as if it had such checkpoints."""
    checkpoints = RunFolder.open(folder, tiny_config()).path / "checkpoints"
    for which, step in steps.items():
        saved = checkpoints / f"step-{step:06d}"
        saved.mkdir(parents=True)
        (saved / "policy-team.safetensors").touch()
        (saved / "state.json").write_text("{}")
        (checkpoints / f"{which}.json").write_text(json.dumps({"step": step}))


def test_a_run_keeps_the_weights_it_began_with_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, run = tmp_path / "first", tmp_path / "run"
    begun(first, best=3, last=5)
    best = first / "checkpoints" / "step-000003"
    RunFolder.open(run, tiny_config()).log_start(**{"from": str(best)})
    _, weights = check_run(tiny_config(), run, f"{first}:best")
    assert weights and weights.folder == best and not capsys.readouterr().err
    _, weights = check_run(tiny_config(), run, f"{first}:last")
    assert weights and weights.folder == best
    said = "".join(capsys.readouterr().err.split())
    assert f"beganwith{best},andgoesonfromthere" in said
    shutil.rmtree(best)
    for start in (None, f"{first}:last"):
        with pytest.raises(ConfigError, match=r"step-000003, which is gone: .* with --out"):
            check_run(tiny_config(), run, start)


def _steps(run: RunFolder) -> int:
    lines = list(read_lines(run.path / "metrics.jsonl"))
    return int(json.loads(lines[-1])["step"]) if lines else 0


def test_a_finished_run_is_shown_from_its_summary_and_any_checkpoint_played(tmp_path: Path) -> None:
    config = tree(train={"steps": 2, "evaluate_every": 1})
    (tmp_path / "tiny.json").write_text(json.dumps(config))

    def told(*arguments: str, **variables: str) -> Any:
        done = tacit_(tmp_path, *arguments, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first = told("train", "tiny.json", "--out", "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "torch.py").write_text("raise ImportError('nothing is computed')\n")
    paths = filter(None, [str(tmp_path / "empty"), os.environ.get("PYTHONPATH")])
    again = told("train", "tiny.json", "--out", "run", PYTHONPATH=os.pathsep.join(paths))
    assert again == first
    evaluated = told("eval", "run", "--checkpoint", "last")
    assert list(evaluated["teams"]) == ["trained"] and evaluated["checkpoint"] == 2
    assert (tmp_path / "run" / "eval-000002" / "summary.json").exists()


async def test_talk_is_measured_with_the_best_weights_and_not_the_last(tmp_path: Path) -> None:
    notes = {"name": "arithmetic_notes", "limit": 6}
    config = tiny_config(
        train_tasks={**notes, "split": "train", "limit": 40},
        tasks={**notes, "split": "test"},
        optimizer={"learning_rate": 1.0},  # the weights are soon worth nothing
        train={"steps": 2, "evaluate_every": 1},
    )
    result = await run_training(config, tmp_path / "run")
    best, run = result["best_step"], RunFolder(tmp_path / "run")
    assert best < result["steps"]
    spoken = list(run.episodes(f"eval-{best:06d} made to speak"))
    calls = [call for episode in spoken for call in episode.calls if call.agent == "hinter"]
    assert {(call.choice, call.version, call.silent) for call in calls} == {("speak", best, False)}
    for name in ("untrained", "trained"):
        talk = result["teams"][name]["talk"]
        assert {"free", "silent", "speaking", "gate"} <= talk["plays"].keys()
        assert talk["choosing"]["needed"] == 3 and talk["choosing"]["by"] == "silence_logprob"
    assert "alone" in result["teams"]["trained"]["talk"]["plays"]
