"""`arms` for teams with several choices: each sample compares both choices of one agent.

A sample picks an agent in turn and is played twice with the same draws: once that agent must speak,
once it is silent. All others choose as they would, each choice with at least the floor's
probability, and say the same in both plays unless what they hear differs. So the difference of the
rewards is what this agent's message was worth, the rest as drawn.

Cost: two plays for a sample instead of one. Calls that are the same in both are computed once, so
mostly the calls after the message are added. With `silence.seats` above 1 every sample does this
for as many agents; with the number of agents, each is compared in every sample. Each agent's gain
is averaged over the samples that picked it, which for k agents are 1 in k by default: cheaper than
all k in every sample by a factor of k, at k times the variance.

Content is trained as by `arms`, the step of silence is the same, and both plays of an agent that is
asked more than once keep their choice in every round. The estimator is ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, prod
from statistics import fmean

from tacit.economy.group import Group
from tacit.economy.reward import RewardParts, mixture
from tacit.silence import ChoicePoint, Choices, Ids
from tacit.silence.arms import PRIOR_PLAYS, Arms
from tacit.silence.floor import floored_ratio
from tacit.types import Call, Choice, Episode, Task


class Seats(Arms):
    pairs = True

    def silent_plays(self, *, deterministic: bool) -> int:
        return 0

    def group(
        self, task: Task, episodes: Sequence[Episode], silent: Sequence[Episode]
    ) -> Group | None:
        """Only whole pairs: a play whose other one failed has nothing to be compared with."""
        other = {episode.sample: episode for episode in silent}
        pairs = [(one, other[one.sample + 1]) for one in episodes if one.sample + 1 in other]
        if not pairs:
            return None
        spoken, without = zip(*pairs, strict=True)
        return Group(task_id=task.id, level=task.level, episodes=spoken, silent=without)

    def expected(self, group: Group) -> list[RewardParts]:
        pairs = zip(group.episodes, group.rewards, group.silent_rewards, strict=True)
        return [
            mixture([(p, silent), (1.0 - p, spoken)])
            for episode, spoken, silent in pairs
            for p in [_picked_silence(episode)]
        ]

    def expected_right(self, group: Group) -> float | None:
        weights = [self.likelihood(episode) for episode in group.episodes]
        rights = [
            p * _right(silent) + (1.0 - p) * _right(spoken)
            for spoken, silent in zip(group.episodes, group.silent, strict=True)
            for p in [_picked_silence(spoken)]
        ]
        whole = sum(weights)
        if not whole:
            return fmean(rights)
        return sum(w * right for w, right in zip(weights, rights, strict=True)) / whole

    def likelihood(self, episode: Episode) -> float:
        """π/b of the choices that were drawn; the picked agent's is in `expected`."""
        ratios = (floored_ratio(call, self.config.floor) for call in episode.calls if call.policy)
        return prod(ratios)

    def worth(self, group: Group, number: int, mine: Sequence[bool]) -> RewardParts:
        return group.rewards[number]

    def choices(self, groups: Sequence[Group]) -> Choices:
        """A point for every context in which a picked agent spoke, with its mean gain."""
        found = Choices()
        markers = _markers(groups)
        gains: dict[tuple[str, Ids], list[float]] = {}
        for number, group in enumerate(groups):
            pairs = zip(group.episodes, group.rewards, group.silent_rewards, strict=True)
            for episode, spoken, silent in pairs:
                for call in episode.calls:
                    if call.policy and call.choice is Choice.SPEAK:
                        key = call.policy, call.prompt_ids
                        gains.setdefault(key, []).append(silent.total - spoken.total)
                        found.points[key] = _point(call, markers)
                        weight = self._message_weight(silent.task)
                        found.counts[number, call.prompt_ids] = weight
        for key, some in gains.items():
            known = len(some) / (len(some) + PRIOR_PLAYS)
            found.points[key] = replace(found.points[key], gain=known * fmean(some))
        found.markers = markers
        return found

    def learns(self, call: Call) -> bool:
        """Silence is for the step to learn."""
        return not (call.silent and call.choice is Choice.FLOOR)

    def weight(self, call: Call) -> float:
        return min(2.0, floored_ratio(call, self.config.floor))

    def apart(self, call: Call) -> bool:
        return call.choice in (Choice.SPEAK, Choice.FLOOR) and not call.silent


def _picked_silence(episode: Episode) -> float:
    """π(silence) of the agent that was made to speak, at its first choice."""
    for call in episode.calls:
        if call.policy and call.choice is Choice.SPEAK and call.silence_logprob is not None:
            return exp(call.silence_logprob)
    return 0.0


def _point(call: Call, markers: Mapping[str, Ids]) -> ChoicePoint:
    assert call.silence_logprob is not None
    return ChoicePoint(
        policy=call.policy,
        prompt_ids=call.prompt_ids,
        marker_ids=markers[call.policy],
        log_p=call.silence_logprob,
        gain=0.0,
    )


def _markers(groups: Sequence[Group]) -> dict[str, Ids]:
    """How each policy spells silence."""
    plays = (episode for group in groups for episode in group.silent)
    return {
        call.policy: call.output_ids
        for episode in plays
        for call in episode.calls
        if call.policy and call.choice is Choice.SILENT
    }


def _right(episode: Episode) -> bool:
    return bool(episode.grade and episode.grade.right)
