"""The experiments' harness: configs, time boxes, packing, outcomes, and the page they fill."""

import asyncio
import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments import joining, packing, records, result, tables
from experiments.__main__ import main
from experiments.blocks.bars import bars_table
from experiments.blocks.honesty import codes_table, leaks_table
from experiments.blocks.rows import (
    CONSISTENCY,
    DIALOGUE,
    GSM8K,
    HINT,
    NOTHING,
    READ,
    SEVEN,
    SOLO,
    UNTRAINED_DIALOGUE,
    UNTRAINED_HINT,
    get,
    interval,
)
from experiments.blocks.silence import difficulty_table
from experiments.catalogue import EXPERIMENTS, GSM8K_VALIDATION, VARIED_VALIDATION, find
from experiments.clock import RESERVE, Clock
from experiments.outcomes import chosen, columns, spread
from experiments.records import Results, difference
from experiments.running import Order, config_of, run, team_of
from tacit.config import TaskConfig, TeamConfig
from tacit.config.file import load_config
from tacit.errors import ConfigError
from tacit.evaluation.statistics import mcnemar
from tacit.learn.assemble import check_training
from tacit.tasks import load_tasks
from tacit.team.roster import check_team
from tacit.types import Call, ChatMessage, Episode, Grade, Stop, Task, Usage

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def plain_torch() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


def order_of(name: str, runs: Path, seed: int = 0, **more: Any) -> Order:
    models = {"base": {"path": "pocket", "rows": 8}, "small": {"path": "pocket"}}
    return Order(experiment=find(name), seed=seed, models=models, runs=runs, **more)


# --- the catalogue -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_can_be_run_as_it_stands(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for seed in experiment.seeds:
        config = config_of(order_of(name, Path("runs"), seed))
        if experiment.trains:
            check_training(config)
    assert experiment.evaluations
    for label, evaluation in experiment.evaluations.items():
        team = TeamConfig.model_validate(evaluation.team)
        check_team(team, label)
        tasks = TaskConfig.model_validate(evaluation.tasks)
        assert tasks.split != "train" or evaluation.tasks in (GSM8K_VALIDATION, VARIED_VALIDATION)
        if not experiment.trains:
            assert not any(agent.trained for agent in team.agents.values())


@pytest.mark.parametrize("name", [n for n, e in EXPERIMENTS.items() if e.trains and e.item])
def test_no_seed_trains_on_validation_or_test_tasks(
    name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(data_dir))
    experiment = EXPERIMENTS[name]
    for seed in experiment.seeds:
        config = config_of(order_of(name, Path("runs"), seed))
        assert config.train_tasks
        train, held_out = (questions(part, data_dir) for part in (config.train_tasks, config.tasks))
        assert len(train) > 90 and len(held_out) >= 90
        assert not train & held_out
        for evaluation in experiment.evaluations.values():
            tested = TaskConfig.model_validate(evaluation.tasks)
            assert not held_out & questions(tested, data_dir)
            assert len(train & questions(tested, data_dir)) <= 2, (
                "which are dropped before training"
            )


_QUESTIONS: dict[str, set[str]] = {}


def questions(tasks: TaskConfig, data_dir: Path) -> set[str]:
    """Read once, since many experiments share their tasks."""
    key = tasks.model_dump_json()
    if key not in _QUESTIONS:
        _QUESTIONS[key] = {task.question for task in load(tasks, data_dir)}
    return _QUESTIONS[key]


def load(tasks: TaskConfig, data_dir: Path) -> list[Task]:
    wanted = tasks.model_dump(exclude={"folder", "hub", "options", "name"})
    return load_tasks(tasks.name, folder=data_dir, **wanted)


def test_another_seed_trains_on_other_tasks(data_dir: Path) -> None:
    taken: list[set[str]] = []
    for seed in (0, 1, 2):
        config = config_of(order_of("hint", Path("runs"), seed))
        assert config.train_tasks and config.train_tasks.limit == 500
        taken.append({task.id for task in load(config.train_tasks, data_dir)})
    assert not (taken[0] & taken[1] or taken[1] & taken[2] or taken[0] & taken[2])


def test_a_seed_whose_tasks_reach_the_validation_tasks_is_refused() -> None:
    config_of(order_of("silence-warm", Path("runs"), 0))
    with pytest.raises(ConfigError, match="seed 1: its training tasks reach the validation tasks"):
        config_of(order_of("silence-warm", Path("runs"), 1))


def test_overrides_leave_the_catalogue_alone() -> None:
    before = json.dumps(find("hint").config)
    changed = config_of(order_of("hint", Path("runs"), overrides=("train.steps=3",)))
    assert changed.train.steps == 3
    assert json.dumps(find("hint").config) == before


