"""A group: the episodes of one task that are compared with each other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from tacit.economy.reward import RewardParts
from tacit.types import Episode


@dataclass(slots=True, kw_only=True)
class Group:
    """One task in one step. `rollout` fills in the episodes, `learn.credit` the rest."""

    task_id: str
    level: str = ""
    episodes: tuple[Episode, ...] = ()
    """The episodes to learn from, without failed ones."""
    silent: tuple[Episode, ...] = ()
    """The silent arm: the same task with every agent silent that may be. Empty if not played."""
    paired: bool = False
    """True if each episode has its own silent one: the same, but for one agent that is silent."""
    rewards: tuple[RewardParts, ...] = ()
    """One per episode."""
    silent_rewards: tuple[RewardParts, ...] = ()
    advantages: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Role → one number per episode; 0 if the role did not speak in it."""
    tokens: float = 0.0
    """Expected cost under the policy, without the samples that exploration forced on it."""
    turns: float = 0.0
    money: float = 0.0
    right: float | None = None
    """Expected accuracy of the policy, or None if it is simply that of the episodes."""

    @property
    def gain(self) -> float | None:
        """mean R_silent − mean R, or None without a silent arm."""
        return gain_of_silence(self.rewards, self.silent_rewards) if self.silent_rewards else None


def gain_of_silence(spoken: Sequence[RewardParts], silent: Sequence[RewardParts]) -> float:
    return fmean(part.total for part in silent) - fmean(part.total for part in spoken)
