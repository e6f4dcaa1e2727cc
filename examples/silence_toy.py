"""Why silence collapses, and how `silence.exploration: arms` brings speech back, in seconds.

A helper sees one of two contexts. Alone, the actor solves 95 % of the easy one and 40 % of the hard
one, so a team that never speaks has 67.5 %. The helper's policy is one softmax over silence and 100
messages: 10 help (90 % on easy, 80 % on hard tasks), 90 harm (60 %, 25 %). It starts silent 8 % of
the time and otherwise speaks at random, which is worse than solo. A solved task pays 0.1 less when
the helper spoke; one that always did would end at 85 %. Logits are a part that both contexts share
plus 0.4 of one of their own. Content learns slowly, because each message is tried rarely.

These numbers, the rates and the 600 steps were chosen to resemble what we saw with real models, and
are the same for all variants. The order of the rows is the result, not their values: given more
steps the variants with both arms draw closer to each other. Not covered: tokens, budgets, warm-up.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import SilenceConfig, choice_loss, choice_step, log_not_silent

# Chance to solve after silence (column 0) and after each message, on easy and hard tasks.
CHANCE = torch.tensor([[0.95] + 10 * [0.90] + 90 * [0.60], [0.40] + 10 * [0.80] + 90 * [0.25]])
COST, GROUP, STEPS, RUNS, OWN_SHARE = 0.1, 8, 600, 32, 0.4
CONTENT_RATE, CHOICE_RATE = 0.3, 1.0


VARIANTS = ("none", "arms", "no floor", "floor everywhere")
"""Plain sampling; both arms, with w = p(1−p) raised against the leaning, never, or always."""


@dataclass(frozen=True)
class Result:
    accuracy: float
    silent_easy: float
    silent_hard: float


def simulate(variant: str, steps: int = STEPS, seed: int = 0) -> Result:
    """Train RUNS independent helpers side by side; the mean of where they end."""
    random = torch.Generator().manual_seed(seed)
    shared, own = torch.zeros(RUNS, 1, 101), torch.zeros(RUNS, 2, 101)
    shared[..., 0] = math.log(0.08 / 0.92) + math.log(100)
    parameters = (shared.requires_grad_(), own.requires_grad_())
    for _ in range(steps):
        logprobs = torch.log_softmax(shared + OWN_SHARE * own, dim=-1)
        free = variant == "none"
        loss = free_loss(logprobs, random) if free else arms_loss(logprobs, variant, random)
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.data -= gradient
    chances = torch.softmax(shared + OWN_SHARE * own, dim=-1).detach()
    easy, hard = chances[..., 0].mean(0).tolist()
    return Result((chances * CHANCE).sum(-1).mean().item(), easy, hard)


def free_loss(logprobs: Tensor, random: torch.Generator) -> Tensor:
    """`none`: silence is one of the things that may be sampled, and nothing more."""
    said, solved = play(logprobs, CHANCE, random)
    return CONTENT_RATE * content_loss(logprobs, said, solved * (1 - COST * (said > 0)))


def arms_loss(logprobs: Tensor, variant: str, random: torch.Generator) -> Tensor:
    """Content among the spoken, and the choice by the two arms, each apart."""
    log_p = logprobs[..., 0]
    given_speech = logprobs[..., 1:] - log_not_silent(log_p)[..., None]
    said, solved = play(given_speech, CHANCE[:, 1:], random)
    rewards = solved * (1 - COST)
    silent = torch.bernoulli(CHANCE[:, :1].expand(RUNS, 2, 4), generator=random)
    gain = silent.mean(-1) - rewards.mean(-1)
    p = log_p.exp().detach()
    least = 0.0 if variant == "no floor" else 0.05
    step = choice_step(p, gain, SilenceConfig(coefficient=1.0, least_weight=least))
    if variant == "floor everywhere":
        step = ((p * (1 - p)).clamp(min=0.05) * gain / 0.1).clamp(-1, 1)
    choice = choice_loss(log_p, log_p, step, choices=2)
    return CONTENT_RATE * content_loss(given_speech, said, rewards) + CHOICE_RATE * choice


def play(logprobs: Tensor, chance: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """What is said in GROUP episodes of each context, and whether they are solved."""
    flat = logprobs.detach().exp().flatten(0, 1)
    said = torch.multinomial(flat, GROUP, replacement=True, generator=random).view(RUNS, 2, GROUP)
    return said, torch.bernoulli(chance.expand_as(logprobs).gather(2, said), generator=random)


def content_loss(logprobs: Tensor, said: Tensor, rewards: Tensor) -> Tensor:
    """Policy gradient with group-normalised advantages, summed over the independent runs."""
    std = rewards.std(-1, keepdim=True).clamp(min=0.1)
    advantages = (rewards - rewards.mean(-1, keepdim=True)) / std
    return -(advantages * logprobs.gather(2, said)).sum() / (2 * GROUP)


if __name__ == "__main__":
    print(f"solo 67.5 %\n\n{'':18}accuracy  silent on easy  on hard")
    for name in VARIANTS:
        end = simulate(name)
        print(f"{name:18}{end.accuracy:8.1%}{end.silent_easy:16.0%}{end.silent_hard:9.0%}")
