"""The choice to speak or be silent, judged apart from what is said.

Pure functions. Not covered: sampling under these distributions (`engine`), playing the silent arm
(`rollout`), the loss of the content (`loss`).

Throughout, p = π(silence | context), known exactly from one forward pass over the marker. Left
alone the choice collapses: while messages still harm, silence pays, and once nobody speaks nothing
can teach speaking. `arms` plays both choices in every group and takes

- for the content, log q(y) = log π(y) − log(1 − p), the policy given that it speaks, so that the
  objective of the content does not depend on p;
- for the choice, a step on logit p of w·(R_silent − mean R_spoken)/std_floor, which for w = p(1−p)
  is the exact gradient of p·R_silent + (1−p)·mean R_spoken, up to the constant std_floor.

`floor` keeps both choices alive while sampling and weights the advantages. The estimators are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from tacit.learn.batch import in_common

LARGEST_LOG_P = -1e-6
"""Keeps log(1 − p) finite."""
REACH = 3.0
"""logit p is asked to stay within ±3, p between 5 and 95 %: a choice that is all but certain takes
many steps to come back, and what was learned about it meanwhile is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSettings:
    coefficient: float = 1.0
    least_weight: float = 0.05
    """w is raised to this where the step goes against the present leaning; 0 is off."""
    std_floor: float = 0.1
    """The unit of rewards, as in `advantage`; constant, so that contexts keep their proportions."""
    clip: float = 1.0
    """The largest change of logit p that one batch asks for."""


