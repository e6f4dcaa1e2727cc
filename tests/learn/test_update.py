"""One update: what moves, what never moves, what is left out, and towards what."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
import torch

from tacit.config import SilenceConfig
from tacit.engine.load import LoadedModel
from tacit.errors import RunError
from tacit.learn import microbatch as scoring, update as updating
from tacit.learn.batch import Row, bundle, markers
from tacit.learn.loss import LossInputs
from tacit.learn.microbatch import score_all
from tacit.learn.policy import Policy, fingerprint
from tacit.learn.score import score
from tacit.learn.update import Updater
from tacit.silence import ChoicePoint
from tacit.silence.conditioning import silence_logit
from tacit.silence.step import _Descent, _some, wanted_change
from tests.helpers.learn_parts import (
    EOS,
    MARKER,
    ids,
    log_p_of,
    make_choices,
    make_policies,
    make_rows,
    make_updater,
    moved,
    weights_of,
)
from tests.helpers.tiny_models import tiny_model


@torch.no_grad()
def logprob_of(updater: Updater, rows: list[Row]) -> list[float]:
    with updater.policy.on():
        scores = score(updater.policy.loaded.module, [(r.prompt_ids, r.output_ids) for r in rows])
    return [float(value) for value in scores.logprobs_BT.sum(-1)]


def with_sgd(updater: Updater) -> Updater:
    """Plain gradient steps, so that sizes of gradients can be read off the weights."""
    weights = list(updater.policy.parameters.values())
    updater.optimizer = torch.optim.SGD(weights, lr=1.0)  # type: ignore[assignment]
    return updater


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_what_was_better_gets_likelier_and_the_frozen_base_stays(kind: str) -> None:
    policy = make_policies(kind=kind)["team"]
    frozen = fingerprint(policy.base.module)
    updater = make_updater(policy)
    rows = [replace(row, advantage=1.0 if i % 2 else -1.0) for i, row in enumerate(make_rows(6))]
    before = logprob_of(updater, rows)
    for _ in range(5):
        done = updater.update(rows, [], train_choice=False)
        assert done.dropped == 0 and done.gradient_norm > 0
    after = logprob_of(updater, rows)
    good = [b - a for row, a, b in zip(rows, before, after, strict=True) if row.advantage > 0]
    bad = [b - a for row, a, b in zip(rows, before, after, strict=True) if row.advantage < 0]
    assert sum(good) > 0.1 and sum(bad) < -0.1
    assert fingerprint(policy.base.module) == frozen
    assert updater.taken == 5


def test_adapters_of_two_roles_learn_apart() -> None:
    policies = make_policies("hinter", "critic")
    frozen = fingerprint(policies["hinter"].base.module)
    before = {name: weights_of(policy) for name, policy in policies.items()}
    done = make_updater(policies["hinter"]).update(
        make_rows(4, policy="hinter"), [], train_choice=False
    )
    assert done.gradient_norm > 0
    assert moved(before["hinter"], policies["hinter"]) > 0
    assert moved(before["critic"], policies["critic"]) == 0
    make_updater(policies["critic"]).update(make_rows(4, policy="critic"), [], train_choice=False)
    assert moved(before["critic"], policies["critic"]) > 0
    assert fingerprint(policies["hinter"].base.module) == frozen


def test_no_advantage_no_step() -> None:
    updater = make_updater()
    before = weights_of(updater.policy)
    done = updater.update(make_rows(4, advantage=0.0), [], train_choice=False)
    assert done.gradient_norm == 0.0
    assert moved(before, updater.policy) == 0.0


@pytest.mark.parametrize("loss", ["gspo", "grpo", "dapo"])
def test_who_teaches_nothing_counts_but_is_not_computed(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        replace(row, advantage=row.advantage * (n % 3 > 0)) for n, row in enumerate(make_rows(9))
    ]
    computed: list[tuple[int, ...]] = []

    def watched(module: Any, messages: Any) -> Any:
        computed.extend(output for _, output in messages)
        return score(module, messages)

    unclipped = {"optimizer": {"clip_norm": 1e9}}
    whole, some = (
        with_sgd(make_updater(loss={"name": loss, "kl": kl}, **unclipped)) for kl in (1e-20, 0.0)
    )
    whole.update(rows, [], train_choice=False)
    monkeypatch.setattr(scoring, "score", watched)
    some.update(rows, [], train_choice=False)
    assert sorted(computed) == sorted(row.output_ids for row in rows if row.advantage)
    for name, weight in whole.policy.parameters.items():
        torch.testing.assert_close(some.policy.parameters[name], weight, rtol=1e-4, atol=1e-5)


def test_something_is_seen_of_a_batch_that_teaches_nothing() -> None:
    rows = make_rows(3, advantage=0.0)
    choices = make_choices(make_updater().policy, [ids(9, 4)], gain=0.2)
    done = make_updater().update(rows, choices, train_choice=False)
    assert done.stats["entropy"] > 0 and done.gradient_norm == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_micro_batch_without_a_finite_loss_is_left_out_and_counted(bad: float) -> None:
    rows = make_rows(4)
    rows[2] = replace(rows[2], advantage=bad)
    updater, spared = (with_sgd(make_updater(microbatch_tokens=1)) for _ in range(2))
    assert updater.update(rows, [], train_choice=False).dropped == 1
    rows[2] = replace(rows[2], advantage=0.0)
    assert spared.update(rows, [], train_choice=False).dropped == 0
    for name, weight in updater.policy.parameters.items():
        assert torch.isfinite(weight).all()
        torch.testing.assert_close(weight, spared.policy.parameters[name], rtol=0, atol=1e-7)


def test_where_nothing_is_finite_nothing_moves() -> None:
    updater = make_updater()
    before = weights_of(updater.policy)
    done = updater.update(make_rows(4, advantage=math.nan), [], train_choice=False)
    assert (done.dropped, done.stats, done.gradient_norm) == (1, {}, 0.0)
    assert moved(before, updater.policy) == 0.0


def test_the_gradient_is_clipped_and_its_norm_told_from_before() -> None:
    loud = with_sgd(make_updater(optimizer={"clip_norm": 0.01, "learning_rate": 1.0}))
    before = weights_of(loud.policy)
    done = loud.update(make_rows(6, advantage=5.0), [], train_choice=False)
    assert done.gradient_norm > 0.1
    steps = [(loud.policy.parameters[n].detach() - w).square().sum() for n, w in before.items()]
    assert float(torch.stack(steps).sum().sqrt()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0]),
        ("late", [0.5, 1.0, 1.0, 0.75]),
        ("linear", [0.5, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 0.5 * (1 + math.cos(math.pi / 4)), 0.5, 0.5 * (1 - math.sqrt(0.5))]),
    ],
)
def test_schedules_after_a_warm_up_of_two(schedule: str, expected: list[float]) -> None:
    updater = make_updater(
        optimizer={"learning_rate": 1.0, "warmup_steps": 2, "schedule": schedule}, steps=4
    )
    rates = []
    for taken in range(4):
        updater.taken = taken
        rates.append(updater.learning_rate())
    assert rates == pytest.approx(expected)


def test_several_updates_share_the_log_probabilities_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four mini-batches: all are compared with the policy as it was when the batch began."""
    seen: list[LossInputs] = []
    gspo = updating.LOSSES["gspo"]

    def watch(x: LossInputs, *rest: Any) -> Any:
        seen.append(x)
        return gspo(x, *rest)

    monkeypatch.setitem(updating.LOSSES, "gspo", watch)
    updater = make_updater(updates=4, loss={"clip_low": 5.0, "clip_high": 5.0})
    rows = make_rows(8, advantage=1.0)
    start = sorted(logprob_of(updater, rows))
    done = updater.update(rows, [], train_choice=False)
    assert updater.taken == 4 and len(seen) == 4
    old = sorted(float(v) for x in seen for v in (x.old_logprobs_BT * x.mask_BT).sum(-1))
    assert old == pytest.approx(start, abs=1e-4)
    gaps = [float((x.logprobs_BT - x.old_logprobs_BT).detach().abs().max()) for x in seen]
    assert gaps[0] == pytest.approx(0.0, abs=1e-5) and all(gap > 1e-3 for gap in gaps[1:])
    assert done.stats["ratio_max"] > 1.0


