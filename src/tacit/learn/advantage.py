"""Advantages: how much better an episode did than the others of its group.

A group here is the episodes of one task in which one role spoke. Pure functions of numbers. Not
covered: which episodes form a group, and which rows of the batch an advantage goes to.

A group of one, or of equal rewards, gives exactly 0. Equality is tested on the rewards themselves,
because the mean of equal floats can differ from them in the last bit.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from tacit.economy.reward import RewardParts

STD_FLOOR = 0.1
"""Keeps λ meaningful where all rewards are nearly equal: without it any cost, however small, would
be blown up to unit variance in a group that differs in nothing else."""

Advantages = tuple[float, ...]
Rewards = Sequence[RewardParts]
"""One per episode of a group."""


class Difficulty(StrEnum):
    TOO_EASY = "too_easy"
    TOO_HARD = "too_hard"
    MIXED = "mixed"


def difficulty(task_rewards: Sequence[float]) -> Difficulty:
    """Judged by the task reward alone, since costs nearly always differ."""
    if not _all_equal(task_rewards):
        return Difficulty.MIXED
    solved = bool(task_rewards) and task_rewards[0] >= 0.5
    return Difficulty.TOO_EASY if solved else Difficulty.TOO_HARD


def normalised(rewards: Sequence[float]) -> Advantages:
    """A = (R − mean) / max(std, 0.1), std with n − 1."""
    if _all_equal(rewards):
        return (0.0,) * len(rewards)
    centred = _centred(rewards)
    std = (sum(a * a for a in centred) / (len(centred) - 1)) ** 0.5
    return tuple(a / max(std, STD_FLOOR) for a in centred)


def grpo(groups: Sequence[Rewards]) -> list[Advantages]:
    """Normalised within each group (DeepSeekMath, arXiv 2402.03300; GSPO, 2507.18071, eq. 6)."""
    return [normalised(totals(group)) for group in groups]


def dr_grpo(groups: Sequence[Rewards]) -> list[Advantages]:
    """A = R − mean: no division by the std (Dr. GRPO, arXiv 2503.20783)."""
    return [_centred(totals(group)) for group in groups]


def rloo(groups: Sequence[Rewards]) -> list[Advantages]:
    """A_i = R_i − mean of the others = n/(n−1)·(R_i − mean) (RLOO, arXiv 2402.14740)."""
    return [
        tuple(a * len(group) / max(len(group) - 1, 1) for a in _centred(totals(group)))
        for group in groups
    ]


def gdpo(groups: Sequence[Rewards]) -> list[Advantages]:
    """Each part of the reward normalised by itself, then summed (GDPO, arXiv 2601.05242).

    A gated part is normalised among the episodes that pay it (g > 0) and is 0 for the others, so
    that a failure is not rewarded for having paid nothing. The paper's last step, rescaling over
    the batch, is left out: it would undo the floor on the std.
    """
    return [_sum_of_parts(group) for group in groups]


def batch(groups: Sequence[Rewards]) -> list[Advantages]:
    """One mean and std for all groups: the ablation that Dr. MAS (arXiv 2602.08847) warns about."""
    everyone = iter(normalised([reward for group in groups for reward in totals(group)]))
    return [tuple(next(everyone) for _ in group) for group in groups]


ESTIMATORS: dict[str, Callable[[Sequence[Rewards]], list[Advantages]]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "gdpo": gdpo,
    "batch": batch,
}


def totals(group: Rewards) -> list[float]:
    return [reward.total for reward in group]


def _sum_of_parts(group: Rewards) -> Advantages:
    if not group:
        return ()
    parts = [normalised([reward.task for reward in group])]
    for name in group[0].charged:
        parts.append(_among_paying([-reward.charged[name] for reward in group], group))
    for name in group[0].raw.user:
        parts.append(normalised([reward.raw.user[name] for reward in group]))
    return tuple(sum(values) for values in zip(*parts, strict=True))


def _among_paying(values: Sequence[float], group: Rewards) -> Advantages:
    paying = iter(normalised([v for v, r in zip(values, group, strict=True) if r.gate > 0]))
    return tuple(next(paying) if reward.gate > 0 else 0.0 for reward in group)


def _centred(rewards: Sequence[float]) -> Advantages:
    if _all_equal(rewards):
        return (0.0,) * len(rewards)
    mean = sum(rewards) / len(rewards)
    return tuple(reward - mean for reward in rewards)


def _all_equal(rewards: Sequence[float]) -> bool:
    return len(set(rewards)) <= 1
