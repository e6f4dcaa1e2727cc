"""The example runs, learns from what it says it learns from, and stays short."""

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tacit.types import Call, Episode, Grade, Stop, Usage

SOURCE = Path(__file__).parents[2] / "examples" / "minimal_loop.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minimal_loop", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["minimal_loop"] = module  # where its dataclass looks for its own names
    spec.loader.exec_module(module)
    return module


def episode(reward: float, tokens: int) -> Episode:
    calls = tuple(
        Call(
            agent=agent,
            model="m",
            messages=(),
            text=agent,
            stop=Stop.EOS,
            usage=Usage(generated=tokens),
            policy="hinter" if agent == "hinter" else "",
        )
        for agent in ("hinter", "actor")
    )
    grade = Grade(reward=reward, right=reward > 0.5)
    return Episode(task_id="t", sample=0, calls=calls, grade=grade)


def test_solving_pays_and_talking_costs_those_who_solve(example: ModuleType) -> None:
    short, long, wrong = example.rewards([episode(1, 10), episode(1, 30), episode(0, 30)])
    assert short == pytest.approx(1 - 0.05 * 20 / 20 - 0.02)
    assert long == pytest.approx(1 - 0.05 * 60 / 20 - 0.02)
    assert wrong == 0.0


def test_only_hints_are_learnt_from(example: ModuleType) -> None:
    found = example.samples([[episode(1, 10), episode(0, 10)], [episode(0, 5)]])
    assert [sample.call.agent for sample in found] == ["hinter"] * 3
    good, bad, alone = (sample.advantage for sample in found)
    assert good > 0 > bad and alone == 0.0


async def test_every_step_changes_the_hinter(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, norms = example.update, []

    def watched(policy: Any, *rest: Any) -> None:
        before = [weight.detach().clone() for weight in policy.module.parameters()]
        update(policy, *rest)
        after = policy.module.parameters()
        norms.append(
            max(float((a.detach() - b).abs().max()) for a, b in zip(after, before, strict=True))
        )

    monkeypatch.setattr(example, "update", watched)
    history = await example.main(steps=2, tasks_per_step=2, learning_rate=1e-4)
    assert len(history) == 2 and all(map(math.isfinite, history))
    assert all(0 < norm < 1e-3 for norm in norms)


def test_it_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SOURCE), "--steps", "1", "--tasks", "2"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("step   1  reward ")


def test_the_example_stays_short() -> None:
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) < 150