def test_an_override_of_a_trained_agent_holds_when_it_is_measured() -> None:
    overrides = (
        "team.agents.hinter.max_tokens=64", "team.agents.actor.max_tokens=100",
        "team.prompts=published",
    )  # fmt: skip
    order = order_of("hint", Path("runs"), overrides=overrides)
    team = team_of(order, "trained")
    assert (team.agents["hinter"].max_tokens, team.agents["actor"].max_tokens) == (64, 512)
    assert team.prompts == "published"
    assert team_of(order, "wrong teammate alone").prompts == "tagged", "nobody in it is trained"


def test_the_page_speaks_only_of_what_the_catalogue_has() -> None:
    rows = [(experiment, evaluation) for _, experiment, evaluation in GSM8K]
    for experiment, evaluation in [
        *rows,
        *(where for rows in SEVEN.values() for _, *where in rows),
    ]:
        assert evaluation in EXPERIMENTS[experiment.partition("+")[0]].evaluations
    for benchmark in SEVEN:
        assert f"untrained, {benchmark}" in EXPERIMENTS["baselines-dialogue"].evaluations


# --- the time box --------------------------------------------------------------------------------


def test_a_clock_stops_before_a_step_that_would_not_fit() -> None:
    now = 0.0
    clock = Clock(minutes=2, now=lambda: now)
    assert not clock.too_late()
    now = 40.0
    assert not clock.too_late()  # a step took 40, 120 − 20 − 40 are left
    now = 55.0
    assert clock.too_late()  # 45 are left, and 40 with a margin is more
    assert clock.left == 120 - RESERVE - 55
    now = 500.0
    assert clock.left == 0


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Order:
    """A smoke run whose time was up on the way."""
    order = order_of("smoke", tmp_path_factory.mktemp("here"))
    ticks = count()
    clock = Clock(minutes=1, now=lambda: 6.0 * next(ticks))
    assert not asyncio.run(run(order, clock, lambda line: None))
    result.note_call(order, clock.spent)
    return order


def steps(order: Order) -> list[int]:
    lines = (order.folder / "train" / "metrics.jsonl").read_text().splitlines()
    return [line["step"] for line in map(json.loads, lines) if "reward/total" in line]


def test_the_readme_says_what_the_results_say() -> None:
    said = (ROOT / "README.md").read_text(encoding="utf-8").replace("**", "")
    results = Results.read(ROOT / "experiments" / "results")
    critic = ("untrained critic", "baselines", "untrained critic")
    for row in (
        SOLO,
        UNTRAINED_HINT,
        critic,
        UNTRAINED_DIALOGUE,
        CONSISTENCY,
        HINT,
        READ,
        DIALOGUE,
        ("Actor fine-tuned", "actor-finetune", "trained"),
        ("trained critic", "critic", "trained"),
    ):
        team, name = get(results, row), row[0]
        assert team is not None
        seeds = ", three seeds" if len(team.right_ST) == 3 else ""
        assert f"| {name}{seeds} | {interval(team.accuracy)} | {team.generated:.0f} |" in said


def test_the_recipe_trains_what_was_measured() -> None:
    """All but what the machine asks for, what is kept of the episodes, and who is compared."""
    mine = config_of(order_of("hint", Path("runs"))).model_dump(mode="json")
    recipe = load_config("gsm8k-hint").model_dump(mode="json")
    for tree in (mine, recipe):
        del tree["name"], tree["models"], tree["teams"]
        del tree["train"]["save_episodes"], tree["train"]["microbatch_tokens"]
    assert recipe == mine


def test_teams_measured_apart_become_one_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(*names: str, right: str, **more: Any) -> dict[str, Any]:
        evaluations = {name: {"right": right} for name in names}
        own = {"experiment": "prompts", "seed": 0, "overrides": [], "finished": False}
        return {**own, "calls": [right], "evaluations": evaluations, **more}

    all_names = list(EXPERIMENTS["prompts"].evaluations)
    first, second = part("solo", all_names[1], right="0"), part(*all_names[1:], right="1")
    path = tmp_path / "prompts-s0.json"
    path.write_text(json.dumps(second))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / path.name).write_text(json.dumps(first))
    assert joining.main([str(path), "--into", str(tmp_path / "there")]) == 0
    whole = json.loads((tmp_path / "there" / path.name).read_text())
    assert whole["finished"] and whole["calls"] == ["0", "1"]
    assert [one["right"] for one in whole["evaluations"].values()] == ["0", *"1" * 7]
    assert list(whole["evaluations"]) == all_names
    other = part("solo", right="1", overrides=["train.steps=3"])
    with pytest.raises(ConfigError, match="not two parts"):
        joining.join(first, other)
    trained = part("solo", right="1", training={})
    assert joining.join(first, trained) is trained
    path.write_text("{")
    assert joining.main([str(path)]) == 2 and "error: " in capsys.readouterr().err


