"""Seconds and bytes, by hand."""

from dataclasses import replace

import pytest

from tacit.errors import ConfigError
from tacit.plan.cards import CARDS, find_card
from tacit.plan.costs import (
    ADAPTER_KERNELS,
    KERNELS,
    LEARNING_KERNELS,
    STEP_KERNELS,
    Constants,
    Decoding,
    Learning,
    Speed,
    cache_memory,
    learner_memory,
    model_memory,
)
from tests.plan.test_model_shapes import TINY

TWICE = Constants(activations=2.0)
SPEED = Speed(bytes_per_s=10.0, flops_per_s=20.0, kernel_s=1.0, launch_s=1.0)
DECODING = Decoding(
    shape=TINY, rows=4, requests=8, prompt=30, new=10, cap=16, computed=240, arriving=0
)


def test_full_rows_then_the_last_ones_alone() -> None:
    assert DECODING.steps == 8 * 10 / 4 + 16 - 10
    assert replace(DECODING, requests=2).steps == 16, "fewer than the rows: as long as the longest"


def test_a_decoding_step_by_hand() -> None:
    products = max(26 * 2 * TINY.multiplied / 10, 2 * TINY.multiplied * 80 / 20)
    attention = 80 * TINY.kv_bytes * (30 + 5) / 10
    causes = DECODING.causes(SPEED)
    assert causes["weights"] == pytest.approx(products)
    assert causes["keys and values"] == pytest.approx(attention)
    assert causes["kernels' own time"] == 26 * (2 * KERNELS + STEP_KERNELS)
    adapted = replace(DECODING, rank=4).causes(SPEED)["kernels' own time"]
    assert adapted == 26 * (2 * (KERNELS + ADAPTER_KERNELS) + STEP_KERNELS)


def test_prompts_are_passed_as_often_as_some_can_begin() -> None:
    assert DECODING.waiting == 10 and DECODING.prompts().passes == 2, "two waves"
    assert replace(DECODING, arriving=46).prompts().passes == 7, "at each look of 8 steps"
    assert replace(DECODING, arriving=800).prompts().passes == 8, "not more often than asked"
    assert replace(DECODING, cap=10, arriving=0).waiting == 0, "all end at once"


def test_learning_by_hand() -> None:
    full = Learning(shape=TINY, tokens=100, passes=3, steps=1)
    again = 2 * 100 * TINY.vocabulary * TINY.hidden  # logits, in the backward pass
    assert full.flops == 6 * 100 * TINY.multiplied + again
    assert replace(full, rank=2).flops == 4 * 100 * TINY.multiplied + again
    assert replace(full, checkpointing=True).flops == 8 * 100 * TINY.multiplied + again
    assert replace(full, backward=False).flops == 2 * 100 * TINY.multiplied
    moved = 3 * 100 * 2 * TINY.saved_bytes + 30 * TINY.weights
    assert full.causes(SPEED)["products"] == pytest.approx(full.flops / 20)
    assert full.causes(SPEED)["moving"] == pytest.approx(moved / 10)
    assert full.causes(SPEED)["launching"] == 3 * 2 * 2 * LEARNING_KERNELS
    forward = replace(full, backward=False).causes(SPEED)
    assert forward["launching"] == 3 * 2 * LEARNING_KERNELS


@pytest.mark.parametrize("work", [DECODING, Learning(shape=TINY, tokens=9, passes=1)])
def test_causes_add_up(work: Decoding | Learning) -> None:
    causes = work.causes(SPEED)
    assert sum(causes.values()) == pytest.approx(work.seconds(SPEED))
    assert min(causes.values()) > 0


def test_memory_by_hand() -> None:
    assert model_memory(TINY).weights == 2 * TINY.weights
    cache = cache_memory(TINY, 4, 33)
    assert cache.cache == 1.25 * 4 * 48 * TINY.kv_bytes, "whole pages of 16"
    full = learner_memory(TINY, 50, rank=0, checkpointing=False)
    assert full.weights == 2 * TINY.weights and full.optimizer == 16 * TINY.weights
    assert full.kept == 50 * 2 * TINY.saved_bytes
    assert full.logits == 2 * 50 * 100 + 4 * 100 * 8
    lora = learner_memory(TINY, 50, rank=2, checkpointing=False)
    assert lora.weights == 0 and lora.optimizer == 16 * TINY.adapter(2)
    saving = learner_memory(TINY, 50, rank=2, checkpointing=True)
    assert saving.kept == 50 * (TINY.saved_bytes + 2 * 2 * 2 * 8)
    whole = cache + full
    assert whole.total(TWICE) == pytest.approx(sum(whole.parts(TWICE).values()))
    assert whole.parts(TWICE)["activations"] == 2 * full.kept


def test_a_card_reaches_the_measured_share_of_its_figures() -> None:
    constants = Constants(copy_share=0.5, product_share=0.25)
    speed = constants.speed(CARDS["H100"])
    assert (speed.bytes_per_s, speed.flops_per_s) == (0.5 * 3.35e12, 0.25 * 989.5e12)
    two = constants.speed(CARDS["H100"], ways=2)
    assert (two.bytes_per_s, two.flops_per_s) == (3.35e12, 0.5 * 989.5e12)
    assert (two.kernel_s, two.launch_s) == (constants.kernel_s, constants.launch_s)
    assert find_card("h200").measured and not find_card("A100").measured
    with pytest.raises(ConfigError, match="did you mean `H100`"):
        find_card("H10")
