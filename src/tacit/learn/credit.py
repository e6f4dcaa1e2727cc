"""From played groups to a training batch: rewards in parts, advantages by (task, role), rows.

Pure bookkeeping over episodes; the formulas are in `economy.reward`, `advantage` and `silence`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tacit.config import Config
from tacit.economy.group import Group
from tacit.economy.reward import EpisodeCost, Multipliers, RewardParts, repetition, reward_group
from tacit.learn.advantage import ESTIMATORS
from tacit.learn.batch import Row
from tacit.silence import ChoicePoint, Choices, Silence
from tacit.types import Call, Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    rows: tuple[Row, ...]
    choices: tuple[ChoicePoint, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Who is credited with what, as a run's config says."""

    config: Config
    silence: Silence
    roles: Mapping[str, str]
    """Agent name → role, of those that are trained."""
    money: Callable[[Episode], float] = lambda episode: 0.0
    user_parts: Mapping[str, Callable[[Episode], float]] = field(default_factory=dict)

    def __call__(self, groups: Sequence[Group], multipliers: Multipliers) -> Batch:
        """Judge every group, and make rows of what its trained agents said."""
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
        group.rewards, group.silent_rewards = (
            parts[: len(group.episodes)],
            parts[len(group.episodes) :],
        )
        expected = self.silence.expected(group)
        weights = [self.silence.likelihood(episode) for episode in group.episodes]
        for name in ("tokens", "turns", "money"):
            spent: list[float] = [getattr(part.raw, name) for part in expected]
            setattr(group, name, weighted_mean(spent, weights))

    def _cost(self, episode: Episode) -> EpisodeCost:
        assert episode.grade is not None
        return EpisodeCost(
            reward=episode.grade.reward,
            tokens=episode.usage.generated,
            turns=episode.turns,
            repetition=repetition([call.text for call in episode.calls if not call.silent]),
            money=self.money(episode),
            user={name: part(episode) for name, part in self.user_parts.items()},
        )

    def _give_advantages(self, groups: Sequence[Group]) -> None:
        """A role's episodes are those in which it spoke, once each."""
        roles = list(dict.fromkeys(self.roles.values()))
        worth = [self._worth(group, role) for group in groups for role in roles]
        estimate = ESTIMATORS[self.config.train.advantage]
        found = iter(estimate([list(parts.values()) for parts in worth]))
        by_episode = (dict(zip(parts, next(found), strict=True)) for parts in worth)
        for group in groups:
            group.advantages = {
                role: tuple(values.get(i, 0.0) for i in range(len(group.episodes)))
                for role, values in zip(roles, by_episode, strict=False)
            }

    def _worth(self, group: Group, role: str) -> dict[int, RewardParts]:
        """What the episodes in which a role spoke are worth to it, by number."""
        worth: dict[int, RewardParts] = {}
        for number, episode in enumerate(group.episodes):
            mine = [bool(c.policy) and self.roles.get(c.agent) == role for c in episode.calls]
            if any(mine):
                worth[number] = self.silence.worth(group, number, mine)
        return worth

    def _rows(self, groups: Sequence[Group], choices: Choices) -> Iterator[Row]:
        sequences: dict[tuple[object, ...], int] = {}
        for place, group in enumerate(groups):
            for number, episode in enumerate(group.episodes):
                for turn, call in enumerate(episode.calls):
                    role = self.roles.get(call.agent)
                    if not call.policy or role is None:
                        continue
                    point, counts = None, 1.0
                    if call.choice is self.silence.choice:
                        point = choices.points.get((call.policy, call.prompt_ids))
                        counts = choices.counts.get((place, call.prompt_ids), 1.0)
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
                        marker=point.marker_ids if point else (),
                    )

    def _unit(self, episode: tuple[object, ...], call: Call, turn: int) -> tuple[object, ...]:
        """What a GSPO ratio is taken over: one message, all of an agent's, or the episode's."""
        return {
            "message": (*episode, turn),
            "agent": (*episode, call.agent),
            "episode": episode,
        }[self.config.loss.sequence]


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Where all weights are 0, each value counts alike."""
    whole = sum(weights)
    if whole == 0.0:
        return sum(values) / len(values)
    return sum(v * w for v, w in zip(values, weights, strict=True)) / whole