def test_micro_batches_scored_together_are_scored_as_each_alone() -> None:
    """Their rows differ in length, and one has a choice that its rows were drawn under."""
    updater = make_updater(microbatch_tokens=30)
    rows = [replace(row, marker=MARKER if i < 2 else ()) for i, row in enumerate(make_rows(8))]
    micros = updater._microbatches(bundle(rows))
    widths = {max(len(row.output_ids) for row in micro.rows) for micro in micros}
    assert len(micros) > 2 and len(widths) > 1 and any(markers(micro.rows) for micro in micros)
    module, on = updater.policy.loaded.module, updater.policy.on
    together = score_all(micros, module, on(), (EOS,))
    for micro, one in zip(micros, together, strict=True):
        (alone,) = score_all([micro], module, on(), (EOS,))
        assert torch.equal(one.mask_BT, alone.mask_BT)
        for name in ("logprobs_BT", "entropy_BT"):
            torch.testing.assert_close(getattr(one, name), getattr(alone, name))


def test_a_clipped_ratio_stops_the_second_update() -> None:
    """The same rows in both halves: once the ratio has left a tiny range nothing pulls further."""
    tight, loose = (
        make_updater(updates=8, loss={"clip_high": clip, "length_aware": False})
        for clip in (1e-6, 1e6)
    )
    rows = [replace(row, sequence=i) for i, row in enumerate(make_rows(1, advantage=1.0) * 8)]
    clipped = tight.update(rows, [], train_choice=False)
    free = loose.update(rows, [], train_choice=False)
    assert clipped.stats["clip_fraction"] > 0.5
    assert free.stats["clip_fraction"] == 0.0
    assert logprob_of(loose, rows)[0] > logprob_of(tight, rows)[0] + 0.01


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_kl_pulls_back_to_the_frozen_base(kind: str) -> None:
    policy = make_policies(kind=kind)["team"]
    rows = make_rows(6)
    away = make_updater(policy)
    for _ in range(8):
        away.update(rows, [], train_choice=False)
    back = make_updater(policy, loss={"kl": 1.0})
    still = [replace(row, advantage=0.0) for row in rows]
    first = back.update(still, [], train_choice=False).stats["ref_kl"]
    for _ in range(8):
        last = back.update(still, [], train_choice=False).stats["ref_kl"]
    assert first > 1e-3
    assert last < 0.7 * first


