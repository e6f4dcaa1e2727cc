"""From played groups to a training batch: rewards, advantages by (task, role), rows.

Bookkeeping only; the formulas are in `economy.reward`, `advantage` and `silence`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from tacit.config import Config
from tacit.economy.group import Group
from tacit.economy.reward import EpisodeCost, Multipliers, RewardParts, repetition, reward_group
from tacit.errors import RunError
from tacit.learn.advantage import ESTIMATORS, Difficulty, difficulty
from tacit.learn.batch import Row
from tacit.silence import ChoicePoint, Choices, Silence
from tacit.types import Call, Episode, Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    rows: tuple[Row, ...]
    choices: tuple[ChoicePoint, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Turns groups into a batch, as the config says."""

    config: Config
    silence: Silence
    roles: Mapping[str, str]
    """Trained agent → its role."""
    money: Callable[[Episode], float] = lambda episode: 0.0
    user_parts: Mapping[str, Callable[[Episode], float]] = field(default_factory=dict)

    def __call__(self, groups: Sequence[Group], multipliers: Multipliers) -> Batch:
        for group in groups:
            self._reward(group, multipliers)
        self._give_advantages(groups)
        choices = self.silence.choices(groups)
        rows = tuple(self._rows(groups, choices))
        return Batch(rows=rows, choices=tuple(choices.points.values()), groups=tuple(groups))

    def _reward(self, group: Group, multipliers: Multipliers) -> None:
        """Both arms are rewarded together, so that they share one scale."""
        costs = [self._cost(episode) for episode in (*group.episodes, *group.silent)]
        parts = reward_group(costs, multipliers, self.config.reward, self.config.budget)
        spoken = len(group.episodes)
        group.rewards, group.silent_rewards = parts[:spoken], parts[spoken:]
        outcomes = self.silence.outcomes(group)
        weights = [weight for weight, _, _ in outcomes]
        for name in ("tokens", "turns", "money"):
            spent: list[float] = [getattr(part.raw, name) for _, _, part in outcomes]
            setattr(group, name, weighted_mean(spent, weights))
        group.right = self.silence.expected_right(group)

    def _cost(self, episode: Episode) -> EpisodeCost:
        assert episode.grade is not None
        return EpisodeCost(
            reward=episode.grade.reward,
            tokens=episode.usage.spent,
            turns=episode.turns,
            repetition=repetition(
                [c.text for c in episode.calls if not (c.silent or c.tool_calls)]
            ),
            money=self.money(episode),
            user={name: self._part(name, episode) for name in self.user_parts},
        )

    def _part(self, name: str, episode: Episode) -> float:
        """The value of one of the user's own reward parts; its errors name the part."""
        try:
            value = self.user_parts[name](episode)
        except Exception as error:
            raise RunError(f"reward part `{name}`: {type(error).__name__}: {error}") from error
        if not isinstance(value, int | float):
            raise RunError(f"reward part `{name}` must return a number, not {value!r}")
        return float(value)

    def _give_advantages(self, groups: Sequence[Group]) -> None:
        """A role is compared over the episodes in which it spoke, each counted once."""
        roles = list(dict.fromkeys(self.roles.values()))
        pairs = [(group, role) for group in groups for role in roles]
        worth = [self._worth(group, role) for group, role in pairs]
        estimate = ESTIMATORS[self.config.train.advantage]
        found = estimate([list(parts.values()) for parts in worth])
        for (group, role), parts, advantages in zip(pairs, worth, found, strict=True):
            values = dict(zip(parts, advantages, strict=True))
            group.advantages[role] = tuple(values.get(i, 0.0) for i in range(len(group.episodes)))

    def _worth(self, group: Group, role: str) -> dict[int, RewardParts]:
        """The rewards of the episodes in which a role spoke, by episode number."""
        worth: dict[int, RewardParts] = {}
        for number, episode in enumerate(group.episodes):
            mine = [
                bool(c.policy) and self.roles.get(c.agent) == role and self.silence.learns(c)
                for c in episode.calls
            ]
            if any(mine):
                worth[number] = self.silence.worth(group, number, mine)
        return worth

    def _rows(self, groups: Sequence[Group], choices: Choices) -> Iterator[Row]:
        sequences: dict[tuple[object, ...], int] = {}
        for place, group in enumerate(groups):
            for number, episode in enumerate(group.episodes):
                for turn, call in enumerate(episode.calls):
                    role = self.roles.get(call.agent)
                    if not call.policy or role is None or not self.silence.learns(call):
                        continue
                    marker: Ids = ()
                    counts = 1.0
                    if self.silence.apart(call):
                        point = choices.points.get((call.policy, call.prompt_ids))
                        marker = point.marker_ids if point else choices.markers.get(call.policy, ())
                        counts = choices.counts.get((place, call.prompt_ids), 1.0)
                        if choices.markers and not marker:
                            continue  # no silent call shows how this policy spells silence
                    unit = self._unit((place, number, call.policy), call, turn)
                    yield Row(
                        policy=call.policy,
                        prompt_ids=call.prompt_ids,
                        output_ids=call.output_ids,
                        engine_logprobs=self.silence.logprobs(call),
                        advantage=group.advantages[role][number] * counts,
                        sequence=sequences.setdefault(unit, len(sequences)),
                        weight=self.silence.weight(call),
                        silent=call.silent,
                        marker=marker,
                    )

    def _unit(self, episode: tuple[object, ...], call: Call, turn: int) -> tuple[object, ...]:
        """Key of the rows that share a GSPO ratio: a message, an agent's messages, or all."""
        return {
            "message": (*episode, turn),
            "agent": (*episode, call.agent),
            "episode": episode,
        }[self.config.loss.sequence]


def teaches(group: Group) -> bool:
    """True if the spoken episodes differ in task reward, or speaking differs from silence."""
    spoken, silent = (
        [episode.grade.reward for episode in arm if episode.grade]
        for arm in (group.episodes, group.silent)
    )
    return difficulty(spoken) is Difficulty.MIXED or bool(silent and fmean(silent) != fmean(spoken))


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The plain mean if all weights are 0."""
    whole = sum(weights)
    if whole == 0.0:
        return sum(values) / len(values)
    return sum(v * w for v, w in zip(values, weights, strict=True)) / whole
