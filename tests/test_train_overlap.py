"""`train.overlap`: one update behind and no more, the same again, the same after being killed."""

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.cli.training import run_training
from tacit.errors import ConfigError
from tacit.learn.credit import Batch, credit
from tacit.learn.learners import Learners
from tacit.learn.setup import open_stage
from tacit.learn.trainer import Trainer
from tacit.learn.update import Gathered
from tacit.run.folder import RunFolder
from training_runs import after_lines, finish, kill_when, start, tiny_config, tree

OVERLAP = {"overlap": True, "checkpoint_every": 2}
DIALOGUE = {
    "team": {
        "topology": "dialogue",
        "agents": {"agent": {"count": 2, "max_tokens": 32, "trained": True}},
    },
    "silence": {"exploration": "floor"},
    "budget": {"tokens": 60},
}


@pytest.fixture(autouse=True)
def plain_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]


def steps(run: Path) -> list[dict[str, Any]]:
    return [line for line in metrics(run) if "reward/total" in line]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("overlap")
    (folder / "tiny.json").write_text(json.dumps(tree(train=OVERLAP)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def whole(here: Path) -> Path:
    finish(start(here, "tiny.json", "--out", "whole"))
    return here / "whole"


def test_every_message_but_the_first_batchs_is_one_update_behind(whole: Path) -> None:
    assert [line["episodes/behind"] for line in steps(whole)] == [0, 1, 1, 1, 1]
    lines = (whole / "episodes" / "train.jsonl").read_text().splitlines()
    found = {
        (record["step"], call["version"])
        for record in map(json.loads, lines)
        for call in record["calls"]
        if call["policy"]
    }
    assert found == {(1, 0), (2, 0), (3, 1), (4, 2), (5, 3)}
    gaps = [line["train/engine_gap"] for line in steps(whole)]
    assert gaps[0] < 1e-5, "the first batch was played by the weights that learn from it"
    for gap, before in zip(gaps[1:], steps(whole), strict=False):
        if before["train/gradient_norm"] > 0:
            assert gap > 1e-5, "the others were played by the weights of one update before"
    assert max(gaps) > 1e-5


def test_killed_with_a_batch_in_flight_it_is_the_run_that_was_never_killed(
    here: Path, whole: Path
) -> None:
    run, draw = here / "killed", random.Random()
    delay = draw.uniform(0.0, 0.4)
    print(f"the first kill comes {delay:.3f} s after a line")
    assert kill_when(start(here, "tiny.json", "--out", "killed"), after_lines(run, 3, delay))
    kill_when(start(here, "killed"), after_lines(run, 1, delay))
    finish(start(here, "killed"))
    assert metrics(run) == metrics(whole)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


async def test_paused_between_any_two_steps_it_goes_on_with_the_batch_in_flight(
    tmp_path: Path, whole: Path
) -> None:
    config = tiny_config(train=OVERLAP)
    for until in (1, 2, 3, 9):
        async with open_stage(config) as stage:
            trainer = Trainer(stage, RunFolder(tmp_path))
            trainer.pause = lambda t=trainer, n=until: t.state.step >= n
            await trainer.train()
            assert (trainer.ahead is not None) is (until < 5)
    assert (tmp_path / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def finish_all(trainer: Trainer, halves: dict[str, Gathered]) -> None:
    for name, half in halves.items():
        over = trainer.state.warmup.over
        trainer.stage.updaters[name].finish(half, train_choice=over)


@pytest.mark.parametrize(
    "changed",
    [{}, {"policy": {"kind": "full"}, "loss": {"kl": 0.01}}, DIALOGUE],
    ids=["lora", "full", "floor"],
)
async def test_it_is_what_the_schedule_says_done_one_after_the_other(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    """Batch n+1 by the weights of update n−1, gradients of batch n at the same, then update n."""
    whole = {**changed, "train": {**OVERLAP, "steps": 3, "evaluate_every": 0}}
    config = tiny_config(**whole)
    async with open_stage(config) as stage:
        trainer = Trainer(stage, RunFolder(tmp_path))
        await trainer.train()
        learned = {n: policy.state() for n, policy in stage.policies.items()}
        learned = {n: {k: w.clone() for k, w in s.items()} for n, s in learned.items()}
    async with open_stage(config) as stage:
        trainer = Trainer(stage, RunFolder(tmp_path / "by-hand"))
        played = await trainer._play(1)
        for step in (1, 2, 3):
            following = await trainer._play(step + 1) if step < 3 else None
            batch = credit(
                played.groups, stage.roles, trainer._multipliers(), trainer.credit_settings
            )
            halves = trainer.learners.gather(batch)
            async with trainer.learners.changing():
                finish_all(trainer, halves)
            trainer._control(batch)
            played = following or played
        for name, policy in stage.policies.items():
            for key, weight in policy.state().items():
                assert torch.equal(weight, learned[name][key]), key


async def test_playing_and_learning_happen_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    playing, gathering = threading.Event(), threading.Event()
    play, gather = Trainer._play, Learners.gather

    async def watched_play(trainer: Trainer, step: int) -> Any:
        if step > 1:
            playing.set()
            assert await asyncio.to_thread(gathering.wait, 60), "nobody learned meanwhile"
        return await play(trainer, step)

    def watched_gather(learners: Learners, batch: Batch) -> Any:
        if not gathering.is_set():
            gathering.set()
            assert playing.wait(60), "nobody played meanwhile"
        return gather(learners, batch)

    monkeypatch.setattr(Trainer, "_play", watched_play)
    monkeypatch.setattr(Learners, "gather", watched_gather)
    config = tiny_config(train={**OVERLAP, "steps": 2, "evaluate_every": 0})
    async with open_stage(config) as stage:
        await Trainer(stage, RunFolder(tmp_path)).train()
    assert playing.is_set() and gathering.is_set()


async def test_a_batch_that_cannot_be_played_ends_the_run_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Trainer._play

    async def broken(trainer: Trainer, step: int) -> Any:
        if step == 3:
            raise RuntimeError("nobody answers")
        return await play(trainer, step)

    config = tiny_config(train={**OVERLAP, "checkpoint_every": 1})
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match=r"^nobody answers$"):
        patch.setattr(Trainer, "_play", broken)
        await run_training(config, tmp_path, as_json=True)
    await run_training(config, tmp_path, as_json=True)
    assert [line["step"] for line in steps(tmp_path)] == [1, 2, 3, 4, 5]


async def test_several_updates_a_batch_are_refused(tmp_path: Path) -> None:
    config = tiny_config(train={**OVERLAP, "updates": 2})
    with pytest.raises(ConfigError, match=r"train\.updates: under `train\.overlap`"):
        await run_training(config, tmp_path / "run", as_json=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
async def test_on_a_gpu_too_everyone_works_with_the_weights_that_the_schedule_says(
    tmp_path: Path,
) -> None:
    config = tiny_config(
        models={"pocket": {"device": "cuda", "dtype": "float32"}},
        train={**OVERLAP, "evaluate_every": 0},
    )
    async with open_stage(config) as stage:
        await Trainer(stage, RunFolder(tmp_path)).train()
    assert [line["episodes/behind"] for line in steps(tmp_path)] == [0, 1, 1, 1, 1]
    assert steps(tmp_path)[0]["train/engine_gap"] < 1e-2
    assert max(line["train/gradient_norm"] for line in steps(tmp_path)) > 0