def test_a_floors_weight_scales_the_advantage() -> None:
    one, half = (with_sgd(make_updater(optimizer={"clip_norm": 1e6})) for _ in range(2))
    before = weights_of(one.policy)
    one.update(make_rows(4), [], train_choice=False)
    half.update(make_rows(4, weight=0.5), [], train_choice=False)
    for name, start in before.items():
        whole = one.policy.parameters[name].detach() - start
        part = half.policy.parameters[name].detach() - start
        torch.testing.assert_close(part, 0.5 * whole, rtol=1e-3, atol=1e-6)
    assert moved(before, one.policy) > 0


def test_the_engines_gap_is_told() -> None:
    updater = make_updater()
    exact = [
        replace(row, engine_logprobs=values)
        for row, values in zip(make_rows(4), _each(updater, make_rows(4)), strict=True)
    ]
    off = [replace(r, engine_logprobs=tuple(v + 0.1 for v in r.engine_logprobs)) for r in exact]
    told = updater.update(exact, [], train_choice=False).stats
    assert told["engine_gap"] == pytest.approx(0.0, abs=1e-5)
    assert told["mismatch_ratio"] == pytest.approx(1.0, abs=1e-5)
    told = make_updater().update(off, [], train_choice=False).stats
    assert told["engine_gap"] == pytest.approx(0.1, abs=1e-5)
    assert told["mismatch_ratio"] == pytest.approx(math.exp(-0.1), abs=1e-5)


@torch.no_grad()
def _each(updater: Updater, rows: list[Row]) -> list[tuple[float, ...]]:
    messages = [(row.prompt_ids, row.output_ids) for row in rows]
    scores = score(updater.policy.loaded.module, messages)
    return [
        tuple(values[mask].tolist())
        for values, mask in zip(scores.logprobs_BT, scores.mask_BT, strict=True)
    ]


PROMPTS = [ids(seed, 8) for seed in (1, 2, 3)]


