"""`arms`: every group holds both choices, and the choice is judged apart from the content.

With p = π(silence | context), known exactly from one forward pass over the marker:

- *Content.* Spoken episodes are drawn from π given that it is not silence, compared with each other
  and trained on log q (`conditioning`), so that training the content does not move p.
- *Silent arm.* The same task with every agent silent that may be: played once if the rest of the
  team is deterministic, several times if it samples.
- *Choice.* A step on logit p of w·(R_silent − mean R_spoken)/std_floor, which for w = p(1−p) is the
  exact gradient of p·R_silent + (1−p)·mean R_spoken, up to the constant std_floor (`step`).

For teams with one choice per episode; `seats` is for several. The estimator is ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp
from statistics import fmean

from tacit.config import SilenceConfig
from tacit.economy.group import Group, gain_of_silence
from tacit.economy.reward import RewardParts, mixture
from tacit.silence import ChoicePoint, Choices, Silence
from tacit.types import Call, Choice, Episode, Ids, Task

PRIOR_PLAYS = 4
"""Weight of the group's gain, in plays, in the estimated gain of one of its contexts."""

Alternative = tuple[float, tuple[int, ...]]
"""π(silence) at an episode's choice, and the indices of the silent plays to compare it with."""


class Arms(Silence):
    choice = Choice.SPEAK

    def __init__(self, config: SilenceConfig) -> None:
        super().__init__(config)
        self.warmup_steps = config.warmup_steps

    def silent_plays(self, *, deterministic: bool) -> int:
        return 1 if deterministic else self.config.silent_samples

    def group(
        self, task: Task, episodes: Sequence[Episode], silent: Sequence[Episode]
    ) -> Group | None:
        if not any(_chose(episode, Choice.SILENT) for episode in silent):
            # episodes in which an agent chose to speak need a silent play to be compared with
            episodes = [one for one in episodes if not _chose(one, Choice.SPEAK)]
        if not episodes or not silent:
            return None
        return Group(
            task_id=task.id, level=task.level, episodes=tuple(episodes), silent=tuple(silent)
        )

    def expected(self, group: Group) -> list[RewardParts]:
        return [
            mixture([(p / len(plays), group.silent_rewards[i]) for i in plays] + [(1.0 - p, part)])
            if plays
            else part
            for (p, plays), part in zip(alternatives(group), group.rewards, strict=True)
        ]

    def expected_right(self, group: Group) -> float | None:
        if not group.silent:
            return None
        scores = []
        for episode, (p, plays) in zip(group.episodes, alternatives(group), strict=True):
            alone = fmean(group.silent[i].right for i in plays) if plays else 0.0
            scores.append(p * alone + (1.0 - p) * episode.right)
        return fmean(scores)

    def apart(self, call: Call) -> bool:
        return call.choice is Choice.SPEAK

    def worth(self, group: Group, number: int, mine: Sequence[bool]) -> RewardParts:
        """Agents that spoke before the choice are credited with the expectation over both."""
        place = _place(group.episodes[number], Choice.SPEAK)
        if place is None or any(mine[place:]):
            return group.rewards[number]
        return self.expected(group)[number]

    def choices(self, groups: Sequence[Group]) -> Choices:
        """One point per context; the gains of tasks that share a context are averaged."""
        found = Choices(markers=markers_of(groups))
        gains: dict[tuple[str, Ids], dict[int, float]] = {}
        for number, group in enumerate(groups):
            contexts = compared(group)
            for call in calls_with(Choice.SPEAK, *group.episodes):
                key = call.policy, call.prompt_ids
                if key not in found.points:
                    found.points[key] = choice_point(call, found.markers)
                alone, gain = contexts[call.prompt_ids]
                gains.setdefault(key, {})[number] = gain
                found.counts[number, call.prompt_ids] = self._message_weight(alone)
        for key, by_group in gains.items():
            found.points[key] = replace(found.points[key], gain=fmean(by_group.values()))
        return found

    def _message_weight(self, alone: float) -> float:
        """Weight of the messages of a task in which silence earns `alone` out of 1.

        With `solved_weight` 0 and a reward of right or wrong, the content learns to raise the
        better of both arms: max(s, r) = s + (1 − s)·r. Where silence succeeds a message can only
        harm; the content would learn to say nothing, which is for the choice to learn.
        """
        return 1.0 - (1.0 - self.config.solved_weight) * min(max(alone, 0.0), 1.0)


