"""The messages to read: those that helped most and those that harmed most."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from tacit.audit.targets import Target
from tacit.audit.worth import pairs_of
from tacit.config import Cut
from tacit.types import Call, Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One message, and what the episode came to with it and without it."""

    episode: Episode
    call: int
    """Its place among the episode's calls."""
    value: float
    """Reward with it minus reward without it."""
    plays: int
    """How many plays each way the value is the mean of."""
    without: str
    """The answer without it."""

    @property
    def said(self) -> Call:
        return self.episode.calls[self.call]

    @property
    def cut(self) -> Cut:
        return Cut(agent=self.said.agent, round=self.said.round)

    def confirmed(self, differences: Sequence[float]) -> "Spoken":
        """With the mean of these differences as its value."""
        return replace(self, value=fmean(differences), plays=len(differences))

    def to_json(self) -> dict[str, Any]:
        said = self.said
        return {
            "task": self.episode.task_id,
            "sample": self.episode.sample,
            "call": self.call,
            "agent": said.agent,
            "round": said.round,
            "text": said.text,
            "value": self.value,
            "plays": self.plays,
            "answer": self.episode.answer,
            "without": self.without,
        }


def most_telling(
    targets: Sequence[Target],
    base: Sequence[Episode],
    without: Mapping[str, Sequence[Episode]],
    most: int,
) -> list[Spoken]:
    """Up to `most` messages that helped and as many that harmed, of agents that were left out.

    Of an agent that speaks several times in an episode, the first message stands for all. Agents
    take turns, and the briefest come first among equals: they are the easiest to read.
    """
    found = [
        Spoken(
            episode=one,
            call=call,
            value=one.grade.reward - two.grade.reward,
            plays=1,
            without=two.answer,
        )
        for target in targets
        if target.kind == "agent"
        for one, two in pairs_of(base, without.get(target.name, ()))
        for call in _first(target, one)
        if one.grade and two.grade and one.grade.reward != two.grade.reward
    ]
    found.sort(key=lambda one: (-abs(one.value), len(one.said.text)))
    helped, harmed = ([one for one in found if (one.value > 0) == good] for good in (True, False))
    return _in_turn(helped)[:most] + _in_turn(harmed)[:most][::-1]


def _in_turn(found: Sequence[Spoken]) -> list[Spoken]:
    """The best of each agent, then the second best of each, and so on."""
    taken: Counter[str] = Counter()
    place = {}
    for one in found:
        taken[one.said.agent] += 1
        place[id(one)] = taken[one.said.agent]
    return sorted(found, key=lambda one: place[id(one)])


def _first(target: Target, episode: Episode) -> list[int]:
    spoken = [n for n, call in enumerate(episode.calls) if call.is_turn and target.covers(call)]
    return spoken[:1]
