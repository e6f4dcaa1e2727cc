"""Losses against hand-computed numbers, and their invariants. TRL's are in `tests/integration`."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from tacit.config import LossConfig
from tacit.learn import loss as loss_module
from tacit.learn.loss import (
    CLIP_RANGES,
    LOSSES,
    LossInputs,
    batch_sizes,
    k3,
)
from tacit.learn.loss_stats import bucket_names, merge_stats
from tests.helpers.losses import ragged, sizes_of, value_and_gradient

WIDE = LossConfig(clip_low=0.9, clip_high=9.0)
PER_SEQUENCE = ("gspo", "gspo_token", "luspo")


def two_rows(**changes: Any) -> LossInputs:
    """Log-ratios (0.1, 0.3) with advantage 1 and (−0.4) with advantage −1, one position padded."""
    old = torch.full((2, 2), -1.0, dtype=torch.float64)
    new = old + torch.tensor([[0.1, 0.3], [-0.4, 7.0]], dtype=torch.float64)
    x = LossInputs(
        logprobs_BT=new.requires_grad_(),
        old_logprobs_BT=old,
        mask_BT=torch.tensor([[True, True], [True, False]]),
        advantages=torch.tensor([1.0, -1.0], dtype=torch.float64),
        sequence_B=torch.arange(2),
    )
    return replace(x, **changes)


S0, S1 = math.exp(0.2), math.exp(-0.4)
R = (math.exp(0.1), math.exp(0.3))


@pytest.mark.parametrize(
    ("name", "low", "high", "objective"),
    [
        ("gspo", 0.9, 9.0, (S0 - S1) / 2),
        ("gspo", 0.1, 0.1, (1.1 - 0.9) / 2),
        ("gspo_token", 0.9, 9.0, (S0 - S1) / 2),
        ("gspo_token", 0.1, 0.1, (1.1 - 0.9) / 2),
        ("grpo", 0.9, 9.0, ((R[0] + R[1]) / 2 - S1) / 2),
        ("grpo", 0.2, 0.2, ((R[0] + 1.2) / 2 - 0.8) / 2),
        ("dapo", 0.2, 0.28, (R[0] + 1.28 - 0.8) / 3),
        ("dr_grpo", 0.2, 0.2, (R[0] + 1.2 - 0.8) / (2 * 10)),
        ("luspo", 0.9, 9.0, (2 * S0 - S1) / 2),
        ("luspo", 0.1, 0.1, (2 * 1.1 - 0.9) / 2),
    ],
)
def test_hand_computed_losses(name: str, low: float, high: float, objective: float) -> None:
    x = two_rows()
    settings = LossConfig(clip_low=low, clip_high=high, max_length=10)
    loss = LOSSES[name](x, sizes_of(x), settings).loss
    assert loss.item() == pytest.approx(-objective, rel=1e-12)


@pytest.mark.parametrize(("name", "row"), [("dapo", R[0] + 1.28), ("gspo", 1.5 * 1.21)])
def test_the_upper_end_of_the_range_is_its_own(name: str, row: float) -> None:
    """Only the row with a positive advantage counts, and it is clipped from above."""
    high = {"dapo": 0.28, "gspo": 0.21}[name]
    x = two_rows(advantages=torch.tensor([1.0, 0.0], dtype=torch.float64))
    loss = LOSSES[name](x, sizes_of(x), LossConfig(clip_low=0.2, clip_high=high)).loss
    assert loss.item() == pytest.approx(-row / 3, rel=1e-12)


def test_every_loss_has_a_range_a_name_in_the_config_and_its_place_in_the_docs() -> None:
    names = get_args(LossConfig.model_fields["name"].annotation)
    assert LOSSES.keys() == CLIP_RANGES.keys() == set(names)
    docs = Path(__file__).parents[2] / "docs"
    for page in ("algorithms.md", "configuration.md"):
        text = (docs / page).read_text(encoding="utf-8")
        assert all(f"`{name}`" in text for name in names), page


def test_gspo_gradient_by_hand() -> None:
    """−s·A/(|y|·S) on every token of a sequence (arXiv 2507.18071, eq. 10)."""
    _, gradient = value_and_gradient("gspo", two_rows(), WIDE)
    expected = torch.tensor([[-S0 / 4, -S0 / 4], [S1 / 2, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=0)


def test_a_clipped_sequence_has_no_gradient() -> None:
    _, gradient = value_and_gradient("gspo", two_rows(), LossConfig(clip_low=0.1, clip_high=0.1))
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_length_aware_clip_widens_for_short_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """ε·sqrt(8/2) = 2ε on the row of two tokens, ε·sqrt(8/1) on the row of one."""
    monkeypatch.setattr(loss_module, "LENGTH_REF", 8)
    settings = LossConfig(clip_low=0.05, clip_high=0.05, length_aware=True)
    x = two_rows()
    loss = LOSSES["gspo"](x, sizes_of(x), settings).loss.item()
    assert loss == pytest.approx(-((1 + 0.05 * 2) - (1 - 0.05 * math.sqrt(8))) / 2, rel=1e-12)
    token_level = LOSSES["grpo"](x, sizes_of(x), settings).loss.item()
    off = settings.model_copy(update={"length_aware": False})
    assert token_level == LOSSES["grpo"](x, sizes_of(x), off).loss.item()


def test_k3_by_hand() -> None:
    value = k3(torch.tensor(-0.9, dtype=torch.float64), torch.tensor(-1.5, dtype=torch.float64))
    assert value.item() == pytest.approx(math.exp(-0.6) + 0.6 - 1, rel=1e-12)


def test_kl_to_the_base_is_added_per_token() -> None:
    """Reference at −1.5 everywhere: d = −0.6, −0.8 in one row and −0.1 in the other."""
    x = two_rows(ref_logprobs_BT=torch.full((2, 2), -1.5, dtype=torch.float64))
    penalty = [math.exp(d) - d - 1 for d in (-0.6, -0.8, -0.1)]
    loss = LOSSES["gspo"](x, sizes_of(x), WIDE.model_copy(update={"kl": 0.5})).loss.item()
    expected = -(S0 - S1) / 2 + 0.5 * ((penalty[0] + penalty[1]) / 2 + penalty[2]) / 2
    assert loss == pytest.approx(expected, rel=1e-12)


def test_mismatch_is_a_truncated_geometric_mean() -> None:
    """Gaps to the engine of (0.5, 1.5) and −0.2: exp(1) is cut to 2, exp(−0.2) stays."""
    gap = torch.tensor([[0.5, 1.5], [-0.2, 9.0]], dtype=torch.float64)
    x = two_rows()
    x = replace(x, engine_logprobs_BT=x.old_logprobs_BT - gap)
    output = LOSSES["gspo"](x, sizes_of(x), WIDE.model_copy(update={"mismatch_cap": 2.0}))
    assert output.loss.item() == pytest.approx(-(2 * S0 - math.exp(-0.2) * S1) / 2, rel=1e-12)
    stats = merge_stats([output.stats])
    assert stats["mismatch_ratio"] == pytest.approx((math.e + math.exp(-0.2)) / 2)
    assert stats["mismatch_truncated"] == 0.5


def test_messages_of_older_weights_teach_what_the_present_policy_would_learn() -> None:
    """Three one-token messages, drawn by an older policy: Σ b·w·A·∇log π is Σ π·A·∇log π."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    older = torch.tensor([0.1, 0.4, 0.5], dtype=torch.float64)
    reward = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)
    wanted = torch.autograd.grad((logits.softmax(0) * reward).sum(), logits)[0]
    log_pi = logits.log_softmax(0)[:, None]
    x = LossInputs(
        logprobs_BT=log_pi,
        old_logprobs_BT=log_pi.detach(),
        mask_BT=torch.ones(3, 1, dtype=torch.bool),
        advantages=reward,
        sequence_B=torch.arange(3),
        weights_B=3 * older,  # as often as the older policy says it; the loss takes the mean of 3
        engine_logprobs_BT=older.log()[:, None],
    )
    for name, cap, equal in (("gspo", 9.0, True), ("grpo", 9.0, True), ("gspo", None, False)):
        config = LossConfig(clip_low=0.9, clip_high=9.0, mismatch_cap=cap)
        loss = LOSSES[name](x, sizes_of(x), config).loss
        gradient = torch.autograd.grad(-loss, logits, retain_graph=True)[0]
        assert torch.allclose(gradient, wanted, rtol=1e-9) == equal, (name, cap)