async def test_what_was_learned_by_then_is_measured_when_the_time_for_training_is_over(
    tmp_path: Path,
) -> None:
    ticks = count()
    training = Clock(minutes=1, now=lambda: 6.0 * next(ticks))
    order = replace(order_of("smoke", tmp_path), only=("trained",), training=training)
    said: list[str] = []
    assert await run(order, Clock(minutes=9), said.append)
    done = steps(order)
    assert done and done[-1] < 4, "it stopped on the way"
    trained = json.loads((order.folder / "trained.json").read_text())
    assert trained == {"step": done[-1], "stopped": "the time for training was over"}
    assert result.result_of(order)["training"]["stopped"] == trained["stopped"]
    evaluated = sorted((order.folder / "train" / "evals").iterdir())
    assert evaluated[-1].stem == f"eval-{done[-1]:06d}", "the end is evaluated"
    assert said[-1].startswith("trained: ")


async def test_a_run_is_stopped_moved_resumed_and_tabled(paused: Order, tmp_path: Path) -> None:
    done = steps(paused)
    assert done and done[-1] < 4, "it stopped on the way"
    assert not result.result_of(paused)["finished"]

    parts = packing.pack(paused.folder, tmp_path / "parts")
    (folder,) = packing.unpack(parts, tmp_path / "there")
    assert folder.name == paused.folder.name
    moved = order_of("smoke", tmp_path / "there")
    said: list[str] = []
    assert await run(replace(moved, only=("solo",)), Clock(minutes=9), said.append)
    assert steps(moved) == [1, 2, 3, 4]
    assert not await run(moved, Clock(minutes=0), said.append)
    assert "out of time" in said[-1] and not result.result_of(moved)["finished"]
    assert await run(moved, Clock(minutes=9), said.append)
    heard = len(said)
    assert await run(moved, Clock(minutes=0), said.append)
    assert len(said) == heard, "a finished run does nothing more"
    with pytest.raises(ConfigError, match=r"train\.group differ"):
        await run(replace(moved, overrides=("train.group=9",)), Clock(minutes=0), said.append)
    result.note_call(moved, 1.0)

    written = result.write(moved, tmp_path / "results")
    tree = json.loads(written.read_text())
    budget = json.loads((moved.folder / "budget.json").read_text())
    assert tree["config"]["budget"]["tokens"] == round(0.5 * budget["untrained"]) > 10
    assert tree["finished"] and tree["training"]["steps"] == 4 and len(tree["calls"]) == 2
    assert list(tree["evaluations"]) == ["solo", "trained", "reworded"]
    assert tree["training"]["validation"]["step"] == [0, 2, 4]
    solo, team = tree["evaluations"]["solo"], tree["evaluations"]["trained"]
    assert len(solo["right"]) == len(solo["ids"]) == 8 and "base_nats" in team
    assert set(team["calls"]) == {"hinter/hinter", "actor/solver"}
    for task in load_tasks("arithmetic", split="test", limit=8):
        assert task.question not in written.read_text(), "no text of a task is kept"

    page = tmp_path / "docs" / "results.md"
    arguments = ["--results", str(tmp_path / "results"), "--page", str(page)]
    assert tables.main(arguments) == 0
    assert "smoke, seed 0" in page.read_text()
    assert tables.main([*arguments, "--check"]) == 0
    written.write_text(written.read_text().replace('"steps": 4', '"steps": 5'))
    assert tables.main([*arguments, "--check"]) == 1


def test_the_command_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--runs", str(tmp_path), "--out", str(tmp_path / "out")]
    (tmp_path / "smoke-s0").mkdir()
    for arguments, complaint in (
        ([], "name an experiment"),
        (["hnt"], "did you mean"),
        (["smoke"], "--resume"),
        (["hint-small"], "--small"),
        (["smoke", "--resume", "--only", "sollo"], "there are: solo, trained"),
        (["smoke", "--resume", "train.stepz=1"], "train.stepz"),
    ):
        assert main([*arguments, *places]) == 2
        assert complaint in capsys.readouterr().err.replace("Did", "did")


