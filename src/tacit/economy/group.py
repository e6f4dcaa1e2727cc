"""The episodes of one task that are compared with each other, from play to credit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from tacit.economy.reward import RewardParts
from tacit.types import Episode


@dataclass(slots=True, kw_only=True)
class Group:
    """One task in one step. Play fills in the episodes, credit all the rest."""

    task_id: str
    level: str = ""
    episodes: tuple[Episode, ...] = ()
    """What is learned from; those that failed are left out."""
    silent: tuple[Episode, ...] = ()
    """The other arm: the same task with everyone silent who may be, where that is played too."""
    rewards: tuple[RewardParts, ...] = ()
    """One for each episode; `silent_rewards` likewise."""
    silent_rewards: tuple[RewardParts, ...] = ()
    advantages: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Role → one number for each episode; 0 where the role did not speak in it."""
    tokens: float = 0.0
    """What the policy is expected to spend on this task, not what samples forced on it did."""
    turns: float = 0.0
    money: float = 0.0

    @property
    def gain(self) -> float | None:
        """mean R_silent − mean R, where both arms were played."""
        if not self.silent_rewards:
            return None
        return gain_of_silence(self.rewards, self.silent_rewards)


def gain_of_silence(
    spoken: tuple[RewardParts, ...] | list[RewardParts],
    silent: tuple[RewardParts, ...] | list[RewardParts],
) -> float:
    return fmean(part.total for part in silent) - fmean(part.total for part in spoken)
