"""Decoding by hand: the model's own logits, and the same bits however far other rows are."""

import pytest
import torch

from tacit.engine.forward import forward_of
from tacit.fast.forward_cpu import CpuForward, TwoHalves
from tacit.fast.forward_rows import RowForward
from tacit.fast.kv_cache import RowBlock
from tests.helpers.tiny_models import tiny_model

LENGTH = 512
"""Eight blocks."""


def ids(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple((7 * place + 3 + 11 * seed) % 290 for place in range(count))


@torch.no_grad()
def decoded(kind: str, near: int, others: list[int], *, row: int = 0, **size: int) -> torch.Tensor:
    """The logits of a row after three more tokens, beside rows that are elsewhere."""
    forward = forward_of(tiny_model(kind, **size).module)
    assert isinstance(forward, CpuForward)
    prompts = [ids(far, seed=1 + n) for n, far in enumerate(others)]
    prompts.insert(row, ids(near))
    first, shape = forward.prefill(prompts[0]), (len(prompts), LENGTH)
    rows = RowBlock(forward.decoder(first, *shape), first, *shape)
    for number, prompt in enumerate(prompts):
        rows.fill(number, forward.prefill(prompt))
    for step in range(3):
        positions = [len(prompt) + step for prompt in prompts]
        rows.advance([5 + step] * len(prompts), positions)
    return rows.logits_RV[row]


@pytest.mark.parametrize("near", [5, 62, 200])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "smollm3"])
def test_a_block_that_only_others_have_reached_changes_no_bit(kind: str, near: int) -> None:
    beside = decoded(kind, near, [3, 4, 2, 9, 6, 8, 7])
    behind = decoded(kind, near, [3, 100, 2, 9, 450, 8, 7])
    assert torch.equal(beside, behind)


@torch.no_grad()
@pytest.mark.parametrize("near", [5, 62, 200])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "smollm3"])
def test_the_logits_are_the_models_own(kind: str, near: int) -> None:
    module = tiny_model(kind).module
    whole = torch.tensor([[*ids(near), 5, 6, 7]])
    expected = module(input_ids=whole).logits[0, -1]
    torch.testing.assert_close(decoded(kind, near, [3] * 7), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "threads"), [(32, 1), (32, 2), (64, 1)])
def test_the_bits_are_the_same_in_any_row_whatever_the_threads(rows: int, threads: int) -> None:
    """Large enough for torch and its libraries to share the work out, or for us to."""
    size = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9}
    size |= {"num_key_value_heads": 3, "head_dim": 64}
    given = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        forward = forward_of(tiny_model().module)
        decoder = forward.decoder(forward.prefill((1, 2)), rows, LENGTH)
        first = decoded("llama", 62, [3] * (rows - 1), **size)
        last = decoded("llama", 62, [100, *[3] * (rows - 3), 450], row=rows - 1, **size)
    finally:
        torch.set_num_threads(given)
    assert isinstance(decoder, TwoHalves) is (rows == 64)
    assert torch.equal(first, last)


def test_other_families_keep_to_their_own_forward() -> None:
    assert type(forward_of(tiny_model("gpt2").module)) is RowForward