def alternatives(group: Group) -> list[Alternative]:
    """For each episode: the silent plays with the same beginning, or all of them if none has it.

    Plays that ended before the choice say nothing about silence and are left out.
    """
    begun = [_beginning(episode, Choice.SILENT) for episode in group.silent]
    every = tuple(i for i, beginning in enumerate(begun) if beginning)
    result: list[Alternative] = []
    for episode in group.episodes:
        place, mine = _place(episode, Choice.SPEAK), _beginning(episode, Choice.SPEAK)
        if place is None or not every:
            result.append((0.0, ()))
        else:
            same = tuple(i for i in every if begun[i] == mine)
            result.append((exp(silence_logprob(episode.calls[place])), same or every))
    return result


def compared(group: Group) -> dict[Ids, tuple[float, float]]:
    """For each context of the choice: the task reward that silence earns, and its gain.

    Silence is judged by its plays in the same context, or by all of them if there are none. The
    gain of few plays is mostly luck, and the step's clip would cut it while a price counts in full,
    so it is shrunk towards the gain of the whole group.
    """
    alone = _by_context(group.silent, group.silent_rewards, Choice.SILENT)
    chosen = [part for parts in alone.values() for part in parts]
    whole = gain_of_silence(group.rewards, chosen or group.silent_rewards)
    result = {}
    for context, mine in _by_context(group.episodes, group.rewards, Choice.SPEAK).items():
        others = alone.get(context, chosen)
        known = len(mine) / (len(mine) + PRIOR_PLAYS)
        gain = known * gain_of_silence(mine, others) + (1.0 - known) * whole
        result[context] = fmean(part.task for part in others), gain
    return result


def choice_point(call: Call, markers: Mapping[str, Ids]) -> ChoicePoint:
    """A point whose gain is still to be filled in."""
    return ChoicePoint(
        policy=call.policy,
        prompt_ids=call.prompt_ids,
        marker_ids=markers[call.policy],
        log_p=silence_logprob(call),
        gain=0.0,
    )


def markers_of(groups: Sequence[Group]) -> dict[str, Ids]:
    """Policy → the ids of its silence."""
    return {
        call.policy: call.output_ids
        for group in groups
        for episode in (*group.silent, *group.episodes)
        for call in episode.calls
        if call.policy and call.silent
    }


def calls_with(choice: Choice, *episodes: Episode) -> list[Call]:
    """The calls of trained agents made with that choice."""
    return [c for episode in episodes for c in episode.calls if c.policy and c.choice is choice]


def silence_logprob(call: Call) -> float:
    assert call.silence_logprob is not None
    return call.silence_logprob


def _chose(episode: Episode, choice: Choice) -> bool:
    return any(call.choice is choice for call in episode.calls)


def _place(episode: Episode, choice: Choice) -> int | None:
    """Index of a trained agent's first call with that choice."""
    return next((i for i, c in enumerate(episode.calls) if c.policy and c.choice is choice), None)


def _beginning(episode: Episode, choice: Choice) -> tuple[object, ...]:
    """Everything said before the choice, and the prompt of the agent that chose."""
    place = _place(episode, choice)
    if place is None:
        return ()
    said = tuple((call.prompt_ids, call.output_ids, call.text) for call in episode.calls[:place])
    return (*said, episode.calls[place].prompt_ids)


def _by_context(
    episodes: Sequence[Episode], rewards: Sequence[RewardParts], choice: Choice
) -> dict[Ids, list[RewardParts]]:
    """The rewards of episodes with that choice, by the prompt it was made in."""
    found: dict[Ids, list[RewardParts]] = {}
    for episode, parts in zip(episodes, rewards, strict=True):
        for call in calls_with(choice, episode):
            found.setdefault(call.prompt_ids, []).append(parts)
    return found