def log_not_silent(log_p: Tensor) -> Tensor:
    """log(1 − p) from log p, accurate at both ends."""
    # The bound holds for the value alone: a gradient of 0 would leave a choice lost for ever.
    x = log_p + (log_p.clamp(max=LARGEST_LOG_P) - log_p).detach()
    near_one = x > -0.6931471805599453
    return torch.where(near_one, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def silence_logit(log_p: Tensor) -> Tensor:
    """log p − log(1 − p)."""
    return log_p - log_not_silent(log_p)


def spelled(marker_ids: Sequence[int], ends: Sequence[int]) -> list[tuple[int, ...]]:
    """Silence with each of the ends: what must be scored to know π(silence)."""
    return [(*marker_ids[:-1], end) for end in ends]


def any_end(logprobs_XM: Tensor, ends: int) -> Tensor:
    """From the scores of C choices, each `spelled` with so many ends: [C, M], the last of any end.

    A row sums to log π(silence).
    """
    if ends == 1 or not len(logprobs_XM):
        return logprobs_XM
    logprobs_CEM = logprobs_XM.reshape(-1, ends, logprobs_XM.shape[-1])
    return torch.cat([logprobs_CEM[:, 0, :-1], logprobs_CEM[:, :, -1:].logsumexp(1)], dim=-1)


def shared_prefix(output_ids: Sequence[int], marker_ids: Sequence[int]) -> int:
    """How many tokens a spoken message has in common with the marker before it leaves it."""
    shared = in_common(output_ids, marker_ids)
    if shared == len(marker_ids):  # with another end it could not have been drawn either
        raise ValueError("the message is the silence marker itself: it was not drawn given speech")
    return shared


def conditioned_logprobs(
    logprobs_BT: Tensor, marker_logprobs_BM: Tensor, shared_B: Tensor
) -> Tensor:
    """log q of each token of spoken messages; a row sums to log π(y) − log(1 − p). Differentiable.

    With P_k = π(the marker's tokens k, k+1, … | those before k): a token that leaves the marker at
    position k has q = π/(1 − P_k), one that follows it there q = π·(1 − P_{k+1})/(1 − P_k), and all
    tokens after the message has left it q = π. `shared_B` is each row's `shared_prefix`.
    """
    rest_BM = marker_logprobs_BM.flip(-1).cumsum(-1).flip(-1)
    log_speech_BM = log_not_silent(rest_BM)
    position_M = torch.arange(rest_BM.shape[1], device=rest_BM.device)
    next_BM = functional.pad(log_speech_BM[:, 1:], (0, 1))
    follows_BM = position_M < shared_B[:, None]
    on_marker_BM = position_M <= shared_B[:, None]
    change_BM = torch.where(follows_BM, next_BM, 0.0) - torch.where(
        on_marker_BM, log_speech_BM, 0.0
    )
    return logprobs_BT + functional.pad(change_BM, (0, logprobs_BT.shape[1] - rest_BM.shape[1]))


def choice_weight(p: Tensor, gain: Tensor, least: float) -> Tensor:
    """w = p(1−p), raised to `least` where silence pays though p < ½, or speaking though p > ½.

    So a lost choice can come back, and a settled one is left alone.
    """
    against = ((gain > 0) & (p < 0.5)) | ((gain < 0) & (p > 0.5))
    weight = p * (1 - p)
    return torch.where(against, weight.clamp(min=least), weight)


def choice_step(p: Tensor, gain: Tensor, settings: ChoiceSettings) -> Tensor:
    """The change of logit p to ask for; `gain` is R_silent − mean R_spoken in each context."""
    weight = choice_weight(p, gain, settings.least_weight)
    step = settings.coefficient * weight * gain / settings.std_floor
    return step.clamp(-settings.clip, settings.clip).detach()


def asked_change(
    log_p: Tensor, gain: Tensor, settings: ChoiceSettings, *, owed: float | None = None
) -> Tensor:
    """`choice_step`, or in a warm-up what is `owed` to every context alike, kept within reach.

    Whoever is out of reach comes back by `clip` at a time.
    """
    logit = silence_logit(log_p)
    step = choice_step(log_p.exp(), gain, settings) if owed is None else owed
    change = (logit + step).clamp(-REACH, REACH) - logit
    return change.clamp(-settings.clip, settings.clip).detach()


def choice_loss(log_p_C: Tensor, old_log_p_C: Tensor, step_C: Tensor, choices: int) -> Tensor:
    """½·(logit p − (old logit p + step))², summed and divided by the whole batch's `choices`.

    At the old policy its gradient is exactly −step on each logit p. A batch used for several
    updates stops at the step asked for, and a context dragged along by others is pulled back.
    """
    target_C = silence_logit(old_log_p_C.detach()) + step_C.detach()
    return 0.5 * (silence_logit(log_p_C) - target_C).square().sum() / choices


def content_weight(silent: float, solved_weight: float) -> float:
    """`arms`: how much a task's messages count, where silence earns `silent` of 1.

    With weight 0 where silence succeeds, and right or wrong as reward, the content learns to raise
    the better of both arms: max(s, r) = s + (1 − s)·r. There a message can only harm, and what it
    would learn is to say nothing, which is the choice's to learn.
    """
    return 1.0 - (1.0 - solved_weight) * min(max(silent, 0.0), 1.0)


def floored(p: float, floor: float) -> float:
    """`floor`: the probability of silence to sample with, at least `floor` from both ends."""
    return min(max(p, floor), 1.0 - floor)


def choice_ratio(p_old: float, sampled: float, silent: bool) -> float:
    """π_old(choice)/b(choice), where the engine was silent with probability `sampled`."""
    return p_old / sampled if silent else (1.0 - p_old) / (1.0 - sampled)


def floor_weight(p_old: float, sampled: float, silent: bool) -> float:
    """min(2, π_old(choice)/b(choice)): multiplies the advantage of a row sampled under `floor`."""
    return min(2.0, choice_ratio(p_old, sampled, silent))


def weighted_cost(costs: Sequence[float], ratios: Sequence[float]) -> float:
    """`floor`: mean cost of episodes weighted by the product of their choices' ratios.

    Where the policy would have played none of them, each counts alike.
    """
    whole = sum(ratios)
    if whole == 0.0:
        return sum(costs) / len(costs)
    return sum(c * w for c, w in zip(costs, ratios, strict=True)) / whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """The first steps: no cost, p not trained, the content alone learns."""

    limit: int
    """It lasts at most so many steps; 0 is none."""
    gain: float = -0.02
    """It ends early when, over five steps, speaking is so much better than silence."""
    steps: int = 0
    gaps: tuple[float, ...] = ()
    """mean R_spoken − mean R_silent of the last steps."""
    caught_up: bool = False

    @property
    def over(self) -> bool:
        return self.caught_up or self.steps >= self.limit


WARMUP_WINDOW = 5


def step_warmup(state: Warmup, gap: float | None) -> Warmup:
    """The state after one more step; `gap` is None where nobody could be silent."""
    gaps = state.gaps if gap is None else (*state.gaps, gap)[-WARMUP_WINDOW:]
    full = len(gaps) == WARMUP_WINDOW
    caught_up = state.caught_up or (full and sum(gaps) / WARMUP_WINDOW >= state.gain)
    return replace(state, steps=state.steps + 1, gaps=gaps, caught_up=caught_up)