def test_mismatch_is_only_logged_without_a_cap() -> None:
    x = two_rows(engine_logprobs_BT=torch.full((2, 2), -1.3, dtype=torch.float64))
    output = LOSSES["gspo"](x, sizes_of(x), WIDE)
    assert output.loss.item() == pytest.approx(-(S0 - S1) / 2)
    assert merge_stats([output.stats])["mismatch_ratio"] == pytest.approx(math.exp(0.3))


def test_weights_multiply_the_advantage_and_not_the_ratio() -> None:
    weights = torch.tensor([0.5, 2.0], dtype=torch.float64)
    x = two_rows(weights_B=weights)
    scaled = two_rows(advantages=torch.tensor([0.5, -2.0], dtype=torch.float64))
    narrow = LossConfig(clip_low=0.5, clip_high=0.21)
    for name in LOSSES:
        for ours, theirs in zip(
            value_and_gradient(name, x, narrow),
            value_and_gradient(name, scaled, narrow),
            strict=True,
        ):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("junk", [math.nan, math.inf, -1e30])
def test_padding_has_exactly_no_gradient_and_eos_has_one(name: str, junk: float) -> None:
    """Every row's last unmasked token is its end-of-sequence."""
    x = ragged(0)
    fields = ("logprobs_BT", "old_logprobs_BT", "ref_logprobs_BT", "engine_logprobs_BT")
    dirty = {
        field: torch.where(x.mask_BT, getattr(x, field).detach(), junk).requires_grad_()
        for field in fields
    }
    per_token = torch.where(x.mask_BT, x.advantages[:, None], junk)
    settings = WIDE.model_copy(update={"kl": 0.1, "mismatch_cap": 2.0})
    clean_value, clean_gradient = value_and_gradient(name, x, settings)
    value, gradient = value_and_gradient(name, replace(x, advantages=per_token, **dirty), settings)
    torch.testing.assert_close(value, clean_value, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, clean_gradient, rtol=1e-12, atol=1e-15)
    assert torch.equal(gradient[~x.mask_BT], torch.zeros_like(gradient[~x.mask_BT]))
    eos = x.mask_BT.sum(-1) - 1
    assert bool((gradient[torch.arange(len(eos)), eos] != 0).all())


