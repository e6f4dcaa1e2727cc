"""Cutting a batch: what belongs together stays together, and the cut changes no number."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st

from tacit.learn.batch import LEAST_SHARED as LEAST, SPREAD, Row, bundle, microbatches, split
from tacit.silence import ChoicePoint
from tests.helpers.learn_parts import (
    MARKER,
    ids,
    make_choices,
    make_policies,
    make_rows,
    make_updater,
    weights_of,
)


def row(sequence: int, context: int | None = None, *, prompt: int = 3, output: int = 2) -> Row:
    return Row(
        policy="team",
        prompt_ids=ids(1, prompt),
        output_ids=ids(2, output),
        engine_logprobs=(0.0,) * output,
        advantage=1.0,
        sequence=sequence,
        context=context,
    )


def choice(prompt: int = 3) -> ChoicePoint:
    return ChoicePoint(
        policy="team", prompt_ids=ids(1, prompt), marker_ids=MARKER, log_p=-1.0, gain=0.1
    )


def test_rows_of_a_sequence_or_a_choice_stay_together() -> None:
    rows = [row(0), row(1, 0), row(0), row(2, 0), row(3, 1), row(4)]
    found = {(one.rows, one.choices) for one in bundle(rows, [choice(), choice()])}
    assert found == {((0, 2), ()), ((1, 3), (0,)), ((4,), (1,)), ((5,), ())}


def test_a_sequence_joins_the_choices_of_its_rows() -> None:
    rows = [row(0, 0), row(0, 1), row(1, 1)]
    (one,) = bundle(rows, [choice(), choice()])
    assert (one.rows, one.choices, one.height) == ((0, 1, 2), (0, 1), 5)


def test_width_is_the_longest_row_markers_included() -> None:
    (one,) = bundle([row(0, 0, prompt=2, output=3)], [choice(prompt=7)])
    assert one.width == 7 + len(MARKER)
    (one,) = bundle([row(0, prompt=9, output=5)], [])
    assert one.width == 14


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Row], list[ChoicePoint]]:
    count = draw(st.integers(1, 12))
    choices = [choice(draw(st.integers(1, 30))) for _ in range(draw(st.integers(0, 4)))]
    contexts = st.none() | st.integers(0, len(choices) - 1) if choices else st.none()
    rows = [
        row(
            draw(st.integers(0, 6)),
            draw(contexts),
            prompt=draw(st.integers(1, 30)),
            output=draw(st.integers(1, 20)),
        )
        for _ in range(count)
    ]
    return rows, choices


@given(batches(), st.integers(1, 400))
def test_every_row_once_nothing_parted_and_no_wider_than_allowed(
    batch: tuple[list[Row], list[ChoicePoint]], tokens: int
) -> None:
    rows, choices = batch
    bundles = bundle(rows, choices)
    assert sorted(i for one in bundles for i in one.rows) == list(range(len(rows)))
    assert sorted(i for one in bundles for i in one.choices) == list(range(len(choices)))
    place = {i: n for n, one in enumerate(bundles) for i in one.rows}
    home = {c: n for n, one in enumerate(bundles) for c in one.choices}
    for i, one in enumerate(rows):
        assert one.context is None or home[one.context] == place[i]
        assert all(place[j] == place[i] for j, o in enumerate(rows) if o.sequence == one.sequence)
    cut = microbatches(bundles, tokens)
    assert sorted(id(one) for some in cut for one in some) == sorted(map(id, bundles))
    for some in cut:
        padded = sum(one.height for one in some) * max(one.width for one in some)
        assert len(some) == 1 or padded <= tokens
    widths = [one.width for some in cut for one in some]
    assert all(a >= b for a, b in pairwise(widths))


@given(st.integers(1, 9), st.integers(1, 12))
def test_mini_batches_are_of_as_equal_size_as_may_be(parts: int, count: int) -> None:
    bundles = bundle([row(i) for i in range(count)], [])
    dealt = split(bundles, parts)
    assert len(dealt) == min(parts, count)
    assert {len(some) for some in dealt} <= {count // len(dealt), -(-count // len(dealt))}
    assert sorted(i for some in dealt for one in some for i in one.rows) == list(range(count))


def test_groups_stay_whole_where_mini_batches_are_equal_even_so() -> None:
    groups = [replace(row(8 * g + i), prompt_ids=ids(g, 5)) for g in range(6) for i in range(8)]
    for some in split(bundle(groups, []), 3):
        assert sorted(i % 8 for one in some for i in one.rows) == sorted([*range(8)] * 2)
    uneven = split(bundle(groups[:40], []), 3)
    assert sorted(len(some) for some in uneven) == [13, 13, 14]


def test_a_prompt_without_padding_counts_once_for_those_beside_each_other() -> None:
    rows = [
        replace(row(2 * g + i, prompt=9, output=1 + 3 * i + g), prompt_ids=ids(g, 9))
        for i in range(2)
        for g in range(2)
    ]
    packed = microbatches(bundle(rows, []), 9 + 2 + 5, padded=False)
    assert [[one.rows for one in some] for some in packed] == [[(3,), (1,)], [(2,), (0,)]]
    assert len(microbatches(bundle(rows, []), 9 + 2 + 5 - 1, padded=False)) == 3


def test_what_prompts_begin_with_counts_once_for_those_beside_each_other() -> None:
    alike, other = ids(1, LEAST), ids(2, LEAST)
    prompts = [alike + ids(3, 9), other, alike, alike[:-1] + other]
    rows = [replace(row(n, output=2), prompt_ids=prompt) for n, prompt in enumerate(prompts)]
    apart = 2 * LEAST - 1 + 2
    beside = LEAST + 2 + 9 + 2
    assert beside < apart + LEAST
    cut = microbatches(bundle(rows, []), beside, padded=False)
    assert {(2,), (0,)} in [{one.rows for one in some} for some in cut]
    assert all(len(some) == 1 for some in microbatches(bundle(rows, []), beside - 1, padded=False))
    (whole,) = bundle([replace(one, sequence=0) for one in rows], [])
    assert whole.tokens == beside + apart + LEAST + 2


def test_a_long_talk_is_cut_before_attention_grows_out_of_proportion() -> None:
    """Each prompt goes on from the one before: counted once they would all fit, ten times over."""
    whole = ids(1, 60 * LEAST)
    rows = [
        replace(row(n, output=2), prompt_ids=whole[: LEAST * (n + 1)]) for n in reversed(range(60))
    ]
    tokens = 10 * len(whole)
    cut = microbatches(bundle(rows, []), tokens, padded=False)
    assert len(cut) == 1
    tokens = len(whole) + 2 * len(rows)
    cut = microbatches(bundle(rows, []), tokens, padded=False)
    spread = [sum(one.spread for one in some) for some in cut]
    assert 60 * 61 / 2 * LEAST / tokens / SPREAD <= len(cut) <= 10
    assert max(spread) <= SPREAD * tokens


def test_prompts_with_little_in_common_stand_by_width() -> None:
    head = ids(1, LEAST)
    rows = [replace(row(n), prompt_ids=head + ids(n + 2, 50 * (1 + n % 3))) for n in range(9)]
    (some,) = microbatches(bundle(rows, []), 10**6, padded=False)
    widths = [one.width for one in some]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("loss", ["gspo", "gspo_token", "grpo", "dapo", "dr_grpo", "luspo"])
@pytest.mark.parametrize("arms", [False, True])
def test_an_update_does_not_depend_on_the_cut(loss: str, arms: bool) -> None:
    """Plain gradients, not Adam's steps: Adam would blow up what rounding leaves of a zero."""
    results = []
    for tokens in (1, 40, 10**6):
        updater = make_updater(
            make_policies(kind="full")["team"], loss={"name": loss}, microbatch_tokens=tokens
        )
        rows = make_rows(9)
        rows[5] = replace(rows[5], sequence=3)
        choices = []
        if arms:
            prompts = list(dict.fromkeys(one.prompt_ids for one in rows))
            choices = make_choices(updater.policy, prompts, gain=0.2)
            rows = [replace(one, context=prompts.index(one.prompt_ids)) for one in rows]
        weights = list(updater.policy.parameters.values())
        updater.optimizer = torch.optim.SGD(weights, lr=1.0)  # type: ignore[assignment]
        done = updater.update(rows, choices, train_choice=True)
        assert done.dropped == 0
        results.append((weights_of(updater.policy), done))
    whole, seen = results[-1]
    start = weights_of(make_policies(kind="full")["team"])
    for cut, done in results[:-1]:
        assert done.gradient_norm == pytest.approx(seen.gradient_norm, rel=1e-4)
        assert done.stats == pytest.approx(seen.stats, rel=1e-4, abs=1e-5)
        for name, weight in whole.items():
            scale = float((weight - start[name]).abs().max())
            torch.testing.assert_close(cut[name], weight, rtol=1e-5, atol=1e-3 * scale)
