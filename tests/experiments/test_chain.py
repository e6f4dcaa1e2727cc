"""From training to a record in one command."""

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from experiments.chain import TERMINATED, inlined, lines_of, main, train
from tacit import Call, ChatMessage, Episode, Usage
from tacit.learn.checkpoint import Checkpoints
from tacit.run.folder import RunFolder
from tacit.types import Stop
from tests.helpers.training_runs import tree


def episode(p: float, needed: bool, agent: str = "holder 2") -> Episode:
    call = Call(
        agent=agent, model="m", messages=(ChatMessage("user", "?"),), text="", stop=Stop.EOS,
        usage=Usage(), may_be_silent=True, silence_logprob=math.log(p),
    )  # fmt: skip
    return Episode(task_id="1", sample=0, calls=(call,), needed={agent: needed})


def test_the_line_is_where_the_needed_are_told_from_the_others() -> None:
    told = [episode(p, needed=True) for p in (0.1, 0.2, 0.6)]
    told += [episode(p, needed=False) for p in (0.3, 0.8, 0.9)]
    assert lines_of(told, ["holder", "asker"]) == {"holder": 0.65}, "one of each is missed else"
    assert lines_of(told[:3], ["holder"]) == {}, "nobody was idle"
    clear = [episode(0.2, needed=True), episode(0.8, needed=False)]
    assert lines_of(clear, ["holder"]) == {"holder": 0.5}, "the nearest to a half"


@pytest.mark.slow
def test_a_run_is_trained_tested_and_kept(tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    notes = {"name": "arithmetic_notes", "split": "test", "limit": 6}
    recipe.write_text(yaml.safe_dump(tree(tasks=notes, train_tasks={**notes, "split": "train"})))
    asked = [str(recipe), "train.steps=1", "--out", str(tmp_path / "run"), "--until", "300"]
    asked += ["--test", "test=tasks.offset=6;tasks.limit=4", "--keep", "tiny"]
    asked += ["--test", "untrained test=tasks.offset=6;tasks.limit=4"]
    asked += ["--test", "solo=team={topology: solo, agents: {actor: {max_tokens: 8}}}"]
    asked += ["--records", str(tmp_path)]
    wrong = ["--test", "wrong=tasks.offset=6;tasks.name=none"]
    assert main([*asked, *wrong]) == 1, "one test cannot be played"
    partly = json.loads((tmp_path / "run" / "record.json").read_text())["evaluations"]
    asked[1] = "train.steps=3"
    assert main(asked) == 0 == main(asked), "played already, and then there already"
    kept = json.loads((tmp_path / "tiny-s0.json").read_text())["evaluations"]
    assert kept == partly, "weights that were tested stay as they are"
    assert {"eval-000000", "eval-000001", "test", "test made to speak", "solo"} <= kept.keys()
    assert "untrained test made to speak" in kept and "hinter" not in str(kept["solo"]["calls"])
    assert "wrong" not in kept and len(kept["test"]["right"]) == 4


@pytest.mark.slow
def test_a_run_that_was_never_evaluated_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tree()))
    assert main([str(recipe), "--out", str(tmp_path / "run"), "--until", "0.1"]) == 1
    assert "was not evaluated in time" in capfd.readouterr().err


def test_a_tests_team_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "alone.yaml").write_text("topology: solo\nagents: {actor: {}}\n")
    said = inlined(f"team={tmp_path}/alone.yaml")
    assert said == "team=topology: solo\nagents: {actor: {}}\n"
    for other in ("team={topology: solo}", "prices=prices.yaml"):
        assert inlined(other) == other


@pytest.mark.slow
def test_a_run_that_broke_off_is_not_tested(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe, run = tmp_path / "tiny.yaml", tmp_path / "run"
    recipe.write_text(yaml.safe_dump(tree(train={"steps": 1})))
    asked = [str(recipe), "--out", str(run), "--test", "trained=tasks.limit=2", "--keep", "tiny"]
    assert main([*asked[:3]]) == 0
    asked[1:1] = ["train.tasks_per_step=3"]  # which the run in that folder does not have
    assert main([*asked, "--records", str(tmp_path)]) == 1
    assert "broke off" in capfd.readouterr().err and not (run / "trained").exists()


def test_a_run_whose_time_was_up_before_its_first_step_is_not_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.chain._in_time", lambda command, until: None)
    for last in (None, 0):
        monkeypatch.setattr(Checkpoints, "step", lambda self, name, last=last: last)
        assert not train("tiny.yaml", tmp_path, [], until=1.0)


@pytest.mark.slow
def test_teams_of_which_none_learns_are_compared_and_kept(tmp_path: Path) -> None:
    recipe, solo = tmp_path / "teams.yaml", {"topology": "solo", "agents": {"actor": {}}}
    teams = {"name": "teams", "tasks": {"name": "arithmetic"}, "teams": {"one": solo, "two": solo}}
    recipe.write_text(yaml.safe_dump(teams))
    asked = [str(recipe), "tasks.limit=2", "--out", str(tmp_path / "run")]
    asked += ["--keep", "teams", "--records", str(tmp_path)]
    assert main(asked) == 0
    kept = json.loads((tmp_path / "teams-s0.json").read_text())["evaluations"]
    assert kept.keys() == {"one", "two"} and len(kept["one"]["right"]) == 2


@pytest.mark.slow
def test_a_budget_is_a_share_of_what_the_untrained_team_generates(tmp_path: Path) -> None:
    recipe, run = tmp_path / "tiny.yaml", tmp_path / "run"
    recipe.write_text(yaml.safe_dump(tree()))
    for _ in range(2):  # the second time nothing is played and nothing has changed
        assert main([str(recipe), "train.steps=1", "--out", str(run), "--budget", "0.5"]) == 0
    (team,) = RunFolder(f"{run}-untrained").read_json("summary.json")["teams"].values()
    config = RunFolder.existing(run)[1]
    assert config.budget.tokens == round(0.5 * team["generated"]["mean"]) > 0


@pytest.mark.slow
def test_a_chain_that_is_told_to_end_saves_and_leaves_nothing_running(tmp_path: Path) -> None:
    recipe, run = tmp_path / "tiny.yaml", tmp_path / "run"
    recipe.write_text(yaml.safe_dump(tree()))
    command = [sys.executable, "-m", "experiments.chain", str(recipe), "train.steps=9999"]
    with subprocess.Popen([*command, "--out", str(run)]) as chain:
        while chain.poll() is None and "step" not in _last(run / "metrics.jsonl"):
            time.sleep(0.1)
        chain.send_signal(signal.SIGTERM)
        assert chain.wait(60) == TERMINATED
    assert (Checkpoints(run / "checkpoints").step("last") or 0) >= 1
    with RunFolder(run).held():
        pass


def _last(metrics: Path) -> dict[str, float]:
    """The last line of a step; empty before there is one."""
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    steps = [line for line in lines if "reward/total" in line]
    return dict(json.loads(steps[-1])) if steps else {}