def test_weights_of_another_run_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data_dir: Path
) -> None:
    places = ["--runs", str(tmp_path), "--out", str(tmp_path / "out"), "--data", str(data_dir)]
    assert main(["collaborator-elsewhere", *places]) == 2
    assert "run that with seed 0 first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("tacit.learn.assemble.build_policies", "memory is full"),
        ("tacit.learn.microbatch.score", "out of memory while learning"),
        ("tacit.engine.local.why_not_slots", "out of memory: lower the model's `rows`"),
    ],
)
def test_a_full_device_is_one_sentence_and_to_be_continued(
    place: str,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(place, full)
    assert main(["smoke", "--runs", str(tmp_path), "--out", str(tmp_path / "out")]) == 75
    assert told in (said := capsys.readouterr().err) and said.count("\n") == 1


# --- packing -------------------------------------------------------------------------------------


def test_packing_keeps_what_it_says(
    paused: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = paused
    checkpoints = order.folder / "train" / "checkpoints"
    last = f"step-{json.loads((checkpoints / 'last.json').read_text())['step']:06d}"
    before = load_file(checkpoints / last / "policy-team.safetensors")
    moments = load_file(checkpoints / last / "optimizer-team.safetensors")
    assert moments
    for kind in packing.DTYPES:
        parts = packing.pack(order.folder, tmp_path / kind, optimizer=kind)
        (folder,) = packing.unpack(parts, tmp_path / f"{kind}-back")
        moved = folder / "train" / "checkpoints" / last
        after = load_file(moved / "policy-team.safetensors")
        for name, weight in before.items():
            assert after[name].dtype == torch.float32
            assert torch.allclose(after[name], weight, rtol=2**-8, atol=0)
        kept = load_file(moved / "optimizer-team.safetensors")
        assert kept.keys() == ({} if kind == "none" else moments).keys()
        if kind == "float32":
            assert all(torch.equal(kept[name], moments[name]) for name in kept)
        assert not (folder / "test").exists()

    with pytest.raises(ConfigError, match="exists"):
        packing.unpack(parts, tmp_path / f"{kind}-back")
    monkeypatch.setattr(packing, "PART_BYTES", 20_000)
    small = packing.pack(order.folder, tmp_path / "small")
    assert len(small) > 2 and all(part.stat().st_size <= 20_000 for part in small)
    with pytest.raises(ConfigError, match="missing or damaged"):
        packing.unpack(small[:-1], tmp_path / "torn")
    monkeypatch.setattr(packing, "TOTAL_BYTES", 20_000)
    with pytest.raises(ConfigError, match="lower rank"):
        packing.pack(order.folder, tmp_path / "large")


@pytest.mark.parametrize(("trained", "kept"), [(True, 1), (False, 2)])
def test_where_one_checkpoint_fits_it_is_the_one_still_needed(
    trained: bool, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, state = tmp_path / "some-s0", {"files": {"policy-team.safetensors": ""}}
    for step, which in ((1, "best"), (2, "last")):
        folder = run / "train" / "checkpoints" / f"step-{step:06d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps(state))
        save_file({"w": torch.full((4096,), step)}, folder / "policy-team.safetensors")
        (folder.parent / f"{which}.json").write_text(json.dumps({"step": step}))
    if trained:
        (run / "trained.json").write_text("{}")
    both = b"".join(part.read_bytes() for part in packing.pack(run, tmp_path / "both"))
    monkeypatch.setattr(packing, "TOTAL_BYTES", len(both) - 1)
    parts = packing.pack(run, tmp_path / "one")
    (folder,) = packing.unpack(parts, tmp_path / "there")
    saved = list((folder / "train" / "checkpoints").glob("step-*"))
    assert [path.name for path in saved] == [f"step-{kept:06d}"]
    assert load_file(saved[0] / "policy-team.safetensors")["w"][0] == kept


# --- outcomes ------------------------------------------------------------------------------------


def call(agent: str, part: str, text: str, tokens: int, silent: bool = False) -> Call:
    return Call(
        agent=agent,
        model="m",
        messages=(ChatMessage("user", "?"),),
        text=text,
        stop=Stop.EOS,
        usage=Usage(prompt=10 * tokens, generated=tokens),
        silent=silent,
        part=part,
        path_tokens=tokens,
    )


def episode(task: str, right: bool | None, *calls: Call) -> Episode:
    grade = None if right is None else Grade(reward=float(right), right=right, answer="so 42")
    return Episode(task_id=task, sample=0, calls=calls, grade=grade, error=None if grade else "x")


def test_columns_say_who_spent_what_and_hold_no_text() -> None:
    tasks = [Task(id=f"set/test/{n}", question="Q", answer="42", grader="math") for n in range(3)]
    solver = call("actor", "solver", "so 42", 30)
    episodes = [
        episode(tasks[2].id, None, call("hinter", "hinter", "think", 4)),
        episode(tasks[0].id, True, call("hinter", "hinter", "it is 42", 5), solver),
        episode(tasks[1].id, False, call("hinter", "hinter", "", 2, silent=True), solver),
    ]
    found = columns(episodes, tasks)
    assert (found["tasks"], found["ids"]) == ("set/test", ["0", "1", "2"])
    assert (found["right"], found["leak"]) == ("10-", "1-0")
    assert found["calls"]["hinter/hinter"] == {
        "generated": [5, 2, 4], "read": [50, 20, 40], "calls": 1, "silent": [0, 1, 0], "cut": 0,
    }  # fmt: skip
    assert found["calls"]["actor/solver"]["generated"] == [30, 30, 0]
    read, other, failed = found["answer"]
    assert len(read) == 8 and read != other and failed == "", "a hash, and another for each task"
    again = columns([episode(tasks[0].id, False, solver)], tasks[:1])
    assert again["answer"] == [read], "the same answer to the same task"
    assert "logprob" not in found["calls"]["actor/solver"], "an engine that knows none"
    said = replace(solver, output_ids=(1, 2), logprobs=(-0.5, -0.25))
    known = columns([episode(tasks[0].id, True, said, said)], tasks[:1])
    assert known["calls"]["actor/solver"]["logprob"] == -1.5
    assert "so 42" not in json.dumps(found) and "think" not in json.dumps(found)
    some = chosen(found, ["2", "0"])
    assert some["right"] == "-1" and some["calls"]["hinter/hinter"]["generated"] == [4, 5]
    assert spread(7, 2) == [7, 7] and spread("01", 2) == ["0", "1"]


# --- the page ------------------------------------------------------------------------------------


def recorded(right: str, tokens: list[int], silent: list[int] | None = None, **more: Any) -> Any:
    kinds = {"actor/solver": {"generated": tokens, "read": 9, "calls": 1, "silent": 0, "cut": 0}}
    if silent is not None:
        kinds["hinter/hinter"] = {
            "generated": 3, "read": 5, "calls": 1, "silent": silent, "cut": 0,
        }  # fmt: skip
    return {
        "tasks": "gsm8k/test", "ids": [str(n) for n in range(len(right))], "right": right,
        "leak": "-" * len(right), "path": tokens, "calls": kinds, "seconds": 1.0,
        "team": {"agents": {}}, **more,
    }  # fmt: skip


def results_of(tmp_path: Path, **runs: dict[str, Any]) -> Results:
    for name, evaluations in runs.items():
        experiment, _, seed = name.rpartition("_")
        tree = {
            "experiment": experiment.replace("_", "-"), "seed": int(seed), "finished": True,
            "calls": [], "evaluations": evaluations,
        }  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    return Results.read(tmp_path)


def test_differences_are_paired_by_task_over_seeds(tmp_path: Path) -> None:
    n = 200
    solo = "1" * 100 + "0" * 100
    better = "1" * 140 + "0" * 60
    results = results_of(
        tmp_path,
        baselines_0={"solo": recorded(solo, [10] * n)},
        hint_0={"trained": recorded(better, [12] * n)},
        hint_1={"trained": recorded(better[:120] + "0" * 80, [14] * n)},
    )
    first, second = results.measured("baselines", "solo"), results.measured("hint", "trained")
    assert first and second
    assert second.accuracy.mean == pytest.approx(0.65)
    assert second.generated == pytest.approx(13)
    assert second.total == pytest.approx(22)
    test = difference(first, second)
    assert test and test.difference.mean == pytest.approx(0.15) and test.tasks == n
    assert test.p == mcnemar(0, 20), "the weaker seed's"
    assert 0.05 < test.difference.low < 0.1 < 0.15 < test.difference.high < 0.3
    backwards = difference(second, first)
    assert backwards and backwards.difference.mean == pytest.approx(-0.15)


def test_a_failed_episode_counts_nowhere(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        baselines_0={
            "solo": recorded("1-0", [10, 99, 20]),
            "untrained hint": recorded("11-", [10, 10, 10]),
        },
    )
    solo, hint = (results.measured("baselines", name) for name in ("solo", "untrained hint"))
    assert solo and hint
    assert solo.accuracy.mean == 0.5 and solo.generated == 15
    test = difference(solo, hint)
    assert test and test.tasks == 1 and test.difference.mean == 0


def test_the_bars_can_hold_and_can_be_missed(tmp_path: Path) -> None:
    n = 1000
    teams = {
        "solo": recorded("1" * 500 + "0" * 500, [300] * n),
        "untrained hint": recorded("1" * 400 + "0" * 600, [420] * n),
        "self-consistency": recorded("1" * 620 + "0" * 380, [2400] * n, right_calls=4),
        "role assignment": recorded("1" * 580 + "0" * 420, [380] * n),
    }
    for accuracy, verdict in ((560, "holds"), (540, "missed")):
        hint = {"trained": recorded("1" * accuracy + "0" * (n - accuracy), [400] * n)}
        rows = bars_table(results_of(tmp_path, baselines_0=teams, hint_0=hint)).splitlines()
        verdicts = {row.split("|")[1].strip(): row.split("|")[3].strip() for row in rows}
        assert verdicts["trained hint ≥ solo + 5 points, p < 0.01"] == verdict
        assert verdicts["trained hint generates no more than the untrained hint"] == "holds"
        assert (
            verdicts[
                "trained hint at least as accurate as role assignment (mean), with fewer tokens"
            ]
            == "missed"
        )
        assert verdicts["trained hint ≤ 20 % of the tokens of self-consistency (8)"] == "holds"
        assert verdicts["trained hint ≤ 8 % of the tokens of EvoAgent"] == "not measured yet"


@pytest.mark.parametrize(
    ("quiet_easy", "quiet_hard", "verdict"),
    [(20, 20, "missed"), (18, 2, "holds"), (2, 18, "missed"), (0, 0, "missed")],
)
def test_silence_is_conditional_where_it_follows_the_problem(
    tmp_path: Path, quiet_easy: int, quiet_hard: int, verdict: str
) -> None:
    n = 20
    silent = [1] * quiet_easy + [0] * (n - quiet_easy) + [1] * quiet_hard + [0] * (n - quiet_hard)
    team = recorded("1" * 40, [5] * 40, silent)
    alone = recorded("1" * 40, [5] * 40, right_calls=[8] * n + [0] * n)
    results = results_of(
        tmp_path, gspo_0={"trained": team}, baselines_0={"self-consistency": alone}
    )
    (row,) = [one for one in bars_table(results).splitlines() if "silent more often" in one]
    assert row.split("|")[3].strip() == verdict


def test_a_check_of_one_seed_is_compared_with_that_seed(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        hint_0={"trained": recorded("1111", [5] * 4), "reworded": recorded("1110", [5] * 4)},
        hint_1={"trained": recorded("0000", [5] * 4)},
    )
    (row,) = codes_table(results).splitlines()[2:]
    assert row.split("|")[4].strip().startswith("-25.0 [")


def test_leaks_are_those_of_every_trained_team_that_may_speak(tmp_path: Path) -> None:
    elsewhere = {"tasks": "math500/test", "leak": "1--0"}
    results = results_of(
        tmp_path,
        baselines_0={"solo": recorded("1100", [5] * 4)},
        baselines_dialogue_0={"solo, math500": recorded("0001", [5] * 4, **elsewhere)},
        hint_0={"trained": recorded("1110", [5] * 4, leak="1010")},
        actor_finetune_0={"trained": recorded("1111", [5] * 4)},
        gspo_0={"trained": recorded("1101", [5] * 4)},
        gspo_math_0={"trained": recorded("1001", [5] * 4, **elsewhere)},
        math_hint_100_0={"trained": recorded("1111", [5] * 4, **elsewhere)},
        since_removed_0={"trained": recorded("0000", [5] * 4, leak="0000")},
    )
    rows = [
        [re.sub(r" \[.*?\], p [^ ]*", "", cell).strip() for cell in line.split("|")[1:-1]]
        for line in leaks_table(results).splitlines()[2:]
    ]
    assert rows == [
        ["since-removed", "0.0", "", "0.0", "-50.0", "-50.0 on 4", "-50.0"],
        ["hint", "50.0", "100.0", "50.0", "+25.0", "+0.0 on 2", "+0.0"],
        ["gspo", "nothing said", "", "", "+25.0", "", ""],
        ["gspo-math", "50.0", "100.0", "100.0", "+25.0", "+0.0 on 3", "+0.0"],
    ]


def test_base_loss_is_that_of_every_trained_team_that_may_speak() -> None:
    results = Results.read()
    lines = codes_table(results).splitlines()[2:]
    shown = {row[0]: row[1] for row in ([c.strip() for c in x.split("|")[1:3]] for x in lines)}
    trained = {name for name in results.runs if results.measured(name, "trained")}
    assert shown.keys() == trained - {"actor-finetune"}
    assert [name for name, loss in shown.items() if "→" not in loss] == []


def test_helped_and_harmed_are_counted_where_it_spoke(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        baselines_0={
            "solo": recorded("1100", [5] * 4),
            "self-consistency": recorded("1100", [5] * 4, right_calls=[8, 8, 0, 0]),
        },
        silence_arms_0={"trained": recorded("0110", [5] * 4, silent=[0, 1, 0, 0])},
    )
    rows = [line.split("|") for line in difficulty_table(results, "silence-arms").splitlines()]
    found = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in rows}
    assert found["8 of 8"] == ["2", "50.0", "50.0", "100.0", "50.0", "0.0", "100.0", "0.0"]
    assert found["0 of 8"] == ["2", "0.0", "100.0", "0.0", "50.0", "50.0", "0.0", "50.0"]
    assert found["all"][:3] == ["4", "25.0", "75.0"]


def test_every_block_and_plot_survives_any_part_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experiments come one by one: the page must be there after each."""
    monkeypatch.setattr(records, "RESAMPLES", 50)
    generator = np.random.default_rng(0)
    template = tables.TEMPLATE.read_text(encoding="utf-8")
    curves = {
        "accuracy/sampled", "cost/tokens", "silence/hinter", "train/gradient_norm",
        "train/base_loss", "lambda/tokens", *re.findall(r"\{\{curve [^|]+\| ([^|]+) \|", template),
    }  # fmt: skip
    agents = set(re.findall(r"\{\{(?:tokens_by|cut) [^|]+\|[^|]+\| ([^|}]+)\}\}", template))
    training = {
        "steps": 80,
        "best_step": 2,
        "seconds": {"rollout": 1.0, "update": 1.0, "evaluate": 1.0},
        "validation": {
            "step": [*range(81)], "accuracy": [0.1, 0.1, 0.2] * 27, "tokens": [9.0] * 81,
        },
        "curves": {name: [0.1, 0.2] * 40 for name in sorted(curves)},
    }  # fmt: skip
    tree: dict[str, Any] = {}
    for experiment in EXPERIMENTS.values():
        for seed in experiment.seeds:
            evaluations = {
                name: recorded(
                    "".join(generator.choice(["0", "1"], 40)),
                    [int(x) for x in generator.integers(1, 99, 40)],
                    silent=[int(x) for x in generator.integers(0, 2, 40)],
                    right_calls=[int(x) for x in generator.integers(0, 9, 40)],
                    base_nats=9.0,
                    base_tokens=3,
                )
                for name in experiment.evaluations
            }
            for one in evaluations.values():
                missing = agents - one["calls"].keys()
                one["calls"] |= dict.fromkeys(missing, one["calls"]["actor/solver"])
            tree = {
                "experiment": experiment.name, "seed": seed, "finished": True,
                "calls": [{"seconds": 1.0, "device": "GPU", "date": "2026-01-01"}],
                "evaluations": evaluations,
            }  # fmt: skip
            if experiment.trains:
                tree["training"] = training
            (tmp_path / f"{experiment.name}-s{seed}.json").write_text(json.dumps(tree))
        tables.render(template, Results.read(tmp_path))
    kept = [name for name in Results.read(ROOT / "experiments" / "results").runs if "+" in name]
    for name in ("hint+faster", *kept):  # the page speaks of some of those that were kept
        variant = tree | {
            "experiment": name, "overrides": ["optimizer.learning_rate=1e-4"],
            "evaluations": dict.fromkeys(
                EXPERIMENTS[name.partition("+")[0]].evaluations, evaluations["trained"]
            ),
            "training": training,
        }  # fmt: skip
        for seed in range(3):
            path = tmp_path / f"{name}-s{seed}.json"
            path.write_text(json.dumps(variant | {"seed": seed}))
    page = tables.render(template, Results.read(tmp_path))
    assert "`optimizer.learning_rate=1e-4`" in page and "20.0 at step 2" in page
    assert "not measured yet" not in page.lower() and "Not run" not in page
    assert "{{" not in page and not re.search(r"\bnan\b", page)
    pictures = tables.files(Results.read(tmp_path), tmp_path / "docs" / "results.md")
    assert len(pictures) == 1 + len(tables.PLOTS)
    for path, text in pictures.items():
        if path.suffix == ".svg":
            assert ElementTree.fromstring(text).tag.endswith("svg") and "nan" not in text


def test_a_wrong_slot_is_named() -> None:
    wrong = ("{{mian}}", "{{accuracy hint}}", "{{plot frontir}}", "{{setting hint.trian.steps}}")
    for slot in wrong:
        with pytest.raises(ConfigError, match=re.escape(slot[2:6]) if "acc" not in slot else "acc"):
            tables.render(f"x {slot}", Results())


ADDRESSES = re.compile(
    r"""[A-Za-z][\w.-]*\d[\w.-]* | ^\#\#\ \d\. | \b4-bit | \b1\.5\ billion | 7,473 | 1,319
    | sections?\ \d | ([Ss]teps?|[Ss]eeds?|agents?|levels)\ \d+(\ (and|to)\ \d+)? | λ\ =\ 0
    | (temperature|sample\ at)\ (1|0\.7) | [Aa]t\ (0\.1|0\.3|1\.0)\ (the|on|nobody)
    | are\ 95\ % | the\ 95\ %\ lower\ bound | −1\ point | \+\ 5\ points""",
    re.MULTILINE | re.VERBOSE,
)
"""Digits that nobody measured: names, splits, rules, prices that runs are called by, places."""


def test_no_number_of_the_page_is_written_by_hand() -> None:
    """What was measured comes out of a slot, in sentences as in tables."""
    prose = re.sub(r"\{\{.*?\}\}", "", tables.TEMPLATE.read_text(encoding="utf-8"))
    left = ADDRESSES.sub("", re.sub(r"(?<!\n)\n(?![\n#])", " ", prose))
    assert not [left[max(0, m.start() - 30) : m.end() + 9] for m in re.finditer(r"\d", left)]


def test_every_number_in_a_sentence_was_measured() -> None:
    """A slot that names a run, a curve or a step that is not there would say so on the page."""
    results, lacking = Results.read(), []
    for slot in re.finditer(r"\{\{(\w+) [^{}]*\}\}", tables.TEMPLATE.read_text(encoding="utf-8")):
        said = tables.render(slot[0], results) if slot[1] not in ("plot", "pending") else ""
        if NOTHING in said or re.search(r"\b(nan|inf)\b", said):
            lacking.append(slot[0])
    assert not lacking


def test_numbers_for_sentences_are_those_of_the_files(tmp_path: Path) -> None:
    training = {
        "steps": 4, "best_step": 2, "seconds": {},
        "validation": {"step": [0, 2], "accuracy": [0.5, 0.625], "tokens": [90.4, 31.6]},
        "curves": {
            "silence/hinter": [0.034, 0.2, 0.9986, 1.2e-9], "lambda/tokens": [0, 0.1, 0.2, 0.4],
        },
    }  # fmt: skip
    for seed, right in enumerate(("1100", "1111")):
        tokens = [10, 20, 30, 40] if not seed else [20, 40, 60, 80]
        team = recorded(right, tokens, silent=[1, 1, 0, 0])
        team["calls"]["actor/solver"] |= {"calls": 2, "cut": [2, 0, 0, 0]}
        alone = recorded("1100", [5] * 4, right_calls=[8, 6, 2, 0])
        tree = {
            "experiment": "hint", "seed": seed, "finished": True, "calls": [],
            "evaluations": {"trained": team}, "training": training | {"steps": 4 + seed},
        }  # fmt: skip
        (tmp_path / f"hint-s{seed}.json").write_text(json.dumps(tree))
        tree |= {"experiment": "baselines", "evaluations": {"self-consistency": alone}}
        (tmp_path / "baselines-s0.json").write_text(json.dumps(tree | {"seed": 0}))
    results = Results.read(tmp_path)
    found = {
        "steps hint@1": "5", "best hint": "2", "right hint@1 | trained": "4 of 4",
        "right hint | trained": NOTHING, "tokens hint | trained": "40",
        "tokens hint@0 | trained": "28", "accuracy hint@1 | trained": "100.0 [51.0, 100.0] %",
        "validated hint | best | accuracy": "62.5", "validated hint | 0 | tokens": "90",
        "validated hint | 1 | tokens": NOTHING, "silent hint | trained": "50.0",
        "silent hint | trained | easy": "100.0", "silent hint | trained | hard": "0.0",
        "silent hint | trained | hrad": NOTHING, "spoke hint@1 | trained": "2",
        "spoke hint | trained": NOTHING,
        "curve hint | silence/hinter | 1": "3.4", "curve hint | silence/hinter | 3": "99.8",
        "curve hint | silence/hinter | last": "1.2e-7", "curve hint | lambda/tokens | 2-3": "0.15",
        "curve hint | lambda/tokens | 1- | range": "0 to 0.40",
        "curve hint | lambda/tokens | 5": NOTHING, "curve hint | lambda/turns | 1": NOTHING,
        "curve hint@2 | lambda/tokens | 1": NOTHING,
        "gap hint | silence/hinter | lambda/tokens | 1-2": "+6.7",
        "gap hint | silence/hinter | lambda/turns | 1-2": NOTHING,
        "tokens_by hint@0 | trained | actor/solver": "12",
        "tokens_by hint | trained | critic/critic": NOTHING,
        "cut hint | trained | actor/solver": "25",
        "part hint@0 | trained | hint@1 | trained": "53", "minutes hint | gspo-talk": "14",
    }  # fmt: skip
    assert {slot: tables.render(f"{{{{{slot}}}}}", results) for slot in found} == found


def test_the_page_is_what_the_committed_results_give() -> None:
    for path, text in tables.files(Results.read()).items():
        name = path.relative_to(ROOT)
        assert path.exists(), f"{name} is missing: run `python -m experiments.tables`"
        shown = path.read_text(encoding="utf-8")
        assert shown == text, f"{name} differs: run `python -m experiments.tables`"
