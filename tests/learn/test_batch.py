"""Cutting a batch: what belongs together stays together, and the cut changes no number."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st

from tacit.learn.batch import LEAST_SHARED as LEAST, SPREAD, Row, bundle, microbatches, split
from tacit.learn.loss import LOSSES
from tests.helpers.learn_parts import (
    MARKER,
    ids,
    make_choices,
    make_policies,
    make_rows,
    make_updater,
    weights_of,
)


def row(sequence: int, *, chosen: int = 0, prompt: int = 3, output: int = 2) -> Row:
    """`chosen`: in which choice to speak it was spoken, 0 for none."""
    return Row(
        policy="team",
        prompt_ids=ids(chosen, prompt),
        output_ids=ids(2, output),
        engine_logprobs=(0.0,) * output,
        advantage=1.0,
        sequence=sequence,
        marker=MARKER if chosen else (),
    )


def test_rows_of_a_sequence_or_a_choice_stay_together() -> None:
    rows = [row(0), row(1, chosen=1), row(0), row(2, chosen=1), row(3, chosen=2), row(4)]
    found = [[rows.index(one) for one in some.rows] for some in bundle(rows)]
    assert found == [[0, 0], [1, 3], [4], [5]]
    assert [one.height for one in bundle(rows)] == [2, 3, 2, 1]


def test_a_sequence_joins_the_choices_of_its_rows() -> None:
    rows = [row(0, chosen=1), row(0, chosen=2), row(1, chosen=2)]
    (one,) = bundle(rows)
    assert one.rows == tuple(rows) and one.height == 5


def test_width_is_the_longest_row_markers_included() -> None:
    (one,) = bundle([row(0, chosen=1, prompt=7, output=2)])
    assert one.width == 7 + len(MARKER)
    (one,) = bundle([row(0, prompt=9, output=5)])
    assert one.width == 14


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    return [
        row(
            draw(st.integers(0, 6)),
            chosen=draw(st.integers(0, 4)),
            prompt=draw(st.integers(1, 30)),
            output=draw(st.integers(1, 20)),
        )
        for _ in range(draw(st.integers(1, 12)))
    ]


@given(batches(), st.integers(1, 400))
def test_every_row_once_nothing_parted_and_no_wider_than_allowed(
    rows: list[Row], tokens: int
) -> None:
    bundles = bundle(rows)
    assert sorted(id(r) for one in bundles for r in one.rows) == sorted(map(id, rows))
    place = {id(r): n for n, one in enumerate(bundles) for r in one.rows}
    for one in rows:
        choice = one.marker and [r for r in rows if r.marker and r.prompt_ids == one.prompt_ids]
        beside = [r for r in rows if r.sequence == one.sequence] + list(choice)
        assert all(place[id(r)] == place[id(one)] for r in beside)
    cut = microbatches(bundles, tokens)
    assert sorted(id(one) for some in cut for one in some) == sorted(map(id, bundles))
    for some in cut:
        padded = sum(one.height for one in some) * max(one.width for one in some)
        assert len(some) == 1 or padded <= tokens
    widths = [one.width for some in cut for one in some]
    assert all(a >= b for a, b in pairwise(widths))


@given(st.integers(1, 9), st.integers(1, 12))
def test_mini_batches_are_of_as_equal_size_as_may_be(parts: int, count: int) -> None:
    bundles = bundle([row(i) for i in range(count)])
    dealt = split(bundles, parts)
    assert len(dealt) == min(parts, count)
    assert {len(some) for some in dealt} <= {count // len(dealt), -(-count // len(dealt))}
    assert sorted(r.sequence for some in dealt for one in some for r in one.rows) == [*range(count)]


def test_groups_stay_whole_where_mini_batches_are_equal_even_so() -> None:
    groups = [replace(row(8 * g + i), prompt_ids=ids(g, 5)) for g in range(6) for i in range(8)]
    for some in split(bundle(groups), 3):
        assert sorted(r.sequence % 8 for one in some for r in one.rows) == sorted([*range(8)] * 2)
    uneven = split(bundle(groups[:40]), 3)
    assert sorted(len(some) for some in uneven) == [13, 13, 14]


def test_a_prompt_without_padding_counts_once_for_those_beside_each_other() -> None:
    rows = [
        replace(row(2 * g + i, prompt=9, output=1 + 3 * i + g), prompt_ids=ids(g, 9))
        for i in range(2)
        for g in range(2)
    ]
    packed = microbatches(bundle(rows), 9 + 2 + 5, padded=False)
    found = [[rows.index(r) for one in some for r in one.rows] for some in packed]
    assert found == [[3, 1], [2, 0]]
    assert len(microbatches(bundle(rows), 9 + 2 + 5 - 1, padded=False)) == 3


def test_what_prompts_begin_with_counts_once_for_those_beside_each_other() -> None:
    alike, other = ids(1, LEAST), ids(2, LEAST)
    prompts = [alike + ids(3, 9), other, alike, alike[:-1] + other]
    rows = [replace(row(n, output=2), prompt_ids=prompt) for n, prompt in enumerate(prompts)]
    apart = 2 * LEAST - 1 + 2
    beside = LEAST + 2 + 9 + 2
    assert beside < apart + LEAST
    cut = microbatches(bundle(rows), beside, padded=False)
    assert {2, 0} in [{r.sequence for one in some for r in one.rows} for some in cut]
    assert all(len(some) == 1 for some in microbatches(bundle(rows), beside - 1, padded=False))
    (whole,) = bundle([replace(one, sequence=0) for one in rows])
    assert whole.tokens == beside + apart + LEAST + 2


def test_a_long_talk_is_cut_before_attention_grows_out_of_proportion() -> None:
    """Each prompt goes on from the one before: counted once they would all fit, ten times over."""
    whole = ids(1, 60 * LEAST)
    rows = [
        replace(row(n, output=2), prompt_ids=whole[: LEAST * (n + 1)]) for n in reversed(range(60))
    ]
    tokens = 10 * len(whole)
    cut = microbatches(bundle(rows), tokens, padded=False)
    assert len(cut) == 1
    tokens = len(whole) + 2 * len(rows)
    cut = microbatches(bundle(rows), tokens, padded=False)
    spread = [sum(one.spread for one in some) for some in cut]
    assert 60 * 61 / 2 * LEAST / tokens / SPREAD <= len(cut) <= 10
    assert max(spread) <= SPREAD * tokens


def test_prompts_with_little_in_common_stand_by_width() -> None:
    head = ids(1, LEAST)
    rows = [replace(row(n), prompt_ids=head + ids(n + 2, 50 * (1 + n % 3))) for n in range(9)]
    (some,) = microbatches(bundle(rows), 10**6, padded=False)
    widths = [one.width for one in some]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("loss", LOSSES)
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
            rows = [replace(one, marker=MARKER) for one in rows]
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
