"""When to speak: how the choice is explored during play, and what is learned from it.

`Silence` is both the interface and the plain strategy `none`, in which silence is just one of the
messages an agent may sample. Under `none` the choice collapses: while messages still harm, silence
pays, and once nobody speaks nothing can teach speaking. `floor` keeps both choices alive while
sampling, and `arms` plays both in every group (`seats` where several agents choose); see their
modules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, prod

from tacit.config import SilenceConfig
from tacit.economy.group import Group
from tacit.economy.reward import RewardParts
from tacit.registry import lookup
from tacit.types import Call, Choice, Episode, Ids, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePoint:
    """One context in which an agent chose between speaking and silence."""

    policy: str
    prompt_ids: Ids
    marker_ids: Ids
    log_p: float
    """log π(silence) as the engine computed it."""
    gain: float
    """R_silent − mean R_spoken."""


@dataclass(slots=True)
class Choices:
    """The choices of a batch."""

    points: dict[tuple[str, Ids], ChoicePoint] = field(default_factory=dict)
    """By policy and prompt."""
    counts: dict[tuple[int, Ids], float] = field(default_factory=dict)
    """Weight of the messages spoken in a context, by group number and prompt."""
    markers: Mapping[str, Ids] = field(default_factory=dict)
    """Policy → how it spells silence, for messages in contexts without a point."""


class Silence:
    """`none`: the policy samples, and silence is one of its messages."""

    choice = Choice.FREE
    """How a trained agent that may be silent chooses while exploring."""
    pairs = False
    """True if every sample is played twice, with one agent speaking and with it silent."""
    warmup_steps = 0
    """Longest warm-up: steps without cost in which the choice is not trained."""

    def __init__(self, config: SilenceConfig) -> None:
        self.config = config

    def silent_plays(self, *, deterministic: bool) -> int:
        """Silent episodes to play per task; `deterministic` if they would all be the same."""
        return 0

    def group(
        self, task: Task, episodes: Sequence[Episode], silent: Sequence[Episode]
    ) -> Group | None:
        """The group of a task, or None if there is nothing to compare."""
        if not episodes:
            return None
        return Group(task_id=task.id, level=task.level, episodes=tuple(episodes))

    def expected(self, group: Group) -> Sequence[RewardParts]:
        """The expected reward parts of each episode if the policy makes the choice."""
        return group.rewards

    def outcomes(self, group: Group) -> list[tuple[float, Episode, RewardParts]]:
        """Plays with weights and reward parts; their weighted mean is the policy's expectation."""
        parts = zip(group.episodes, self.expected(group), strict=True)
        return [(self.likelihood(episode), episode, part) for episode, part in parts]

    def expected_right(self, group: Group) -> float | None:
        """The policy's expected accuracy, or None if it is simply that of the samples."""
        return None

    def likelihood(self, episode: Episode) -> float:
        """Product of π/b over the choices that were drawn with a floor."""
        return prod(self._ratio(call) for call in episode.calls if call.policy)

    def worth(self, group: Group, number: int, mine: Sequence[bool]) -> RewardParts:
        """The reward that a role is credited with in an episode; `mine` marks the role's calls."""
        return group.rewards[number]

    def choices(self, groups: Sequence[Group]) -> Choices:
        """The points on which the choice is trained; none if sampling already trains it."""
        return Choices()

    def learns(self, call: Call) -> bool:
        """True if the call of a trained agent is trained on."""
        return True

    def apart(self, call: Call) -> bool:
        """True if the call is a message that is trained given speech: on log q instead of log π."""
        return False

    def weight(self, call: Call) -> float:
        """Factor on the advantage of a message: min(2, π/b) of the choice to say it."""
        return min(2.0, self._ratio(call))

    def logprobs(self, call: Call) -> tuple[float, ...]:
        """The log-probabilities of a message under the policy."""
        return call.logprobs

    def _ratio(self, call: Call) -> float:
        """π/b of the choice in a call: the policy's probability over the sampler's."""
        if call.choice is not Choice.FLOOR or call.silence_logprob is None:
            return 1.0
        p = exp(call.silence_logprob)
        return choice_ratio(p, floored(p, self.config.floor), call.silent)


def floored(p: float, floor: float) -> float:
    """The probability of silence to sample with, at least `floor` away from 0 and 1."""
    return min(max(p, floor), 1.0 - floor)


def choice_ratio(p: float, sampled: float, silent: bool) -> float:
    """π/b of a choice if the engine samples silence with probability `sampled`."""
    return p / sampled if silent else (1.0 - p) / (1.0 - sampled)


STRATEGIES: dict[str, str] = {
    "none": "tacit.silence:Silence",
    "floor": "tacit.silence.floor:Floor",
    "arms": "tacit.silence.arms:Arms",
}
SEVERAL: dict[str, str] = STRATEGIES | {"arms": "tacit.silence.seats:Seats"}
"""Those for teams in which several agents choose, or one agent several times."""


def open_silence(config: SilenceConfig, *, choosing: bool, several: bool = False) -> Silence:
    """The configured strategy, or `none` if no trained agent may be silent."""
    name = config.exploration if choosing else "none"
    where = (SEVERAL if several else STRATEGIES)[name]
    strategy: Silence = lookup("exploration", where, {})(config)
    return strategy
