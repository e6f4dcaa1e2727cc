"""Scoring and learning on a GPU: packed without padding, the same numbers as one row a message."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal

import pytest
import torch

from tacit.config import PolicyConfig
from tacit.engine.forward import forward_of
from tacit.engine.lora import adapter_parameters, add_adapter, switched_on
from tacit.learn.batch import Row
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.policy import build_policies
from tacit.learn.score import score
from tacit.learn.update import Updater
from tacit.silence.conditioning import silence_logit
from tests.helpers.learn_parts import ids, log_p_of, make_choices, make_rows, make_updater
from tests.helpers.tiny_models import tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
Said = list[tuple[list[int], list[int]]]
WIDER = {"head_dim": 32, "hidden_size": 128}
"""The flash kernel wants heads of at least eight numbers, in eights."""


def messages(count: int, group: int, seed: int = 0) -> Said:
    """Groups with the same prompt; one group says only one token, which is never fed."""
    dice = random.Random(seed)
    made = []
    for number in range(count):
        prompt = [dice.randrange(5, 250) for _ in range(dice.randrange(3, 90))]
        for _ in range(group):
            length = 1 if number == 1 else dice.randrange(1, 60)
            made.append((prompt, [dice.randrange(5, 250) for _ in range(length)]))
    return made


def conversations(count: int, turns: int) -> Said:
    """Prompts that go on from each other, and a question that all have in common."""
    dice = random.Random(1)
    some = partial(dice.choices, range(5, 250))
    question, made = some(k=40), []
    for _ in range(count):
        prompt = question
        for _ in range(turns):
            made.append((prompt + some(k=2), some(k=dice.randrange(1, 60))))
            prompt = prompt + some(k=dice.randrange(1, 50))
    return made


def scored(module: torch.nn.Module, said: Said) -> list[torch.Tensor]:
    """Log-probabilities, entropies, and the gradient of a weighted sum of the former."""
    scores = score(module, said)
    weights = torch.linspace(-1, 1, scores.logprobs_BT.numel(), device="cuda").view_as(
        scores.logprobs_BT
    )
    loss = (scores.logprobs_BT * weights).sum()
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    flat = torch.cat([gradient.float().flatten() for gradient in gradients])
    return [scores.logprobs_BT.detach(), scores.entropy_BT.detach(), flat]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("said", [messages(6, 1), messages(6, 4), conversations(3, 4)])
def test_packing_changes_nothing_but_rounding(family: str, said: Said) -> None:
    half = tiny_model(family, **WIDER, initializer_range=0.05).module.to("cuda", torch.bfloat16)
    exact = tiny_model(family, **WIDER, initializer_range=0.05).module.to("cuda", torch.bfloat16)
    exact = exact.float()
    assert forward_of(half).packs and not forward_of(exact).packs
    mine, theirs = scored(half, said), scored(exact, said)
    assert (mine[0] - theirs[0]).abs().max() < 0.15
    assert (mine[0] - theirs[0]).abs().mean() < 0.01
    assert (mine[1] - theirs[1]).abs().max() < 0.15
    cosine = torch.nn.functional.cosine_similarity(mine[2], theirs[2], dim=0)
    assert cosine > 0.999
    assert float(mine[2].norm()) == pytest.approx(float(theirs[2].norm()), rel=0.02)


def test_an_adapter_learns_in_half_precision_what_it_would_in_full() -> None:
    said, found = messages(6, 2), []
    for device in ("cuda", "cpu"):
        module = tiny_model("qwen2", **WIDER, initializer_range=0.05).module
        module = module.to("cuda", torch.bfloat16)
        module = module if device == "cuda" else module.float().cpu()
        targets = ["q_proj", "v_proj", "gate_proj", "down_proj"]
        add_adapter(module, "mine", rank=4, alpha=12.0, targets=targets, seed=1)
        weights, generator = adapter_parameters(module, "mine"), torch.Generator().manual_seed(2)
        with torch.no_grad():
            for weight in weights.values():
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
        with switched_on(module, "mine"):
            logprobs = score(module, said).logprobs_BT
            towards = torch.linspace(-1, 1, logprobs.numel(), device=device).view_as(logprobs)
            gradients = torch.autograd.grad((logprobs * towards).sum(), list(weights.values()))
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        found.append(torch.cat([gradient.flatten().cpu() for gradient in gradients]))
    mine, theirs = found
    assert torch.nn.functional.cosine_similarity(mine, theirs, dim=0) > 0.995
    assert float(mine.norm()) == pytest.approx(float(theirs.norm()), rel=0.05)


def test_layers_computed_again_give_the_same_gradient() -> None:

    said = messages(6, 4)
    plain = tiny_model("llama", **WIDER).module.to("cuda", torch.bfloat16)
    saving = tiny_model("llama", **WIDER).module.to("cuda", torch.bfloat16)
    saving.gradient_checkpointing_enable({"use_reentrant": False})
    with forward_of(saving).recomputing():
        again = scored(saving, said)
    assert torch.allclose(again[2], scored(plain, said)[2], rtol=1e-2, atol=1e-3)


def test_full_fine_tuning_learns_in_float32_and_serves_in_half_precision() -> None:
    loaded = tiny_model("llama", **WIDER)
    loaded.module.to("cuda", torch.bfloat16)
    policy = build_policies({"a": "a"}, {"a": loaded}, PolicyConfig(kind="full"), 0)["a"]
    name = next(iter(policy.parameters))
    before = policy.live[name].detach().clone()
    for _ in range(200):
        with torch.no_grad():
            policy.parameters[name] += 1e-5
        policy.publish()
    assert policy.parameters[name].dtype == torch.float32
    moved = (policy.live[name].detach().float() - before.float()).mean()
    assert float(moved) == pytest.approx(2e-3, rel=0.05)


def test_heads_that_flash_does_not_take_are_padded_instead() -> None:
    half = tiny_model("llama").module.to("cuda", torch.bfloat16)
    assert not forward_of(half).packs
    assert score(half, messages(2, 2)).logprobs_BT.isfinite().all()


def test_a_saved_optimiser_goes_on_on_the_gpu(tmp_path: Path) -> None:
    said = messages(3, 2)
    rows = [
        Row(
            policy="a",
            prompt_ids=tuple(prompt),
            output_ids=tuple(output),
            engine_logprobs=(-5.0,) * len(output),
            advantage=(-1.0) ** number,
            sequence=number,
        )
        for number, (prompt, output) in enumerate(said)
    ]
    first, second, third = fresh_updater(), fresh_updater(), fresh_updater()
    for _ in range(2):
        first.update(rows, [], train_choice=False)
    second.update(rows, [], train_choice=False)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {}, {"a": second})
    checkpoints.load(1, {"a": third})
    third.update(rows, [], train_choice=False)
    for name, weight in first.policy.parameters.items():
        torch.testing.assert_close(third.policy.parameters[name], weight, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_the_choice_does_what_is_asked_in_half_precision(kind: Literal["lora", "full"]) -> None:
    updater, prompts = fresh_updater(kind), [ids(seed, 20) for seed in range(8)]
    rows = [replace(row, policy="a", prompt_ids=prompts[i]) for i, row in enumerate(make_rows(8))]
    start = [silence_logit(torch.tensor(p)).item() for p in log_p_of(updater.policy, prompts)]
    assert min(start) > -33.0 and fmean(start) < -6.0, "out of reach, by how much"
    for _ in range(36):  # by one at a time
        choices = make_choices(updater.policy, prompts, gain=0.0)
        updater.update(rows, choices, train_choice=True)
    end = [silence_logit(torch.tensor(p)).item() for p in log_p_of(updater.policy, prompts)]
    assert end == pytest.approx([-3.0] * 8, abs=0.6)


def fresh_updater(kind: Literal["lora", "full"] = "full") -> Updater:
    loaded = tiny_model("llama", **WIDER)
    loaded.module.to("cuda", torch.bfloat16)
    policy = build_policies({"a": "a"}, {"a": loaded}, PolicyConfig(kind=kind), 0)["a"]
    return make_updater(policy, microbatch_tokens=512)
