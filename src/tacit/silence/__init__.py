"""When to speak: how the choice is explored while playing, and what is learned from it.

`Silence` is the interface and the plain strategy at once: agents sample, silence being one of the
messages they may sample (`none`). Left alone the choice collapses: while messages still harm,
silence pays, and once nobody speaks nothing can teach speaking. `floor` keeps both choices alive
while sampling, `arms` plays both in every group; see their modules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tacit.config import SilenceConfig
from tacit.economy.group import Group
from tacit.economy.reward import RewardParts
from tacit.registry import lookup
from tacit.types import Call, Choice, Episode, Task

if TYPE_CHECKING:
    from tacit.silence.step import ChoiceModel

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePoint:
    """One context in which an agent chose between speaking and silence."""

    policy: str
    prompt_ids: Ids
    marker_ids: Ids
    log_p: float
    """log π(silence) as the engine saw it."""
    gain: float
    """What silence earns above speaking."""


@dataclass(slots=True)
class Choices:
    """The choices of a batch."""

    points: dict[tuple[str, Ids], ChoicePoint] = field(default_factory=dict)
    """By policy and prompt."""
    counts: dict[tuple[int, Ids], float] = field(default_factory=dict)
    """How much messages count that were spoken there, by group and prompt."""


class Step:
    """The step of one policy's choice; this one takes none."""

    missed = 0.0
    """What the last step of a warm-up missed, kept in checkpoints."""

    def present(self, points: Sequence[ChoicePoint]) -> Sequence[ChoicePoint]:
        """The points that count, with log π(silence) as the weights have it now."""
        return points

    def take(self, points: Sequence[ChoicePoint], *, train: bool) -> None:
        """Move π(silence) to where the gains ask it to be or, unless it trains, back."""


class Silence:
    """`none`: the policy samples, and silence is one of its messages."""

    choice = Choice.FREE
    """How a trained agent that may be silent chooses while it explores."""
    several = True
    """Whether a team may have several such choices in an episode."""

    def __init__(self, config: SilenceConfig) -> None:
        self.config = config

    def silent_plays(self, *, deterministic: bool) -> int:
        """How often a task is also played with everyone silent; once says all if deterministic."""
        return 0

    def group(
        self, task: Task, episodes: Sequence[Episode], silent: Sequence[Episode]
    ) -> Group | None:
        """A group that has something to compare, or None."""
        if not episodes:
            return None
        return Group(task_id=task.id, level=task.level, episodes=tuple(episodes))

    def expected(self, group: Group) -> Sequence[RewardParts]:
        """What each episode earns and costs on average, the choice left to the policy."""
        return group.rewards

    def expected_right(self, group: Group) -> float | None:
        """What the policy would score, choosing for itself; None where sampling says that."""
        return None

    def likelihood(self, episode: Episode) -> float:
        """π/b: how much likelier its choices are to the policy than to what drew them."""
        return 1.0

    def worth(self, group: Group, number: int, mine: Sequence[bool]) -> RewardParts:
        """What an episode is worth to the role that made the calls marked as `mine`."""
        return group.rewards[number]

    def choices(self, groups: Sequence[Group]) -> Choices:
        """What is learned about the choice itself."""
        return Choices()

    def weight(self, call: Call) -> float:
        """Multiplies the advantage of a message."""
        return 1.0

    def logprobs(self, call: Call) -> tuple[float, ...]:
        """A message's log-probabilities as the policy draws it."""
        return call.logprobs

    def step(self, model: "ChoiceModel") -> Step:
        """What moves the choice of one policy."""
        return Step()

    @property
    def warmup_steps(self) -> int:
        """At most so many steps at first without cost and with the choice untrained."""
        return 0


STRATEGIES: Mapping[str, str] = {
    "none": "tacit.silence:Silence",
    "floor": "tacit.silence.floor:Floor",
    "arms": "tacit.silence.arms:Arms",
}


def open_silence(config: SilenceConfig, *, choosing: bool) -> Silence:
    """The strategy that the config names; the plain one where nobody who learns may be silent."""
    name = config.exploration if choosing else "none"
    strategy: Silence = lookup("exploration", STRATEGIES[name], {})(config)
    return strategy