def undecided_base() -> LoadedModel:
    """A model to which silence is neither certain nor impossible in any of the contexts."""
    base = tiny_model()
    optimizer = torch.optim.Adam(base.module.parameters(), lr=1e-3)
    for _ in range(400):
        log_p = score(base.module, [(prompt, MARKER) for prompt in PROMPTS]).logprobs_BT.sum(-1)
        if bool((log_p.exp() > 0.3).all()):
            return base
        optimizer.zero_grad()
        (log_p.clamp(max=math.log(0.5)).neg().sum()).backward()
        optimizer.step()
    raise AssertionError("silence stayed unlikely")


def spoken_rows(count: int = 12, advantage: float = 1.0) -> list[Row]:
    return [
        Row(
            policy="team",
            prompt_ids=PROMPTS[i % 3],
            output_ids=ids(50 + i, 4),
            engine_logprobs=(-1.0,) * 4,
            advantage=advantage if i % 2 else -advantage,
            sequence=i,
            marker=MARKER,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("choices", [0, 3])
def test_a_model_with_several_ends_learns_with_choices_and_without(choices: int) -> None:
    base = undecided_base()
    base.module.generation_config.eos_token_id = [EOS, 0, 1]
    policy = make_policies(base=base)["team"]
    before = weights_of(policy)
    rows = spoken_rows() if choices else make_rows()
    made = make_choices(policy, PROMPTS[:choices], 0.5) if choices else []
    updated = make_updater(policy).update(rows, made, train_choice=True)
    assert updated.dropped == 0 and moved(before, policy) > 0.0


@pytest.mark.parametrize("kind", ["lora", "full"])
@pytest.mark.parametrize("gain", [0.5, -0.5])
def test_the_choice_moves_to_where_it_pays(kind: str, gain: float) -> None:
    policy = make_policies(kind=kind, base=undecided_base())["team"]
    updater = make_updater(policy, optimizer={"learning_rate": 3e-4})
    start = log_p_of(policy, PROMPTS)
    for _ in range(8):
        choices = make_choices(policy, PROMPTS, gain)
        updater.update(spoken_rows(advantage=0.0), choices, train_choice=True)
    for before, after in zip(start, log_p_of(policy, PROMPTS), strict=True):
        assert (after - before) * gain > 0


def test_the_choice_comes_to_rest_with_the_schedule() -> None:
    """Half-way down a linear schedule half of the change is asked for, at its end none."""
    moved = []
    for taken in (0, 4, 8):
        policy = make_policies(kind="full", base=undecided_base())["team"]
        settings = {"learning_rate": 1e-9, "warmup_steps": 0, "schedule": "linear"}
        updater = make_updater(policy, optimizer=settings, steps=8)
        updater.taken, start = taken, mean_logit(policy)
        choices = make_choices(policy, PROMPTS, gain=0.5)
        updater.update(spoken_rows(advantage=0.0), choices, train_choice=True)
        moved.append(mean_logit(policy) - start)
    assert moved == pytest.approx([1.0, 0.5, 0.0], abs=0.1)


def mean_logit(policy: Policy) -> float:
    return fmean(p - math.log(-math.expm1(p)) for p in log_p_of(policy, PROMPTS))


def test_in_the_warm_up_p_is_held_while_the_content_learns() -> None:
    """Content alone drags p along, each step from where the last one left it."""
    drift = {}
    for held in (False, True):
        policy = make_policies(kind="full", base=undecided_base())["team"]
        updater = make_updater(policy, optimizer={"learning_rate": 3e-4})
        start = mean_logit(policy)
        for _ in range(20):
            rows = spoken_rows()
            if held:
                choices = [
                    replace(choice, log_p=choice.log_p + 0.2)  # as an engine might see it
                    for choice in make_choices(policy, PROMPTS, gain=0.5)
                ]
                updater.update(rows, choices, train_choice=False)
            else:
                bare = [replace(row, marker=()) for row in rows]
                updater.update(bare, [], train_choice=False)
        drift[held] = abs(mean_logit(policy) - start)
    assert drift[False] > 1.0
    assert drift[True] < 0.15


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_p_as_a_whole_ends_where_the_gains_ask_it_to_be(kind: str) -> None:
    """However far the content's own step drags it."""
    policy = make_policies(kind=kind, base=undecided_base())["team"]
    updater = make_updater(policy, optimizer={"learning_rate": 3e-4, "warmup_steps": 0})
    for gain in (0.5, 0.5, -0.5, -0.5):
        choices = make_choices(policy, PROMPTS, gain)
        logit = fmean(c.log_p - math.log(-math.expm1(c.log_p)) for c in choices)
        log_p = torch.tensor([c.log_p for c in choices])
        asked = wanted_change(log_p, torch.full((3,), gain), SilenceConfig())
        updater.update(spoken_rows(), choices, train_choice=True)
        assert mean_logit(policy) - logit == pytest.approx(float(asked.mean()), abs=0.25)


def test_other_contexts_are_no_reason_to_move_in_a_warm_up() -> None:
    """Those of the next batch may differ in p by nature."""
    policy = make_policies(kind="full", base=undecided_base())["team"]
    updater = make_updater(policy)
    for prompt in (PROMPTS[0], PROMPTS[1], PROMPTS[2]):
        choices = make_choices(policy, [prompt], gain=0.5)
        before = weights_of(policy)
        updater.update(spoken_rows(advantage=0.0), choices, train_choice=False)
        assert moved(before, policy) == 0.0


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_contexts_that_ask_for_opposite_things_both_get_them(kind: str) -> None:
    policy = make_policies(kind=kind, base=undecided_base())["team"]
    updater = make_updater(policy, optimizer={"learning_rate": 1e-4})
    for _ in range(6):
        asked = make_choices(policy, PROMPTS, gain=0.0)
        choices = [replace(c, gain=g) for c, g in zip(asked, (-0.5, 0.5, 0.5), strict=True)]
        updater.update(spoken_rows(), choices, train_choice=True)
    first, *others = (p - math.log(-math.expm1(p)) for p in log_p_of(policy, PROMPTS))
    assert first < -1.5 and all(other > 0.5 for other in others)


def test_each_context_gets_what_is_asked_however_the_content_drags_it() -> None:
    """From out of reach, by one at a time: as the GPU's test asks in half precision."""
    prompts = [ids(seed, 20) for seed in range(8)]
    policy = make_policies(base=tiny_model("llama", head_dim=32, hidden_size=128))["team"]
    updater = make_updater(policy, optimizer={"learning_rate": 1e-3, "warmup_steps": 0})
    rows = [replace(row, prompt_ids=prompts[i]) for i, row in enumerate(make_rows(8))]
    assert max(logits_of(policy, prompts)) < -3.6
    for _ in range(36):
        updater.update(rows, make_choices(policy, prompts, gain=0.0), train_choice=True)
    assert logits_of(policy, prompts) == pytest.approx([-3.0] * 8, abs=0.3)


@pytest.mark.parametrize(("scale", "reach"), [(1.0, -3.0), (3.0, 3.0)])
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_a_choice_out_of_reach_is_brought_back(kind: str, scale: float, reach: float) -> None:
    """Without harm to the weights, even where p is all but 1 and its gradient all but gone."""
    base = tiny_model() if reach < 0 else undecided_base()
    with torch.no_grad():
        base.module.lm_head.weight *= scale
    policy = make_policies(kind=kind, base=base)["team"]
    updater = make_updater(policy, optimizer={"learning_rate": 1e-6}, silence={"clip": 9.0})
    start = mean_logit(policy)
    assert abs(start) > 5.0 and start * reach > 0
    before = weights_of(policy)
    for _ in range(6):
        choices = make_choices(policy, PROMPTS, gain=0.0)
        updater.update(spoken_rows(advantage=0.0), choices, train_choice=True)
    assert abs(mean_logit(policy) - reach) < max(0.4, 0.5 * abs(start - reach))
    assert moved(before, policy) < 1.0


def test_a_context_that_is_no_number_stops_no_other() -> None:
    policy = make_policies(kind="full", base=undecided_base())["team"]
    choices = make_choices(policy, PROMPTS, gain=0.5)
    lost = replace(choices[0], log_p=-math.inf)
    start = log_p_of(policy, PROMPTS)
    make_updater(policy).step.take([lost, *choices[1:]], train=True)
    end = log_p_of(policy, PROMPTS)
    assert all(b > a for a, b in zip(start[1:], end[1:], strict=True))


def test_a_settled_choice_is_left_alone() -> None:
    policy = make_policies(kind="full", base=undecided_base())["team"]
    before = weights_of(policy)
    choices = make_choices(policy, PROMPTS, gain=0.0)
    make_updater(policy).update(spoken_rows(advantage=0.0), choices, train_choice=True)
    assert moved(before, policy) < 1e-5


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_gradient_checkpointing_computes_layers_again_and_changes_no_number(kind: str) -> None:
    """With an adapter on: what is computed again in the backward pass must see it too."""
    results, passes = [], []
    for checkpointed in (False, True):
        policy = make_policies(kind=kind, targets=["q_proj", "down_proj", "lm_head"])["team"]
        with torch.no_grad():
            for weight in policy.parameters.values():
                weight.add_(0.01)
        module = policy.loaded.module
        if checkpointed:
            module.gradient_checkpointing_enable({"use_reentrant": False})
        ran = []
        module.model.layers[0].mlp.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
        updater = with_sgd(make_updater(policy))
        updater.update(make_rows(4), [], train_choice=False)
        passes.append(len(ran))
        results.append(weights_of(policy))
        assert not any(layer.training for layer in (module, *module.model.layers))
    assert passes == [1, 2]
    for name, weight in results[0].items():
        torch.testing.assert_close(results[1][name], weight, rtol=1e-5, atol=1e-6)


FULL = (
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
)


def with_room_for(messages: int, refused: list[int], error: Exception = FULL[0]) -> Any:
    """`score` on a machine that has no memory for more, where gradients are wanted."""

    def small(module: Any, some: Sequence[Any]) -> Any:
        if torch.is_grad_enabled() and len(some) > messages:
            refused.append(len(some))
            raise error
        return score(module, some)

    return small


def twins(updates: int = 1) -> tuple[Updater, Updater, list[Row], list[ChoicePoint]]:
    """Two like updaters, and four contexts for them, two messages and a marker each."""
    free, tight = (with_sgd(make_updater(updates=updates)) for _ in range(2))
    rows = [replace(row, marker=MARKER) for row in make_rows(8)]
    prompts = [rows[i].prompt_ids for i in (0, 2, 4, 6)]
    return free, tight, rows, make_choices(free.policy, prompts, gain=0.2)


@pytest.mark.parametrize(("updates", "error"), [(1, FULL[0]), (2, FULL[0]), (1, FULL[1])])
def test_a_step_that_memory_is_too_small_for_is_taken_in_smaller_pieces(
    updates: int,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    free, tight, rows, choices = twins(updates)
    expected = free.update(rows, choices, train_choice=True)
    refused: list[int] = []
    monkeypatch.setattr("tacit.learn.microbatch.score", with_room_for(3, refused, error))
    done = tight.update(rows, choices, train_choice=True)
    assert refused and done.dropped == 0
    assert done.stats["entropy"] == pytest.approx(expected.stats["entropy"], rel=1e-4)
    for name, weight in free.policy.parameters.items():
        torch.testing.assert_close(tight.policy.parameters[name], weight, rtol=1e-4, atol=1e-6)
    assert f"going on with microbatches of {tight.tokens} tokens" in caplog.text
    refused.clear()
    tight.update(rows, choices, train_choice=True)
    assert not refused, "the next step is cut as small from the start"


def test_so_is_the_step_of_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    free, tight, rows, choices = twins()
    free.update(rows, choices, train_choice=True)
    refused: list[int] = []
    monkeypatch.setattr("tacit.learn.choice_model.score", with_room_for(1, refused))
    tight.update(rows, choices, train_choice=True)
    assert refused == [4, 2, 2]
    for name, weight in free.policy.parameters.items():
        torch.testing.assert_close(tight.policy.parameters[name], weight, rtol=1e-4, atol=1e-6)


def test_small_changes_of_a_choice_are_made_and_add_up() -> None:
    updater = make_updater(microbatch_tokens=512)
    prompts, policy = [ids(seed, 6) for seed in range(4)], updater.policy
    for _ in range(36):  # into reach, by one at a time
        updater.step.take(make_choices(policy, prompts, gain=0.0), train=True)
    before = logits_of(policy, prompts)
    assert min(before) > -3.3
    for _ in range(10):
        choices = make_choices(policy, prompts, gain=0.0)
        small = [replace(one, gain=gain_for(one, 0.05, updater.config.silence)) for one in choices]
        updater.step.take(small, train=True)
    assert fmean(logits_of(policy, prompts)) == pytest.approx(fmean(before) + 0.5, abs=0.2)


def logits_of(policy: Policy, prompts: list[tuple[int, ...]]) -> list[float]:
    return [silence_logit(torch.tensor(p)).item() for p in log_p_of(policy, prompts)]


def gain_for(choice: ChoicePoint, change: float, silence: SilenceConfig) -> float:
    """What silence must gain there for logit p to be asked to change by so much."""
    p = math.exp(choice.log_p)
    weight = max(p * (1 - p), silence.least_weight)
    return change * 0.1 / (silence.coefficient * weight)


def test_a_choice_is_learned_from_few_contexts_taken_by_no_rule_of_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updater = make_updater(silence={"contexts": 3})
    choices = make_choices(updater.policy, [ids(seed, 6) for seed in range(7)], gain=0.5)
    looked: set[tuple[int, ...]] = set()

    def watched(module: Any, said: Any) -> Any:
        looked.update(tuple(prompt) for prompt, _ in said)
        return score(module, said)

    monkeypatch.setattr("tacit.learn.choice_model.score", watched)
    updater.update(make_rows(2), choices, train_choice=True)
    assert len(looked) == 3


def test_which_contexts_are_taken_depends_on_neither_order_nor_agent() -> None:
    """Four agents in turn: every fourth point would be that of the first one alone."""
    made = [
        ChoicePoint(policy="team", prompt_ids=(n % 4, n), marker_ids=(1, 2), log_p=-1.0, gain=0.1)
        for n in range(128)
    ]
    taken = _some(made, 32)
    assert len(taken) == 32 and {point.prompt_ids[0] for point in taken} == {0, 1, 2, 3}
    assert {p.prompt_ids for p in taken} == {p.prompt_ids for p in _some(made[::-1], 32)}
    assert _some(made[:32], 32) == made[:32]


def test_any_other_error_of_a_step_is_not_taken_for_a_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, tight, rows, choices = twins()
    refused: list[int] = []
    error = RuntimeError("a bad kernel")
    monkeypatch.setattr("tacit.learn.microbatch.score", with_room_for(0, refused, error))
    with pytest.raises(RuntimeError, match="a bad kernel"):
        tight.update(rows, choices, train_choice=True)
    assert len(refused) == 1


@pytest.mark.parametrize("error", FULL)
def test_out_of_memory_says_which_setting_to_lower(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: Any) -> None:
        raise error

    monkeypatch.setattr("tacit.learn.microbatch.score", too_much)
    with pytest.raises(RunError, match=r"lower train.microbatch_tokens \(now \d+\)"):
        make_updater().update(make_rows(2), [], train_choice=False)


def test_a_further_step_of_the_choice_keeps_what_the_last_one_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As against straight down each time, which goes to and fro where contexts are much alike."""
    prompts = [ids(seed, 8) for seed in range(12)]

    def left(straight: bool) -> float:
        policy = make_policies(kind="full", base=undecided_base())["team"]
        choices = make_choices(policy, prompts, gain=0.0)
        asked = [replace(c, gain=0.5 if i % 3 else -0.5) for i, c in enumerate(choices)]
        logits = [silence_logit(torch.tensor(c.log_p)) for c in asked]
        gains = torch.tensor([c.gain for c in asked])
        old = torch.tensor([c.log_p for c in asked])
        wanted = torch.stack(logits) + wanted_change(old, gains, SilenceConfig())
        with monkeypatch.context() as patched:
            if straight:
                patched.setattr(_Descent, "_way", lambda self, downhill, _: list(downhill))
            make_updater(policy).step.take(asked, train=True)
        now = silence_logit(torch.tensor(log_p_of(policy, prompts)))
        return float((wanted - now).square().mean())

    assert left(straight=False) < 0.8 * left(straight=True)
