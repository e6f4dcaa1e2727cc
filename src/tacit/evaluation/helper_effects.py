"""What helpers changed: every episode beside the same task played without them.

It says something where whoever answers is deterministic; otherwise chance changes answers too.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tacit.team.roster import has_role
from tacit.types import Episode


class Effect(StrEnum):
    """What an episode's helpers did to its answer."""

    HELPED = "helped"  # wrong without them, right with them
    HARMED = "harmed"  # right without them, wrong with them
    SAME = "same"  # they spoke, and it made no difference
    SILENT = "silent"  # they said nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One episode, and what its helpers' messages did."""

    task_id: str
    sample: int
    effect: Effect
    right: bool
    """With them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """How many episodes there are of each effect."""

    helped: int = 0
    harmed: int = 0
    same: int = 0
    silent: int = 0

    @property
    def episodes(self) -> int:
        return self.helped + self.harmed + self.same + self.silent


def changes(
    episodes: Iterable[Episode], without: Iterable[Episode], helpers: Collection[str]
) -> list[Change]:
    """Every graded episode whose task has a graded play without the roles in `helpers`."""
    alone = {episode.task_id: episode.grade.right for episode in without if episode.grade}
    return [
        Change(
            task_id=episode.task_id,
            sample=episode.sample,
            effect=_effect(episode, episode.grade.right, alone[episode.task_id], helpers),
            right=episode.grade.right,
        )
        for episode in episodes
        if episode.grade and episode.task_id in alone
    ]


def count(found: Iterable[Change]) -> Changed:
    return Changed(**{str(effect): n for effect, n in Counter(c.effect for c in found).items()})


def _effect(episode: Episode, right: bool, alone: bool, helpers: Collection[str]) -> Effect:
    if right != alone:
        return Effect.HELPED if right else Effect.HARMED
    spoken = [call.agent for call in episode.calls if call.is_turn]
    spoke = any(has_role(agent, role) for agent in spoken for role in helpers)
    return Effect.SAME if spoke else Effect.SILENT
