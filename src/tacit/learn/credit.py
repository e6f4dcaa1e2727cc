"""From played groups to a training batch: rewards in parts, advantages by (task, role), choices.

Pure bookkeeping over episodes; the formulas are in `economy.reward`, `advantage` and `silence`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from statistics import fmean

from tacit.economy.reward import (
    EpisodeCost,
    Multipliers,
    RewardParts,
    RewardSettings,
    repetition,
    reward_group,
)
from tacit.engine.silence import log_others
from tacit.learn.advantage import ESTIMATORS, Difficulty, Group, difficulty
from tacit.learn.arms import (
    Otherwise,
    Played,
    choice_place,
    compared,
    either,
    gain_of_silence,
    otherwise,
    silence_chance,
)
from tacit.learn.batch import Choice as ChoiceRow
from tacit.learn.batch import Row
from tacit.learn.silence import (
    choice_ratio,
    content_weight,
    floor_weight,
    floored,
    weighted_cost,
)
from tacit.types import Call, Choice, Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSettings:
    reward: RewardSettings
    advantage: str = "grpo"
    sequence: str = "message"
    floor: float = 0.0
    """The floor that `floor` sampled with; 0 otherwise."""
    solved_weight: float = 1.0
    """How much `arms` learns from messages on tasks that silence solves."""
    money: Callable[[Episode], float] = lambda episode: 0.0
    user_parts: Mapping[str, Callable[[Episode], float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """One group after judging."""

    played: Played
    spoken: tuple[RewardParts, ...]
    silent: tuple[RewardParts, ...]
    advantages: Mapping[str, tuple[float, ...]]
    """Role → one number per spoken episode; 0 where the role did not speak in it."""
    difficulty: Difficulty
    otherwise: tuple[Otherwise, ...]
    """Of each spoken episode, what the policy might have done instead."""
    gain: float | None
    """mean R_silent − mean R_spoken, where both arms were played."""
    tokens: float
    """What the policy is expected to spend on this task, not what the forced samples did."""
    turns: float
    money: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    rows: tuple[Row, ...]
    choices: tuple[ChoiceRow, ...]
    groups: tuple[Credited, ...]


def credit(
    played: Sequence[Played],
    roles: Mapping[str, str],
    multipliers: Multipliers,
    settings: CreditSettings,
) -> Batch:
    """Judge every group. `roles` maps agent names to the roles that are trained."""
    rewarded = [_rewarded(group, multipliers, settings) for group in played]
    advantages = _advantages(played, rewarded, roles, settings.advantage)
    groups = tuple(
        _credited(group, parts, mine, settings)
        for group, parts, mine in zip(played, rewarded, advantages, strict=True)
    )
    rows, choices = _rows(groups, roles, settings)
    return Batch(rows=rows, choices=choices, groups=groups)


def episode_cost(episode: Episode, settings: CreditSettings) -> EpisodeCost:
    assert episode.grade is not None
    return EpisodeCost(
        reward=episode.grade.reward,
        tokens=episode.usage.generated,
        turns=episode.turns,
        repetition=repetition([call.text for call in episode.calls if not call.silent]),
        money=settings.money(episode),
        user={name: part(episode) for name, part in settings.user_parts.items()},
    )


@dataclass(frozen=True, slots=True)
class _Rewarded:
    """The rewards of one group."""

    spoken: tuple[RewardParts, ...]
    silent: tuple[RewardParts, ...]
    otherwise: tuple[Otherwise, ...]
    either: list[RewardParts]
    """Of the spoken episodes, had the policy made the choice."""


def _rewarded(group: Played, multipliers: Multipliers, settings: CreditSettings) -> _Rewarded:
    costs = [episode_cost(episode, settings) for episode in (*group.spoken, *group.silent)]
    parts = reward_group(costs, multipliers, settings.reward)
    spoken, silent = parts[: len(group.spoken)], parts[len(group.spoken) :]
    others = otherwise(group)
    return _Rewarded(spoken, silent, others, either(others, spoken, silent))


def _advantages(
    played: Sequence[Played],
    rewarded: Sequence[_Rewarded],
    roles: Mapping[str, str],
    estimator: str,
) -> list[dict[str, tuple[float, ...]]]:
    """Per group, role → advantages. A role's group is the episodes in which it spoke, once each."""
    keys: list[tuple[int, str, list[int]]] = []
    groups: list[Group] = []
    for number, (group, parts) in enumerate(zip(played, rewarded, strict=True)):
        for role in dict.fromkeys(roles.values()):
            worth = _worth(group, parts, role, roles)
            keys.append((number, role, list(worth)))
            groups.append(_group(list(worth.values())))
    result: list[dict[str, tuple[float, ...]]] = [{} for _ in played]
    for (number, role, present), values in zip(keys, ESTIMATORS[estimator](groups), strict=True):
        by_episode = dict(zip(present, values, strict=True))
        size = len(played[number].spoken)
        result[number][role] = tuple(by_episode.get(i, 0.0) for i in range(size))
    return result


def _group(parts: Sequence[RewardParts]) -> Group:
    own = [name for part in parts[:1] for name in part.raw.user]
    costs = [name for part in parts[:1] for name in part.charged]
    return Group(
        rewards=tuple(part.total for part in parts),
        parts={
            "task": tuple(part.task for part in parts),
            **{name: tuple(-part.charged[name] for part in parts) for name in costs},
            **{f"user/{name}": tuple(part.raw.user[name] for part in parts) for name in own},
        },
        gates={name: tuple(part.gate for part in parts) for name in costs},
    )


