"""`arms`: every group holds both choices, and the choice is judged apart from what is said.

With p = π(silence | context), known exactly from one forward pass over the marker:

- *Content.* Spoken episodes are drawn from π given that it is not silence, compared with each other
  and learned from on log q (`conditioning`), so that what is said does not move p.
- *Silent arm.* The same task with everyone silent who may be: once where the rest of the team is
  deterministic, several times where it samples.
- *Choice.* A step on logit p of w·(R_silent − mean R_spoken)/std_floor, which for w = p(1−p) is the
  exact gradient of p·R_silent + (1−p)·mean R_spoken, up to the constant std_floor (`step`).

For teams with one choice in an episode. The estimator is ours.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from statistics import fmean

from tacit.economy.group import Group, gain_of_silence
from tacit.economy.reward import RewardParts, mixture
from tacit.silence import ChoicePoint, Choices, Ids, Silence, Step
from tacit.silence.step import ChoiceModel, DescentStep
from tacit.types import Call, Choice, Episode, Task

PRIOR_PLAYS = 4
"""How many plays a group's gain counts for in the gain of one of its contexts."""

Alternative = tuple[float, tuple[int, ...]]
"""π(silence) where an episode's choice was made, and the silent plays that show what follows."""


class Arms(Silence):
    choice = Choice.SPEAK
    several = False

    @property
    def warmup_steps(self) -> int:
        return self.config.warmup_steps

    def silent_plays(self, *, deterministic: bool) -> int:
        return 1 if deterministic else self.config.silent_samples

    def group(
        self, task: Task, episodes: Sequence[Episode], silent: Sequence[Episode]
    ) -> Group | None:
        if not any(_chose(episode, Choice.SILENT) for episode in silent):
            # whoever got to choose has nothing to be compared with
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
            alone = fmean(_right(group.silent[i]) for i in plays) if plays else 0.0
            scores.append(p * alone + (1.0 - p) * _right(episode))
        return fmean(scores)

    def worth(self, group: Group, number: int, mine: Sequence[bool]) -> RewardParts:
        """Agents that spoke before the choice are credited with the expected reward."""
        place = _place(group.episodes[number], Choice.SPEAK)
        if place is None or any(mine[place:]):
            return group.rewards[number]
        return self.expected(group)[number]

    def choices(self, groups: Sequence[Group]) -> Choices:
        """A point for each context; where two tasks ask the same, their gains are averaged."""
        found = Choices()
        gains: dict[tuple[str, Ids], dict[int, float]] = {}
        for number, group in enumerate(groups):
            known = compared(group)
            for call in _calls(group.episodes, Choice.SPEAK):
                key = call.policy, call.prompt_ids
                if key not in found.points:
                    found.points[key] = _point(call, group)
                alone, gain = known[call.prompt_ids]
                gains.setdefault(key, {})[number] = gain
                found.counts[number, call.prompt_ids] = self._counts(alone)
        for key, mine in gains.items():
            found.points[key] = replace(found.points[key], gain=fmean(mine.values()))
        return found

    def _counts(self, alone: float) -> float:
        """How much a task's messages count where silence earns `alone` of 1.

        With `solved_weight` 0 and right or wrong as reward, the content learns to raise the better
        of both arms: max(s, r) = s + (1 − s)·r. Where silence succeeds a message can only harm, and
        what it would learn is to say nothing, which is the choice's to learn.
        """
        return 1.0 - (1.0 - self.config.solved_weight) * min(max(alone, 0.0), 1.0)

    def step(self, model: ChoiceModel) -> Step:
        return DescentStep(model, self.config)


def alternatives(group: Group) -> list[Alternative]:
    """Of each episode: the silent plays that began as it did, or all where none did.

    A play that ended before anybody could choose says nothing of silence.
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
            result.append((_chance(episode.calls[place]), same or every))
    return result


def compared(group: Group) -> dict[Ids, tuple[float, float]]:
    """Of each context of the choice to speak: how well silence solves the task, and its gain.

    Silence is judged in the same context where it was played there, else wherever it was. A gain
    of few plays is mostly luck, and would be cut by the step's clip where a price counts in full:
    it is drawn towards the whole group's.
    """
    alone = _by_context(group.silent, group.silent_rewards, Choice.SILENT)
    chosen = [part for some in alone.values() for part in some]
    whole = gain_of_silence(group.rewards, chosen or group.silent_rewards)
    result = {}
    for context, mine in _by_context(group.episodes, group.rewards, Choice.SPEAK).items():
        others = alone.get(context, chosen)
        known = len(mine) / (len(mine) + PRIOR_PLAYS)
        gain = known * gain_of_silence(mine, others) + (1.0 - known) * whole
        result[context] = fmean(part.task for part in others), gain
    return result


def _point(call: Call, group: Group) -> ChoicePoint:
    """The marker's ids are those of the silent arm's own call of the same agent."""
    marker = next(one.output_ids for one in _calls(group.silent, Choice.SILENT, call.agent))
    assert call.silence_logprob is not None
    return ChoicePoint(
        policy=call.policy,
        prompt_ids=call.prompt_ids,
        marker_ids=marker,
        log_p=call.silence_logprob,
        gain=0.0,
    )


def _calls(episodes: Sequence[Episode], choice: Choice, agent: str | None = None) -> list[Call]:
    return [
        call
        for episode in episodes
        for call in episode.calls
        if call.policy and call.choice is choice and agent in (None, call.agent)
    ]


def _chose(episode: Episode, choice: Choice) -> bool:
    return any(call.choice is choice for call in episode.calls)


def _place(episode: Episode, choice: Choice) -> int | None:
    """Which of its calls was the first made with that choice."""
    return next((i for i, c in enumerate(episode.calls) if c.policy and c.choice is choice), None)


def _chance(call: Call) -> float:
    """π(silence) as the engine saw it."""
    assert call.silence_logprob is not None
    return exp(call.silence_logprob)


def _beginning(episode: Episode, choice: Choice) -> tuple[object, ...]:
    """All that was said before the choice, and what the chooser read."""
    place = _place(episode, choice)
    if place is None:
        return ()
    said = tuple((call.prompt_ids, call.output_ids, call.text) for call in episode.calls[:place])
    return (*said, episode.calls[place].prompt_ids)


def _by_context(
    episodes: Sequence[Episode], parts: Sequence[RewardParts], choice: Choice
) -> dict[Ids, list[RewardParts]]:
    """What was earned after that choice, by the prompt with which it was made."""
    met: dict[Ids, list[RewardParts]] = {}
    for episode, part in zip(episodes, parts, strict=True):
        for call in episode.calls:
            if call.policy and call.choice is choice:
                met.setdefault(call.prompt_ids, []).append(part)
    return met


def _right(episode: Episode) -> bool:
    return bool(episode.grade and episode.grade.right)
