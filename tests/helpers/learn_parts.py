"""Small trained policies, updaters and rows, for the tests of what learns."""

import random
from typing import Any

import torch

from tacit.config import Config, PolicyConfig
from tacit.engine.load import LoadedModel
from tacit.learn.batch import Row
from tacit.learn.policy import Policy, build_policies
from tacit.learn.score import score
from tacit.learn.update import Updater
from tacit.silence import ChoicePoint
from tests.helpers.tiny_models import tiny_model

VOCAB = 290
EOS = 2
MARKER = (40, 41, EOS)


def make_policies(
    *roles: str, base: LoadedModel | None = None, seed: int = 0, **settings: Any
) -> dict[str, Policy]:
    """One policy per role, all on one base model."""
    names = roles or ("team",)
    base = base or tiny_model()
    config = PolicyConfig.model_validate({"kind": "lora", "rank": 4, "alpha": 8.0, **settings})
    return build_policies({n: n for n in names}, dict.fromkeys(names, base), config, seed)


def make_updater(
    policy: Policy | None = None,
    *,
    loss: dict[str, Any] | None = None,
    silence: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    **train: Any,
) -> Updater:
    config = Config.model_validate(
        {
            "loss": loss or {},
            "silence": silence or {},
            "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0, **(optimizer or {})},
            "train": {"steps": 10, "microbatch_tokens": 10**6, **train},
        }
    )
    policy = policy or make_policies(kind="full")["team"]
    return Updater(policy, config, max_length=16)


def ids(seed: int, length: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.randrange(50, VOCAB) for _ in range(length))


def make_rows(count: int = 8, *, policy: str = "team", **changed: Any) -> list[Row]:
    """Ragged messages with advantages of both signs, two to a prompt."""
    return [
        Row(
            **{
                "policy": policy,
                "prompt_ids": ids(100 + i // 2, 6 + (i // 2) % 5),
                "output_ids": (*ids(i, 1 + (3 * i) % 7), EOS),
                "engine_logprobs": (-1.0,) * (2 + (3 * i) % 7),
                "advantage": 1.0 if i % 3 else -1.5,
                "sequence": i,
                **changed,
            }
        )
        for i in range(count)
    ]


def make_choices(policy: Policy, prompts: list[tuple[int, ...]], gain: float) -> list[ChoicePoint]:
    """Choices as an engine would have seen them: log p under the policy's present weights."""
    return [
        ChoicePoint(
            policy=policy.name, prompt_ids=prompt, marker_ids=MARKER, log_p=log_p, gain=gain
        )
        for prompt, log_p in zip(prompts, log_p_of(policy, prompts), strict=True)
    ]


@torch.no_grad()
def log_p_of(policy: Policy, prompts: list[tuple[int, ...]]) -> list[float]:
    with policy.on():
        scores = score(policy.loaded.module, [(prompt, MARKER) for prompt in prompts])
    return [float(value) for value in scores.logprobs_BT.sum(-1)]


def weights_of(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in policy.parameters.items()}


def moved(before: dict[str, torch.Tensor], policy: Policy) -> float:
    """The largest change of any weight."""
    return max(float((policy.parameters[n].detach() - w).abs().max()) for n, w in before.items())
