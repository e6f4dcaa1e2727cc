"""Scoring: the log-probabilities and gradients of whole logits, at the right positions."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tacit.engine import forward as scoring
from tacit.engine.base import Request, Sampling, SilenceRule
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.learn.score import score
from tacit.silence import ChoicePoint
from tacit.silence.conditioning import conditioned_logprobs, shared_prefix
from tacit.types import ChatMessage, Choice
from tests.helpers.learn_parts import EOS, MARKER, ids, make_policies, make_updater
from tests.helpers.tiny_models import tiny_model

Messages = list[tuple[tuple[int, ...], tuple[int, ...]]]
RAGGED: Messages = [
    (ids(1, 5), (*ids(2, 6), EOS)),
    (ids(3, 9), (EOS,)),
    (ids(4, 2), (*ids(5, 3), EOS)),
    (ids(6, 12), ids(7, 4)),
]
SHARED: Messages = [
    *((ids(1, 14), (*ids(seed, 1 + seed % 5), EOS)) for seed in range(20, 28)),
    *((ids(2, 11), (*ids(seed, 2 + seed % 3), EOS)) for seed in range(30, 34)),
]

GOING_ON: Messages = [
    (ids(1, length) + ids(seed, 3), (*ids(seed + 1, 1 + seed % 4), EOS))
    for seed, length in enumerate((20, 60, 40, 60, 0, 40, 20), start=40)
]
"""Prompts of a conversation: the later ones go on from the earlier, and then part."""


def by_hand(module: Any, messages: Messages) -> list[torch.Tensor]:
    """One message at a time, all logits: token t of the output is predicted one place before it."""
    rows = []
    for prompt, output in messages:
        logits = module(input_ids=torch.tensor([[*prompt, *output]])).logits[0]
        log_softmax = torch.log_softmax(logits.float(), dim=-1)
        rows.append(
            torch.stack([log_softmax[len(prompt) - 1 + t, id] for t, id in enumerate(output)])
        )
    return rows


def gradients(module: Any, values: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of a sum in which every token has a weight of its own."""
    total = sum(
        (row * torch.linspace(0.5, 1.5 + i, len(row))).sum() for i, row in enumerate(values)
    )
    names, weights = zip(*module.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(total, weights), strict=True))


@pytest.mark.parametrize("messages", [RAGGED, SHARED, RAGGED + SHARED + GOING_ON])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "smollm3", "mistral", "gpt2"])
def test_scores_and_gradients_are_those_of_whole_logits(
    kind: str, messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tiny_model(kind).module
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", 3 * module.config.vocab_size)
    scores = score(module, messages)
    expected = by_hand(module, messages)
    found = [row[mask] for row, mask in zip(scores.logprobs_BT, scores.mask_BT, strict=True)]
    assert scores.mask_BT.sum(-1).tolist() == [len(output) for _, output in messages]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    theirs_by_name = gradients(module, expected)
    for name, ours in gradients(module, found).items():
        scale = float(theirs_by_name[name].abs().max())
        torch.testing.assert_close(ours, theirs_by_name[name], rtol=1e-4, atol=1e-5 * (1 + scale))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "tokens"), [("llama", 14 + 21 + 11 + 11), ("gpt2", 12 * 19)])
def test_nothing_is_computed_for_padding_and_a_shared_prompt_once(kind: str, tokens: int) -> None:
    """Where the model can; else every message is as wide as the widest."""
    module = tiny_model(kind).module
    seen = []
    module.get_input_embeddings().register_forward_hook(lambda _, ids, __: seen.append(ids[0]))
    score(module, SHARED)
    assert [ids.numel() for ids in seen] == [tokens]


def test_an_off_by_one_would_be_seen() -> None:
    """The tokens' neighbours have other log-probabilities, so equality above means position."""
    module = tiny_model().module
    (prompt, output), *_ = RAGGED
    (right,) = by_hand(module, [(prompt, output)])
    (early,) = by_hand(module, [(prompt[:-1], (prompt[-1], *output[:-1]))])
    assert not torch.allclose(right, early, atol=1e-2)
    assert not torch.allclose(right[1:], right[:-1], atol=1e-2)


def test_the_last_token_has_a_gradient_and_padding_exactly_none() -> None:
    module = tiny_model().module
    scores = score(module, RAGGED)
    width = scores.mask_BT.shape[1]
    lengths = [len(output) for _, output in RAGGED]
    embedding = module.get_input_embeddings().weight
    for row, length in enumerate(lengths):
        for place in range(width):
            (gradient,) = torch.autograd.grad(
                scores.logprobs_BT[row, place], embedding, retain_graph=True
            )
            assert bool(gradient.any()) == (place < length)
    assert scores.logprobs_BT[~scores.mask_BT].eq(0).all()
    assert scores.entropy_BT[~scores.mask_BT].eq(0).all()


