"""A head for the choice, fitted to what speaking gained."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.choice_head import Adapter, fitted, gains, hidden, line_of
from experiments.records import auc
from tacit import parse_config
from tacit.engine.chat import chat_of
from tacit.engine.load import load_model
from tacit.types import ChatMessage


def test_a_head_finds_what_noisy_gains_have_in_common() -> None:
    dice = np.random.default_rng(0)
    x, direction = dice.normal(size=(2000, 24)), dice.normal(size=24)
    pays = x @ direction > 0
    gained = np.where(pays, 0.3, -0.05) + dice.normal(scale=0.5, size=2000)
    (score,) = fitted(x[:1500], gained[:1500], 1.0, x[1500:])
    assert auc(score[pays[1500:]], score[~pays[1500:]]) > 0.9
    (noise,) = fitted(x[:1500], dice.permutation(gained[:1500]), 1.0, x[1500:])
    assert auc(noise[pays[1500:]], noise[~pays[1500:]]) < 0.7


def test_the_line_tells_the_needed_from_the_others() -> None:
    score = np.array([0.1, 0.2, 0.3, 0.6, 0.7])
    assert line_of(score, np.array([False, False, True, True, True])) == pytest.approx(0.25)


def test_a_gain_is_what_speaking_earned_beyond_silence(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    rows = [
        {
            "step": step, "task_id": "a", "reward": {"total": total}, "task_if_silent": alone,
            "calls": [{"choice": "speak", "prompt_ids": [1, step]}],
        }
        for step, total, alone in [(1, 0.9, 0.0), (1, -0.1, 1.0), (2, 0.8, 1.0)]
    ]  # fmt: skip
    text = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "episodes" / "train.jsonl").write_text(text)
    prompts, gained, steps = gains(tmp_path)
    assert prompts == [(1, 1), (1, 2)] and steps == [1, 2]
    assert gained == pytest.approx([-0.1, -0.2])


def test_states_of_prompts_of_several_lengths_are_those_of_each_alone() -> None:
    module = load_model("pocket").module
    prompts = [(5, 6, 7, 8, 9), (5, 6), (9, 8, 7)]
    together = hidden(module, prompts, [1, 2])
    for number, ids in enumerate(prompts):
        alone = hidden(module, [ids], [1, 2])
        for layer in (1, 2):
            assert together[layer][number] == pytest.approx(alone[layer][0], abs=1e-4)


@pytest.mark.parametrize("rate", [None, 1e-3])
def test_an_adapter_learns_to_speak_where_it_gained(rate: float | None) -> None:
    base = load_model("pocket")
    asked = ("What is 12 + 30?", "What is 45 - 21 + 13?")
    gain, loss = (chat_of(base).encode((ChatMessage("user", text),)) for text in asked)
    config = parse_config({"policy": {"kind": "lora", "rank": 4}})
    adapter = Adapter(base, config, rate)
    before = np.subtract(*adapter.speaks([gain, loss]))
    adapter.train([gain, loss] * 12, np.array([1.0, -1.0] * 12), [n // 2 for n in range(24)])
    assert np.subtract(*adapter.speaks([gain, loss])) > before + 0.5
    assert adapter.seconds > 0