@pytest.mark.parametrize("name", LOSSES)
def test_a_mask_off_by_one_is_another_loss(name: str) -> None:
    x = ragged(1)
    without_eos = x.mask_BT & x.mask_BT.roll(-1, dims=1)
    without_eos[:, -1] = False
    shifted = replace(x, mask_BT=without_eos)
    value, gradient = value_and_gradient(name, x, WIDE)
    other_value, other_gradient = value_and_gradient(name, shifted, WIDE)
    assert not torch.isclose(value, other_value, rtol=1e-3)
    assert not torch.allclose(gradient, other_gradient, rtol=1e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_at_ratio_one_every_loss_is_the_plain_policy_gradient(name: str) -> None:
    x = ragged(2)
    x = replace(x, old_logprobs_BT=x.logprobs_BT.detach().clone())
    lengths, rows = x.mask_BT.sum(-1, keepdim=True), len(x.advantages)
    per_token = {
        "gspo": 1 / (lengths * rows),
        "gspo_token": 1 / (lengths * rows),
        "grpo": 1 / (lengths * rows),
        "dapo": 1 / lengths.sum(),
        "dr_grpo": torch.tensor(1 / (rows * 50)),
        "luspo": torch.tensor(1 / rows),
    }[name]
    plain = -(x.advantages[:, None] * x.logprobs_BT * x.mask_BT * per_token).sum()
    expected = torch.autograd.grad(plain, x.logprobs_BT)[0]
    settings = LossConfig(clip_low=3e-4, clip_high=4e-4, max_length=50)
    _, gradient = value_and_gradient(name, x, settings)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("spread", [3e-4, 0.05, 9.0])
def test_gspo_token_equals_gspo_where_the_advantage_is_constant(spread: float) -> None:
    settings = LossConfig(clip_low=min(spread, 0.9), clip_high=spread)
    for seed in range(5):
        for ours, theirs in zip(
            value_and_gradient("gspo_token", ragged(seed), settings),
            value_and_gradient("gspo", ragged(seed), settings),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


def test_gspo_token_gives_each_token_its_own_advantage() -> None:
    own = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    _, gradient = value_and_gradient("gspo_token", two_rows(advantages=own), WIDE)
    expected = torch.tensor([[-S0 / 4, 0.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=0)


def test_gspo_weighs_every_sequence_the_same_whatever_its_length() -> None:
    """The same ratio and advantage at 1 and at 50 tokens: the same share of the loss."""
    mask = torch.arange(50) < torch.tensor([[1], [50]])
    new = torch.full((2, 50), -0.8, dtype=torch.float64, requires_grad=True)
    x = LossInputs(
        logprobs_BT=new,
        old_logprobs_BT=torch.full((2, 50), -1.0, dtype=torch.float64),
        mask_BT=mask,
        advantages=torch.ones(2, dtype=torch.float64),
        sequence_B=torch.arange(2),
    )
    _, gradient = value_and_gradient("gspo", x, WIDE)
    torch.testing.assert_close(gradient.sum(-1)[0], gradient.sum(-1)[1], rtol=1e-12, atol=0)
    assert LOSSES["gspo"](x, sizes_of(x), WIDE).loss.item() == pytest.approx(-math.exp(0.2))


@pytest.mark.parametrize("name", LOSSES)
def test_a_sequence_of_several_rows_is_the_same_as_one_long_row(name: str) -> None:
    """Rows 0 and 1 of one agent, against one row that holds their tokens end to end."""
    x = replace(two_rows(), sequence_B=torch.tensor([0, 0]))
    x = replace(x, advantages=torch.tensor([0.7, 0.7], dtype=torch.float64))
    joined = LossInputs(
        logprobs_BT=x.logprobs_BT[x.mask_BT][None],
        old_logprobs_BT=x.old_logprobs_BT[x.mask_BT][None],
        mask_BT=torch.ones(1, 3, dtype=torch.bool),
        advantages=torch.tensor([0.7], dtype=torch.float64),
        sequence_B=torch.tensor([0]),
    )
    loss = LOSSES[name](joined, sizes_of(joined), WIDE).loss
    expected = torch.autograd.grad(loss, x.logprobs_BT)[0]
    value, gradient = value_and_gradient(name, x, WIDE)
    torch.testing.assert_close(value, loss.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=0)


def rows_of(x: LossInputs, rows: list[int]) -> LossInputs:
    """A micro-batch, cut to its own longest row as a batcher would."""
    width = int(x.mask_BT[rows].sum(-1).max())

    def cut(tensor: Tensor | None) -> Tensor | None:
        return (
            None if tensor is None else tensor[rows, :width] if tensor.dim() == 2 else tensor[rows]
        )

    fields = {name: cut(getattr(x, name)) for name in x.__dataclass_fields__ if name != "apart"}
    return LossInputs(**fields, apart={name: mask[rows] for name, mask in x.apart.items()})


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("cuts", [[[0, 2], [1], [3, 4, 5, 6]], [[6, 5, 4, 3, 2, 1, 0]]])
def test_loss_and_gradient_do_not_depend_on_the_micro_batches(
    name: str, cuts: list[list[int]]
) -> None:
    x = ragged(3)
    x = replace(
        x,
        sequence_B=torch.tensor([0, 1, 0, 2, 2, 3, 2]),
        weights_B=torch.linspace(0.2, 2.0, 7, dtype=torch.float64),
        apart={"silent": torch.tensor([False, True, False, False, True, False, False])},
    )
    x = replace(x, advantages=x.advantages.clone())
    settings = LossConfig(
        clip_low=0.02, clip_high=0.03, length_aware=True, kl=0.1, mismatch_cap=1.05
    )
    sizes = sizes_of(x)
    whole = LOSSES[name](x, sizes, settings)
    gradient = torch.autograd.grad(whole.loss, x.logprobs_BT)[0]
    parts = [LOSSES[name](rows_of(x, rows), sizes, settings) for rows in cuts]
    total = torch.stack([part.loss for part in parts]).sum()
    torch.testing.assert_close(total.detach(), whole.loss.detach(), rtol=1e-12, atol=0)
    summed = torch.autograd.grad(total, x.logprobs_BT)[0]
    torch.testing.assert_close(summed, gradient, rtol=1e-12, atol=1e-16)
    merged, expected = merge_stats([part.stats for part in parts]), merge_stats([whole.stats])
    assert merged == pytest.approx(expected)


@pytest.mark.parametrize("name", LOSSES)
def test_a_sequence_cut_in_two_is_refused_only_where_it_matters(name: str) -> None:
    x = replace(ragged(4), sequence_B=torch.tensor([0, 0, 1, 2, 3, 4, 5]))
    sizes = sizes_of(x)
    if name in PER_SEQUENCE:
        with pytest.raises(ValueError, match=r"sequence 0 .* keep the rows of a sequence together"):
            LOSSES[name](rows_of(x, [0]), sizes, WIDE)
    else:
        assert torch.isfinite(LOSSES[name](rows_of(x, [0]), sizes, WIDE).loss)


def test_rows_of_advantage_zero_stay_in_the_denominator() -> None:
    x = two_rows(advantages=torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert LOSSES["gspo"](x, sizes_of(x), WIDE).loss.item() == pytest.approx(-S0 / 2)


@pytest.mark.parametrize("name", LOSSES)
def test_a_huge_log_ratio_does_not_overflow(name: str) -> None:
    x = two_rows()
    far = (x.old_logprobs_BT + 1000.0).requires_grad_()
    value, gradient = value_and_gradient(name, replace(x, logprobs_BT=far), WIDE)
    assert torch.isfinite(value) and torch.isfinite(gradient).all()


def test_clipping_is_counted_by_length_and_for_silence() -> None:
    """Of the rows of 2 tokens (clipped) and 20 tokens (not), the first is silence."""
    mask = torch.arange(20) < torch.tensor([[2], [20]])
    old = torch.zeros(2, 20, dtype=torch.float64) - 1
    new = (old + torch.tensor([[0.5], [0.0]], dtype=torch.float64)).requires_grad_()
    x = LossInputs(
        logprobs_BT=new,
        old_logprobs_BT=old,
        mask_BT=mask,
        advantages=torch.ones(2, dtype=torch.float64),
        sequence_B=torch.arange(2),
        apart={"silent": torch.tensor([True, False])},
    )
    narrow = LossConfig(clip_low=0.2, clip_high=0.2)
    by_sequence = merge_stats([LOSSES["gspo"](x, sizes_of(x), narrow).stats])
    assert by_sequence["clip_fraction"] == pytest.approx(0.5)
    assert by_sequence["clip_fraction/1-4"] == pytest.approx(1.0)
    assert by_sequence["clip_fraction/17-64"] == pytest.approx(0.0)
    assert by_sequence["clip_fraction/silent"] == pytest.approx(1.0)
    assert "clip_fraction/5-16" not in by_sequence
    assert by_sequence["ratio"] == pytest.approx((math.exp(0.5) + 1) / 2)
    assert by_sequence["ratio_max"] == pytest.approx(math.exp(0.5))
    assert by_sequence["approx_kl"] == pytest.approx(2 * (math.exp(0.5) - 1.5) / 22)
    by_token = merge_stats([LOSSES["grpo"](x, sizes_of(x), narrow).stats])
    assert by_token["clip_fraction"] == pytest.approx(2 / 22)


def test_clipping_only_counts_on_the_side_where_it_bites() -> None:
    x = two_rows(advantages=torch.tensor([-1.0, 1.0], dtype=torch.float64))
    narrow = LossConfig(clip_low=0.01, clip_high=0.01)
    assert merge_stats([LOSSES["gspo"](x, sizes_of(x), narrow).stats])["clip_fraction"] == 0.0


def test_buckets_are_named_without_gaps() -> None:
    assert bucket_names() == ["1-4", "5-16", "17-64", "65-256", "257-1024", "1025+"]


def test_shapes_and_kinds_are_checked() -> None:
    with pytest.raises(ValueError, match="old_logprobs_BT is"):
        two_rows(old_logprobs_BT=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="must be bool"):
        two_rows(mask_BT=torch.ones(2, 2))
    with pytest.raises(ValueError, match="without rows"):
        batch_sizes(torch.tensor([]), torch.tensor([], dtype=torch.long))
