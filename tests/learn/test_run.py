"""`tacit train` on tiny runs: the same again, the same after being killed, and clear refusals."""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.cli.training import run_training
from tacit.config.file import parse_config
from tacit.engine.load import POCKET_FOLDER
from tacit.errors import ConfigError, RunError
from tacit.learn.assemble import open_training
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.learners import Learners
from tacit.learn.loop import Trainer
from tacit.learn.state import within
from tacit.run.folder import RunFolder
from tacit.types import Grade, Task
from tests.helpers.soaks import keep
from tests.helpers.training_runs import (
    after_lines,
    finish,
    kill_when,
    lines,
    random_moment,
    saving,
    start,
    tiny_config,
    tree,
)


@pytest.fixture(autouse=True)
def plain_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def metrics(run: Path) -> bytes:
    return (run / "metrics.jsonl").read_bytes()


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in metrics(run).splitlines()]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    (folder / "tiny.json").write_text(json.dumps(tree()), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def whole(here: Path) -> Path:
    """A run that nobody disturbed."""
    finish(start(here, "tiny.json", "--out", "whole"))
    return here / "whole"


async def test_talk_that_overflows_is_learned_from_and_charged(tmp_path: Path) -> None:
    agents = {
        "hinter": {"max_tokens": 80, "trained": True},
        "actor": {"max_tokens": 16, "max_input_tokens": 80},
    }
    config = tiny_config(
        team={"agents": agents}, silence={"warmup_steps": 0}, train={"steps": 2, "group": 6}
    )
    told = await run_training(config, tmp_path / "run")
    steps = [line for line in records(tmp_path / "run") if "reward/total" in line]
    assert told["dropped"] == 0 and len(steps) == 2
    assert all(0 < line["episodes/overflowed"] < 12 for line in steps)
    lines = (tmp_path / "run/episodes/train.jsonl").read_text(encoding="utf-8").splitlines()
    played = [json.loads(line) for line in lines]
    over = [episode for episode in played if episode["error"]]
    assert len(played) == 24 and sum(s["episodes/overflowed"] for s in steps) == len(over)
    assert all(e["reward"]["task"] == 0 and e["calls"][0]["usage"]["generated"] for e in over)
    spent = sum(c["usage"]["generated"] for e in played[:12] for c in e["calls"]) / 12
    assert sum(steps[0][f"tokens/{agent}"] for agent in agents) == pytest.approx(spent)


def test_a_run_says_what_happened(whole: Path) -> None:
    found = records(whole)
    steps = [line["step"] for line in found if "reward/total" in line]
    assert steps == [1, 2, 3, 4, 5]
    assert [line["step"] for line in found if "eval/accuracy" in line] == [0, 3, 5]
    for name in (
        "accuracy/policy",
        "cost/tokens",
        "lambda/tokens",
        "silence/hinter",
        "tokens/hinter",
        "train/gradient_norm",
        "train/entropy",
        "train/engine_gap",
        "train/base_loss",
        "train/clip_fraction",
        "groups/too_hard",
    ):
        assert name in found[1], name
    assert [line["silence/warming"] for line in found if "reward/total" in line][:3] == [1, 1, 0]
    assert all(line["train/engine_gap"] < 1e-3 for line in found if "reward/total" in line)
    assert not any(name.endswith("_s") for line in found for name in line)
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["steps"] == 5 and summary["stopped"] is None
    assert list(summary["teams"]) == ["untrained", "trained"]
    kept = {path.name for path in (whole / "checkpoints").iterdir()}
    assert {"last.json", "best.json", "step-000005"} <= kept and len(kept) <= 4


def test_the_same_seed_gives_the_same_bytes(here: Path, whole: Path) -> None:
    """In another process, and so with other hash seeds."""
    finish(start(here, "tiny.json", "--out", "again", warm=False))
    assert metrics(here / "again") == metrics(whole)


def test_killed_twice_and_resumed_it_is_the_run_that_was_never_killed(
    here: Path, whole: Path
) -> None:
    run, draw = here / "killed", random.Random()
    delay = draw.uniform(0.0, 0.4)
    print(f"the first kill comes {delay:.3f} s after a line")
    assert kill_when(
        start(here, "tiny.json", "--out", "killed"), after_lines(run, draw.randrange(1, 4), delay)
    )
    kill_when(start(here, "killed"), saving(run))
    finish(start(here, "killed"))
    assert metrics(run) == metrics(whole)
    assert not list((run / "checkpoints").glob(".*"))
    before, after = (json.loads((r / "summary.json").read_text()) for r in (whole, run))
    assert {**before, "teams": 0} == {**after, "teams": 0}


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_told_to_end_it_saves_says_so_and_goes_on_to_the_same_result(
    here: Path, whole: Path, how: signal.Signals, code: int
) -> None:
    run = here / how.name
    process = start(here, "tiny.json", "train.checkpoint_every=100", "--out", how.name)
    while lines(run) < 3 and process.poll() is None:  # the first evaluation and two steps
        time.sleep(0.001)
    process.send_signal(how)
    _, said = process.communicate()
    last = Checkpoints(run / "checkpoints").step("last")
    assert process.returncode == code and last is not None and last >= 2
    assert f"saved after step {last}\n" in said
    assert said.endswith("stopped; the same command goes on from what was saved\n")
    finish(start(here, how.name))
    assert metrics(run) == metrics(whole)


@pytest.mark.parametrize("times", [1, 3])
async def test_told_to_end_while_it_learns_it_first_finishes_that(
    tmp_path: Path, whole: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(train={"checkpoint_every": 100})
    changing = Learners.changing

    @asynccontextmanager
    async def told(learners: Learners) -> AsyncIterator[None]:
        for _ in range(times):
            training.cancel()
            for _ in range(3):  # until that has arrived
                await asyncio.sleep(0)
        async with changing(learners):
            yield

    with monkeypatch.context() as patch:
        patch.setattr(Learners, "changing", told)
        training = asyncio.create_task(run_training(config, tmp_path))
        with pytest.raises(asyncio.CancelledError):
            await training
    assert Checkpoints(tmp_path / "checkpoints").step("last") == 1
    await run_training(config, tmp_path)
    assert metrics(tmp_path) == metrics(whole)


async def test_told_to_end_in_its_last_evaluation_it_saves_and_makes_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(train={"evaluate_every": 0, "checkpoint_every": 100})
    evaluate, said = Trainer._evaluate, list[str]()

    async def told(trainer: Trainer) -> None:
        if trainer.state.step:
            raise asyncio.CancelledError
        await evaluate(trainer)

    async def train() -> str | None:
        async with open_training(config) as made:
            trainer = Trainer(made, RunFolder(tmp_path), on_note=said.append)
            trainer.enough = lambda: "time is up" if trainer.state.step >= 2 else None
            return (await trainer.train()).stopped

    for times in (1, 2):  # while it ends, and while it makes up for that
        with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
            patch.setattr(Trainer, "_evaluate", told)
            await train()
        assert Checkpoints(tmp_path / "checkpoints").step("last") == 2
        assert said.count("saved after step 2") == times
    assert await train() == "time is up"
    assert [line["step"] for line in records(tmp_path)] == [0, 1, 2, 2]


async def test_stopped_in_its_first_step_it_does_not_evaluate_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of step 0 knows of the evaluation that came before it."""
    config = tiny_config(train={"steps": 1})

    async def stop(trainer: Trainer) -> None:
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="stopped"):
        patch.setattr(Trainer, "_step", stop)
        await run_training(config, tmp_path)
    assert [line["step"] for line in records(tmp_path)] == [0]
    await run_training(config, tmp_path)
    assert [line["step"] for line in records(tmp_path)] == [0, 1, 1]
    state = Checkpoints(tmp_path / "checkpoints").state(1)
    assert state["worse"] + (state["best"]["step"] == 1) == 1


async def test_paused_and_gone_on_it_is_the_run_that_was_never_paused(
    tmp_path: Path, whole: Path
) -> None:
    config = tiny_config()
    for until in (2, 9):
        async with open_training(config) as made:
            trainer = Trainer(made, RunFolder(tmp_path))
            trainer.pause = lambda t=trainer, n=until: t.state.step >= n
            state = await trainer.train()
        assert state.step == min(until, 5) and state.stopped is None
    assert metrics(tmp_path) == metrics(whole)


async def test_the_settings_of_silence_reach_those_who_use_them(tmp_path: Path) -> None:
    silence = {"warmup_steps": 7, "warmup_gain": 0.5, "solved_weight": 0.25}
    async with open_training(tiny_config(silence=silence)) as made:
        trainer = Trainer(made, RunFolder(tmp_path))
    assert (trainer.state.warmup.limit, trainer.state.warmup.gain) == (7, 0.5)
    assert trainer.credit.config.silence.solved_weight == 0.25


async def test_going_on_in_a_finished_folder_changes_nothing(whole: Path) -> None:
    before = metrics(whole)
    await run_training(tiny_config(), whole)
    assert metrics(whole) == before


@pytest.mark.soak
def test_twenty_kills(here: Path, whole: Path) -> None:
    """`kill -9` at 20 random moments, some of them while a checkpoint is being written."""
    seed = int(os.environ.get("TACIT_SOAK_SEED", "0"))
    draw, kills, runs = random.Random(seed), [], 0
    while len(kills) < 20:
        runs += 1
        run, source, resumed = here / f"soak-{runs}", "tiny.json", 0
        while len(kills) < 20:
            kind, moment = random_moment(run, draw)
            half_saved = saving(run)
            process = start(here, source, *(() if source != "tiny.json" else ("--out", run.name)))
            if not kill_when(process, moment):
                break
            kills.append({"run": runs, "moment": kind, "half_saved": half_saved()})
            source = run.name if (run / "config.json").exists() else "tiny.json"
            resumed += 1
        finish(start(here, source, *(() if source != "tiny.json" else ("--out", run.name))))
        assert metrics(run) == metrics(whole), f"run {runs} differs after {resumed} kills"
    result = {
        "what": "kill -9 at random moments, resumed: metrics.jsonl equal to the undisturbed run's",
        "command": f"TACIT_SOAK_SEED={seed} pytest -m soak tests/learn/test_run.py",
        "kills": len(kills),
        "while_saving": sum(kill["half_saved"] for kill in kills),
        "runs": runs,
        "equal": True,
        "moments": kills,
    }
    keep("resume_soak.json", result)
    assert result["while_saving"] > 0, "no kill hit a checkpoint; try another TACIT_SOAK_SEED"


def agents(**hinter: Any) -> dict[str, Any]:
    return {
        "topology": "hint_actor",
        "agents": {
            "hinter": {"max_tokens": 32, "trained": True, **hinter},
            "actor": {"max_tokens": 16},
        },
    }


DIALOGUE = {
    "topology": "dialogue",
    "agents": {"agent": {"count": 2, "max_tokens": 32, "trained": True}},
}
FAR = {"far": {"engine": "api", "model": "x", "base_url": "http://localhost:1"}}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"team": None}, "nothing to train: the config has no `team:`"),
        (
            {"teams": {"trained": {"topology": "solo", "agents": {"actor": {}}}}},
            "`trained` is what training calls its own",
        ),
        ({"train_tasks": None}, "nothing to train on: add `train_tasks:`"),
        ({"team": agents(trained=False)}, "nothing to train: set `trained: true`"),
        ({"train": {"group": 1}}, r"train\.group: input should be greater than or equal to 2"),
        ({"budget": {"tokens": 0}}, r"budget\.tokens: input should be greater than 0"),
        (
            {"budget": {"tokens": 3}},
            r"budget\.tokens = 3 is below what the frozen agents of an episode cost",
        ),
        ({"budget": {"turns": 0.5}}, r"budget\.turns = 0\.5 is below what an episode cost when"),
        (
            {"models": FAR, "team": agents(model="far")},
            r"team\.agents\.hinter: a model behind an API cannot be trained",
        ),
        (
            {"team": agents(top_p=0.9)},
            r"team\.agents\.hinter: a trained agent samples with top_p 1",
        ),
        ({"team": agents(top_k=5)}, r"team\.agents\.hinter: a trained agent samples with top_p 1"),
        ({"team": agents(temperature=0.5)}, "a trained agent samples at 1"),
        (
            {"models": {"half": {"dtype": "float16"}}, "team": agents(model="half")},
            r"models\.half\.dtype: gradients vanish in float16; train in bfloat16",
        ),
        ({"train": {"trackers": ["tensorbord"]}}, "did you mean `tensorboard`"),
        (
            {"train": {"trackers": ["tensorboard"]}},
            r"`tensorboard` is not installed: pip install 'tacit\[tensorboard\]'",
        ),
        ({"policy": {"targets": ["c_attn"]}}, r"policy\.targets: `pocket` has no linear layer"),
        ({"reward": {"cap": 1.5}}, r"reward\.cap: input should be less than 1"),
        ({"reward": {"parts": {"mine": "nowhere:part"}}}, "cannot import reward part"),
        (
            {"tasks": {"split": "train", "limit": 40}},
            "every task is also among the held-out tasks",
        ),
    ],
)
async def test_what_cannot_be_trained_is_refused_and_nothing_written(
    changed: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=message) as caught:
        await run_training(parse_config(tree(**changed)), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "tokenizer.json",
            '"normalizer": null',
            '"normalizer": {"type": "Prepend", "prepend": " "}',
            "model `mine`: silence: the silence marker <silent> comes back as ' <silent>'",
        ),
        (
            "chat_template.jinja",
            "{% for message in messages %}",
            "{% for message in messages if message['role'] != 'system' %}",
            "model `mine`: system message: the chat template drops system messages",
        ),
        (
            "tokenizer_config.json",
            '"eos_token": "<|im_end|>"',
            '"eos_token": "<|pad|>"',
            "model `mine`: end of an answer: the chat template ends an answer with <|im_end|>, "
            "the model's files with <|pad|>",
        ),
    ],
)
async def test_a_model_that_the_doctor_fails_is_not_trained(
    file: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(POCKET_FOLDER, tmp_path / "model"))
    assert old in (folder / file).read_text()
    (folder / file).write_text((folder / file).read_text().replace(old, new))
    if file == "tokenizer_config.json":  # nor does the generation config know better
        (folder / "generation_config.json").unlink()
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"eos_token_id": 2', '"eos_token_id": 0'))
    whole = tree(models={"mine": {"path": str(folder)}})
    for agent in whole["team"]["agents"].values():
        agent["model"] = "mine"
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        await run_training(parse_config(whole), tmp_path / "run")
    assert "fix: " in str(caught.value) and not (tmp_path / "run").exists()


async def test_cuts_by_round_may_not_leave_out_every_trained_agent(tmp_path: Path) -> None:
    """Which rounds an agent speaks in is only known once the team has played."""
    for round, refused in ((0, True), (1, False)):
        cut = {"without": [{"agent": "hinter", "round": round}]}
        config = parse_config(tree(team=cut, train={"steps": 1, "evaluate_every": 0}))
        told = pytest.raises(ConfigError, match=r"team\.without: no held-out task asked")
        with told if refused else nullcontext():
            await run_training(config, tmp_path / str(round))
        assert (tmp_path / str(round) / "checkpoints").exists() is not refused


async def test_whoever_learns_to_answer_may_learn_to_be_brief(tmp_path: Path) -> None:
    """The same budget is out of reach where a frozen agent answers."""
    changed = {"silence": {"exploration": "floor"}, "budget": {"tokens": 3}, "team": DIALOGUE}
    config = parse_config(tree(**changed, train={"steps": 1, "evaluate_every": 0}))
    await run_training(config, tmp_path / "run")
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert [line["budget/tokens"] for line in lines if "budget/tokens" in line] == [3]


def test_the_command_line_refuses_with_exit_code_2(here: Path) -> None:
    process = start(here, "tiny.json", "budget.tokens=3", "--out", "refused")
    output, errors = process.communicate()
    assert (process.returncode, output) == (2, "")
    assert errors.splitlines()[-1].startswith("tacit: budget.tokens = 3 is below")
    assert not (here / "refused").exists()


@pytest.mark.parametrize("room", [4096, 600_000])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on(
    room: int, here: Path, whole: Path, small_disk: Path
) -> None:
    """Full before the first episode, and in the middle of the run."""
    free = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(b"x" * (free.f_bavail * free.f_frsize - room))
    process = start(here, "tiny.json", "--out", str(small_disk / "run"))
    _, errors = process.communicate()
    assert process.returncode == 1, errors
    last = errors.splitlines()[-1]
    assert last.startswith("tacit: ")
    assert "disk is full" in last or "could not save the checkpoint" in last
    assert "Traceback" not in errors
    (small_disk / "filler").unlink()
    finish(start(here, "tiny.json", "--out", str(small_disk / "run")))
    assert metrics(small_disk / "run") == metrics(whole)


async def test_a_state_of_the_wrong_types_is_named_and_nothing_is_cut_off(tmp_path: Path) -> None:
    config = tiny_config(train={"steps": 2})
    await run_training(config, tmp_path)
    path, before = tmp_path / "checkpoints" / "step-000002" / "state.json", metrics(tmp_path)
    state = json.loads(path.read_text())
    wrong: list[dict[str, Any]] = [
        {"position": "far"},
        {"duals": 3},
        {"duals": {"tokens": {"value": []}}},
        {"warmup": []},
        {"best": {"step": 2, "rank": 3}},
        {"best": 3},
        {"stopped": {}},
        {"sizes": []},
        {"sizes": {"metrics.jsonl": "all"}},
        {"sizes": {"metrics.jsonl": -1}},
    ]
    for change in wrong:
        path.write_text(json.dumps(state | change), encoding="utf-8")
        with pytest.raises(RunError, match=r"step-000002 cannot be read"):
            await run_training(config, tmp_path)
        assert metrics(tmp_path) == before
    path.write_text(json.dumps(state), encoding="utf-8")
    await run_training(config, tmp_path)


async def test_a_checkpoint_cut_short_is_named_and_the_rest_left_alone(tmp_path: Path) -> None:
    config = tiny_config(train={"steps": 2})
    await run_training(config, tmp_path)
    weights = tmp_path / "checkpoints" / "step-000002" / "policy-team.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:500])
    before = metrics(tmp_path)
    with pytest.raises(RunError, match=r"step-000002.policy-team\.safetensors is damaged"):
        await run_training(config, tmp_path)
    assert metrics(tmp_path) == before
    weights.write_bytes(data)
    await run_training(config, tmp_path)
    assert Checkpoints(tmp_path / "checkpoints").state(2)["step"] == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"silence": {"exploration": "floor"}, "loss": {"sequence": "episode"}},
        {"silence": {"exploration": "none"}, "policy": {"kind": "full"}, "loss": {"name": "dapo"}},
        {
            "team": {**DIALOGUE, "options": {"rounds": 1}},
            "silence": {"exploration": "floor"},
            "loss": {"sequence": "agent", "kl": 0.01},
            "train": {"updates": 2, "dynamic_sampling": 1},
        },
        {
            "team": {
                "topology": "hint_actor",
                "agents": {
                    "hinter": {"max_tokens": 32, "trained": True},
                    "actor": {"max_tokens": 16, "trained": True},
                },
            },
            "policy": {"share": "role"},
        },
        {
            "team": {
                "topology": "solo",
                "agents": {"actor": {"max_tokens": 16, "trained": True}},
            },
            "budget": {"tokens": None},
            "train": {"gradient_checkpointing": True, "advantage": "gdpo"},
        },
    ],
)
async def test_other_teams_and_settings_train_too(changed: dict[str, Any], tmp_path: Path) -> None:
    short = {"steps": 2, "evaluate_every": 0, **changed.get("train", {})}
    config = tiny_config(**{**changed, "train": short})
    result = await run_training(config, tmp_path)
    assert result["steps"] == 2
    floored = config.silence.exploration == "floor"
    for line in records(tmp_path):
        for name, value in line.items():
            assert not name.endswith("dropped") or value == 0
            # Under `floor` messages are not drawn from the policy itself.
            assert not name.endswith("engine_gap") or value < (0.05 if floored else 1e-3)


async def test_the_turns_of_an_evaluation_are_kept_with_the_best(tmp_path: Path) -> None:
    config = tiny_config(budget={"turns": 1.5}, train={"steps": 1, "evaluate_every": 1})
    await run_training(config, tmp_path)
    turns = {
        int(line["step"]): line["eval/turns"] for line in records(tmp_path) if "eval/turns" in line
    }
    assert turns.keys() == {0, 1} and all(1.0 <= value <= 2.0 for value in turns.values())
    best = Checkpoints(tmp_path / "checkpoints").state(1)["best"]
    assert best["turns"] == turns[best["step"]]
    assert best["rank"][0] is (best["turns"] <= 1.1 * 1.5)


async def a_quarter_right(task: Task, text: str) -> Grade:
    return Grade(reward=0.25, right=False)


async def test_answers_that_are_partly_right_choose_the_checkpoint(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    row = {"question": "What is 4 + 5?", "answer": "9", "grader": f"{__name__}:a_quarter_right"}
    tasks.write_text(json.dumps(row) + "\n", encoding="utf-8")
    config = tiny_config(tasks={"name": str(tasks)}, train={"steps": 1, "evaluate_every": 1})
    await run_training(config, tmp_path / "run")
    held_out = [line for line in records(tmp_path / "run") if "eval/accuracy" in line]
    assert [(line["eval/accuracy"], line["eval/reward"]) for line in held_out] == [(0.0, 0.25)] * 2
    assert Checkpoints(tmp_path / "run" / "checkpoints").state(1)["best"]["rank"][1] == 0.25


@pytest.mark.parametrize(("warmup", "said"), [(1, False), (2, True)])
async def test_a_warm_up_as_long_as_the_run_is_pointed_out(
    warmup: int, said: bool, tmp_path: Path
) -> None:
    config = tiny_config(silence={"warmup_steps": warmup}, train={"steps": 2, "evaluate_every": 0})
    notes: list[str] = []
    async with open_training(config) as made:
        await Trainer(made, RunFolder(tmp_path), on_note=notes.append).train()
    assert any("silence.warmup_steps" in note for note in notes) is said


@pytest.mark.parametrize(("control", "kept"), [("dual", False), ("fixed", True)])
@pytest.mark.parametrize(("tokens", "turns"), [(502.0, 2.0), (420.0, 2.9)])
def test_a_checkpoint_keeps_to_its_budgets_unless_prices_are_fixed(
    control: str, kept: bool, tokens: float, turns: float
) -> None:
    config = parse_config({"budget": {"control": control, "tokens": 400, "turns": 2.5}})
    assert within(config.budget, tokens, turns) is kept
    assert within(config.budget, 420.0, 2.7)
    assert within(parse_config({"budget": {"control": control}}).budget, tokens, turns)
