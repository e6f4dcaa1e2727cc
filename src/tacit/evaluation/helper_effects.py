"""Measures what helpers change: compares each episode with a play of its task without them.

Meaningful only if the agents that answer are deterministic; otherwise chance changes answers too.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tacit.team.roster import has_role
from tacit.types import Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperEffects:
    """Numbers of episodes."""

    helped: int = 0
    """Wrong without them, right with them."""
    harmed: int = 0
    """Right without them, wrong with them."""
    same: int = 0
    """They spoke and made no difference."""
    silent: int = 0
    """They said nothing."""

    @property
    def episodes(self) -> int:
        return self.helped + self.harmed + self.same + self.silent


def helper_effects(
    episodes: Iterable[Episode], without: Iterable[Episode], helpers: Collection[str]
) -> HelperEffects:
    """Counts over graded episodes whose task has a graded play without the roles in `helpers`."""
    alone = {episode.task_id: episode.grade.right for episode in without if episode.grade}
    found = Counter(
        _effect(episode, episode.grade.right, alone[episode.task_id], helpers)
        for episode in episodes
        if episode.grade and episode.task_id in alone
    )
    return HelperEffects(**found)


def _effect(episode: Episode, right: bool, alone: bool, helpers: Collection[str]) -> str:
    if right != alone:
        return "helped" if right else "harmed"
    spoken = [call.agent for call in episode.calls if call.is_turn]
    spoke = any(has_role(agent, role) for agent in spoken for role in helpers)
    return "same" if spoke else "silent"
