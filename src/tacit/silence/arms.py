"""Both arms of a group, compared context by context: what silence earned where others spoke.

Not covered: playing the arms (`rollouts`), moving the choice by their difference (`choosing`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import fmean

from tacit.economy.reward import RewardParts, mixture
from tacit.types import Call, Choice, Episode

PRIOR_PLAYS = 4
"""How many plays a group's gain counts for in that of one of its contexts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The episodes of one task in one step. `silent` is the other arm, empty unless `arms`."""

    task_id: str
    level: str
    spoken: tuple[Episode, ...]
    silent: tuple[Episode, ...] = ()


@dataclass(frozen=True, slots=True)
class Otherwise:
    """What the policy might have done in the place of speaking."""

    p: float = 0.0
    """π(silence) where the choice was made."""
    plays: tuple[int, ...] = ()
    """The silent plays that show what would have come of it."""


def otherwise(group: Played) -> tuple[Otherwise, ...]:
    """Of each spoken episode: the silent plays that began as it did, or all where none did.

    A play that ended before anybody could choose says nothing of silence.
    """
    begun = [_beginning(episode, Choice.SILENT) for episode in group.silent]
    every = tuple(i for i, beginning in enumerate(begun) if beginning)
    result = []
    for episode in group.spoken:
        mine, place = _beginning(episode, Choice.SPEAK), choice_place(episode, Choice.SPEAK)
        if place is None or not every:
            result.append(Otherwise())
        else:
            same = tuple(i for i in every if begun[i] == mine)
            result.append(Otherwise(silence_chance(episode.calls[place]), same or every))
    return tuple(result)


def either(
    others: Sequence[Otherwise], spoken: Sequence[RewardParts], silent: Sequence[RewardParts]
) -> list[RewardParts]:
    """What each spoken episode earns and costs on average, the choice left to the policy."""
    return [
        mixture([(one.p / len(one.plays), silent[i]) for i in one.plays] + [(1.0 - one.p, part)])
        if one.plays
        else part
        for one, part in zip(others, spoken, strict=True)
    ]


def gain_of_silence(spoken: Sequence[RewardParts], silent: Sequence[RewardParts]) -> float:
    return fmean(part.total for part in silent) - fmean(part.total for part in spoken)


def compared(
    group: Played, spoken: Sequence[RewardParts], silent: Sequence[RewardParts]
) -> dict[tuple[int, ...], tuple[float, float]]:
    """Of each context of the choice to speak: how well silence solves the task, and its gain.

    Silence is judged in the same context where it was played there, else wherever it was. A gain
    of few plays is mostly luck, and would be cut by the step's clip where a price counts in full:
    it is drawn towards the whole group's.
    """
    if not silent:
        return {}
    alone = _by_context(group.silent, silent, Choice.SILENT)
    chosen = [part for some in alone.values() for part in some]
    whole = gain_of_silence(spoken, chosen or silent)
    result = {}
    for context, mine in _by_context(group.spoken, spoken, Choice.SPEAK).items():
        others = alone.get(context, chosen)
        known = len(mine) / (len(mine) + PRIOR_PLAYS)
        gain = known * gain_of_silence(mine, others) + (1.0 - known) * whole
        result[context] = fmean(part.task for part in others), gain
    return result


def choice_place(episode: Episode, choice: Choice) -> int | None:
    """Which of its calls was the first made with that choice."""
    return next((i for i, c in enumerate(episode.calls) if c.policy and c.choice is choice), None)


def silence_chance(call: Call) -> float:
    """π(silence) as the engine saw it."""
    assert call.silence_logprob is not None
    return exp(call.silence_logprob)


def _beginning(episode: Episode, choice: Choice) -> tuple[object, ...]:
    """All that was said before the choice, and what the chooser read."""
    place = choice_place(episode, choice)
    if place is None:
        return ()
    said = tuple((call.prompt_ids, call.output_ids, call.text) for call in episode.calls[:place])
    return (*said, episode.calls[place].prompt_ids)


def _by_context(
    episodes: Sequence[Episode], parts: Sequence[RewardParts], choice: Choice
) -> dict[tuple[int, ...], list[RewardParts]]:
    """What was earned after that choice, by the prompt with which it was made."""
    met: dict[tuple[int, ...], list[RewardParts]] = {}
    for episode, part in zip(episodes, parts, strict=True):
        for call in episode.calls:
            if call.policy and call.choice is choice:
                met.setdefault(call.prompt_ids, []).append(part)
    return met