def _worth(
    group: Played, parts: _Rewarded, role: str, roles: Mapping[str, str]
) -> dict[int, RewardParts]:
    """What the spoken episodes in which a role spoke are worth to it.

    Who is done before the choice to speak is made does not know how it falls: both arms count.
    """
    worth: dict[int, RewardParts] = {}
    for number, episode in enumerate(group.spoken):
        mine = [bool(call.policy) and roles.get(call.agent) == role for call in episode.calls]
        if any(mine):
            place = choice_place(episode, Choice.SPEAK)
            before = place is not None and not any(mine[place:])
            worth[number] = (parts.either if before else parts.spoken)[number]
    return worth


def _credited(
    group: Played,
    parts: _Rewarded,
    advantages: dict[str, tuple[float, ...]],
    settings: CreditSettings,
) -> Credited:
    ratios = [_ratio(episode, settings.floor) for episode in group.spoken]

    def expected(what: Callable[[RewardParts], float]) -> float:
        return weighted_cost([what(part) for part in parts.either], ratios)

    return Credited(
        played=group,
        spoken=parts.spoken,
        silent=parts.silent,
        otherwise=parts.otherwise,
        advantages=advantages,
        difficulty=difficulty([part.task for part in parts.spoken]),
        gain=gain_of_silence(parts.spoken, parts.silent) if parts.silent else None,
        tokens=expected(lambda part: part.raw.tokens),
        turns=expected(lambda part: part.raw.turns),
        money=expected(lambda part: part.raw.money),
    )


def _ratio(episode: Episode, floor: float) -> float:
    """Product of π/b over the choices of one episode under `floor`; 1 elsewhere."""
    return prod(
        choice_ratio(silence_chance(call), floored(silence_chance(call), floor), call.silent)
        for call in episode.calls
        if call.policy and call.choice is Choice.FLOOR and call.silence_logprob is not None
    )


def _rows(
    groups: Sequence[Credited], roles: Mapping[str, str], settings: CreditSettings
) -> tuple[tuple[Row, ...], tuple[ChoiceRow, ...]]:
    rows: list[Row] = []
    contexts: dict[tuple[str, tuple[int, ...]], int] = {}
    choices: list[ChoiceRow] = []
    gains: list[dict[int, float]] = []
    """Of each choice, by group: two tasks may ask the same question."""
    sequences: dict[tuple[object, ...], int] = {}
    for place, group in enumerate(groups):
        known = compared(group.played, group.spoken, group.silent)
        for number, episode in enumerate(group.played.spoken):
            for turn, call in enumerate(episode.calls):
                role = roles.get(call.agent)
                if not call.policy or role is None:
                    continue
                context, counts = None, 1.0
                if call.choice is Choice.SPEAK and call.silence_logprob is not None:
                    key = (call.policy, call.prompt_ids)
                    if key not in contexts:
                        contexts[key] = len(choices)
                        choices.append(_choice(call, group))
                        gains.append({})
                    context = contexts[key]
                    alone, gains[context][place] = known[call.prompt_ids]
                    counts = content_weight(alone, settings.solved_weight)
                unit = _unit(settings.sequence, (place, number, call.policy), call, turn)
                rows.append(
                    Row(
                        policy=call.policy,
                        prompt_ids=call.prompt_ids,
                        output_ids=call.output_ids,
                        engine_logprobs=_engine_logprobs(call),
                        advantage=group.advantages[role][number] * counts,
                        sequence=sequences.setdefault(unit, len(sequences)),
                        weight=_weight(call, settings.floor),
                        silent=call.silent,
                        context=context,
                    )
                )
    meant = zip(choices, gains, strict=True)
    return tuple(rows), tuple(replace(one, gain=fmean(mine.values())) for one, mine in meant)


def _choice(call: Call, group: Credited) -> ChoiceRow:
    marker = _marker_of(group.played.silent, call)
    assert group.gain is not None and call.silence_logprob is not None
    return ChoiceRow(
        policy=call.policy,
        prompt_ids=call.prompt_ids,
        marker_ids=marker,
        log_p=call.silence_logprob,
        gain=group.gain,
    )


def _marker_of(silent: Sequence[Episode], call: Call) -> tuple[int, ...]:
    """The marker's ids, as the silent arm's own call of the same agent holds them."""
    return next(
        other.output_ids
        for episode in silent
        for other in episode.calls
        if other.agent == call.agent and other.choice is Choice.SILENT
    )


def _engine_logprobs(call: Call) -> tuple[float, ...]:
    """As the policy draws the message. Under `floor` speech was drawn given that it is not silence,
    which the row's weight makes up for: log π = log q + log(1 − p), as a whole.
    """
    if call.choice is not Choice.FLOOR or call.silent or call.silence_logprob is None:
        return call.logprobs
    first, *rest = call.logprobs
    return (first + log_others(call.silence_logprob), *rest)


def _weight(call: Call, floor: float) -> float:
    if call.choice is Choice.FLOOR and call.silence_logprob is not None:
        return floor_weight(silence_chance(call), floored(silence_chance(call), floor), call.silent)
    return 1.0


def _unit(sequence: str, episode: tuple[object, ...], call: Call, turn: int) -> tuple[object, ...]:
    """What a GSPO ratio is taken over: one message, all of an agent's, or the episode's."""
    return {
        "message": (*episode, turn),
        "agent": (*episode, call.agent),
        "episode": episode,
    }[sequence]