def test_what_fills_the_padding_does_not_matter() -> None:
    """A message scores the same alone as beside a longer one."""
    module = tiny_model().module
    alone = score(module, RAGGED[2:3]).logprobs_BT[0, :4]
    beside = score(module, RAGGED).logprobs_BT[2, :4]
    torch.testing.assert_close(alone, beside, rtol=1e-5, atol=1e-5)


def test_entropy_is_that_of_the_whole_distribution() -> None:
    module = tiny_model().module
    prompt, output = RAGGED[0]
    logits = module(input_ids=torch.tensor([[*prompt, *output]])).logits[0].float()
    at = slice(len(prompt) - 1, len(prompt) - 1 + len(output))
    expected = torch.distributions.Categorical(logits=logits[at]).entropy()
    found = score(module, [RAGGED[0]]).entropy_BT[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not found.requires_grad


@pytest.mark.parametrize("choice", [Choice.FREE, Choice.SPEAK])
async def test_the_engine_and_the_trainer_agree_on_the_pocket_model(choice: Choice) -> None:
    loaded = load_model("pocket")
    engine = LocalEngine(loaded, rows=8)
    messages = (ChatMessage("user", "What is 27 + 45 - 18?"),)
    prompt, marker = engine.encode(messages), engine.silence_ids()
    request = Request(
        messages=messages,
        prompt_ids=prompt,
        sampling=Sampling(temperature=1.0, max_tokens=24),
        silence=SilenceRule(ids=marker, choice=choice),
    )
    seeded = [
        Request(
            messages=request.messages,
            prompt_ids=prompt,
            sampling=request.sampling,
            silence=request.silence,
            seed=seed,
        )
        for seed in range(6)
    ]
    try:
        done = [await engine.generate(one) for one in seeded]
    finally:
        await engine.close()
    with torch.no_grad():
        scores = score(loaded.module, [*((prompt, one.ids) for one in done), (prompt, marker)])
    logprobs, marked = scores.logprobs_BT[:-1], scores.logprobs_BT[-1:, : len(marker)]
    if choice is Choice.SPEAK:
        shared = torch.tensor([shared_prefix(one.ids, marker) for one in done])
        logprobs = conditioned_logprobs(logprobs, marked.expand(len(done), -1), shared)
    for one, row in zip(done, logprobs, strict=True):
        assert row[: len(one.ids)].tolist() == pytest.approx(one.logprobs, abs=2e-4)
        assert one.silence_logprob == pytest.approx(float(marked.sum()), abs=2e-4)


async def test_silence_with_any_end_is_one_event_to_engine_and_trainer() -> None:
    loaded = tiny_model()
    loaded.module.generation_config.eos_token_id = [EOS, 0, 1]
    policy = make_policies(base=loaded)["team"]
    engine = LocalEngine(policy.loaded, rows=8, activate=policy.on)
    prompt, marker = ids(3, 8), engine.silence_ids()
    try:
        done = await engine.generate(
            Request(
                messages=(),
                prompt_ids=prompt,
                sampling=Sampling(temperature=1.0, max_tokens=8),
                silence=SilenceRule(ids=marker, choice=Choice.SILENT),
            )
        )
    finally:
        await engine.close()
    with torch.no_grad():
        each = score(loaded.module, [(prompt, (*marker[:-1], end)) for end in (EOS, 0, 1)])
    whole = float(each.logprobs_BT.sum(-1).logsumexp(0))
    assert whole > float(each.logprobs_BT.sum(-1).max()) + 0.01, "one end is all there is"
    assert done.silence_logprob == pytest.approx(whole, abs=1e-4)
    assert done.ids[:-1] == marker[:-1] and done.ids[-1] in (EOS, 0, 1)
    choice = ChoicePoint(policy="team", prompt_ids=prompt, marker_ids=done.ids, log_p=0.0, gain=0.1)
    (seen,) = make_updater(policy).step.present([choice])
    assert seen.log_p == pytest.approx(whole, abs=1e-4)


def test_the_marker_is_scored_as_any_message() -> None:
    module = tiny_model().module
    (expected,) = by_hand(module, [(ids(1, 5), MARKER)])
    found = score(module, [(ids(1, 5), MARKER)]).logprobs_BT[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
