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

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from statistics import fmean

from tacit.economy.group import Group
from tacit.economy.reward import RewardParts, mixture
from tacit.silence import Choices
from tacit.silence.arms import (
    PRIOR_PLAYS,
    Arms,
    calls_with,
    choice_point,
    markers_of,
    silence_logprob,
)
from tacit.types import Call, Choice, Episode, Ids, Task


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
        return Group(
            task_id=task.id, level=task.level, episodes=spoken, silent=without, paired=True
        )

    def expected(self, group: Group) -> list[RewardParts]:
        pairs = zip(group.episodes, group.rewards, group.silent_rewards, strict=True)
        return [
            mixture([(p, silent), (1.0 - p, spoken)])
            for episode, spoken, silent in pairs
            for p in [_picked_silence(episode)]
        ]

    def outcomes(self, group: Group) -> list[tuple[float, Episode, RewardParts]]:
        """Both plays of each pair, by the chance that the policy would have made their choices."""
        found = []
        pairs = zip(group.episodes, group.rewards, group.silent, group.silent_rewards, strict=True)
        for episode, spoken, other, silent in pairs:
            p = _picked_silence(episode)
            found.append(((1.0 - p) * self.likelihood(episode), episode, spoken))
            found.append((p * self.likelihood(other), other, silent))
        return found

    def expected_right(self, group: Group) -> float | None:
        weighted = [(w, e.right) for w, e, _ in self.outcomes(group)]
        whole = sum(weight for weight, _ in weighted)
        return sum(weight * right for weight, right in weighted) / whole if whole else None

    def choices(self, groups: Sequence[Group]) -> Choices:
        """A point for every context in which a picked agent spoke.

        The gain of n pairs in a context counts n/(n + PRIOR_PLAYS), and for the rest the agent's
        mean in the group does; all are shrunk towards 0 by the number of the agent's pairs.
        """
        found = Choices(markers=markers_of(groups))
        gains: dict[tuple[str, Ids], list[float]] = {}
        for number, group in enumerate(groups):
            by_agent: dict[str, list[float]] = {}
            contexts: dict[tuple[str, str, Ids], list[tuple[float, float]]] = {}
            pairs = zip(group.episodes, group.rewards, group.silent_rewards, strict=True)
            for episode, spoken, silent in pairs:
                for call in calls_with(Choice.SPEAK, episode):
                    gain = silent.total - spoken.total
                    by_agent.setdefault(call.agent, []).append(gain)
                    place = call.agent, call.policy, call.prompt_ids
                    contexts.setdefault(place, []).append((gain, silent.task))
                    found.points[call.policy, call.prompt_ids] = choice_point(call, found.markers)
            for (agent, policy, context), some in contexts.items():
                mine, known = by_agent[agent], len(some) / (len(some) + PRIOR_PLAYS)
                mean = known * fmean(gain for gain, _ in some) + (1.0 - known) * fmean(mine)
                mean *= len(mine) / (len(mine) + PRIOR_PLAYS)
                gains.setdefault((policy, context), []).append(mean)
                alone = fmean(task for _, task in some)
                found.counts[number, context] = self._message_weight(alone)
        for key, means in gains.items():
            found.points[key] = replace(found.points[key], gain=fmean(means))
        return found

    def learns(self, call: Call) -> bool:
        """Silence is for the step to learn."""
        return not (call.silent and call.choice is Choice.FLOOR)

    def apart(self, call: Call) -> bool:
        return call.choice in (Choice.SPEAK, Choice.FLOOR) and not call.silent


def _picked_silence(episode: Episode) -> float:
    """π(silence) of the agent that was made to speak, the mean over its choices."""
    odds = [exp(silence_logprob(call)) for call in calls_with(Choice.SPEAK, episode)]
    return fmean(odds) if odds else 0.0
