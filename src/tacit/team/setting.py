"""The settings of one episode: its agents as configured, and how they sample and choose."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tacit.config import AgentConfig, Cut
from tacit.engine.base import Engine
from tacit.team.tools import Toolbox
from tacit.types import Call, Choice, Prompt

if TYPE_CHECKING:
    from tacit.team.seat import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A role with a model, as configured."""

    name: str
    role: str
    engine: Engine
    config: AgentConfig
    part: str
    """Its role text, unless the topology asks for another."""
    may_be_silent: bool = False
    temperature: float = 0.0
    form: str = "tagged"
    toolbox: Toolbox | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A client's settings for the call that gives the answer; None keeps the configured ones."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Never more than is configured."""
    on_text: Callable[[str], None] | None = None
    """Called with the pieces of the answer as they are generated."""


class Guard:
    """Decides who may speak and for how long. By default everybody; servers enforce budgets."""

    def most_tokens(
        self, seat: "Seat", prompt: Prompt, *, answers: bool, final: bool, foreign: bool = False
    ) -> int:
        """Token limit of the next message; at 0 the agent is not asked and its last answer used.

        `answers`: the message may become the team's answer. `foreign`: its prompt was written
        elsewhere, so no earlier answer can replace it.
        """
        return seat.agent.config.max_tokens

    def withholds_tools(self, agent: str) -> bool:
        """True if an agent that has tools may call no more of them."""
        return False


FREE = Guard()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How one episode is played: its seed, and how trained agents sample and choose."""

    seed: int = 0
    step: int = 0
    sample: int = 0
    draw: int | None = None
    """Seed the draws like this sample's, so equal prompts give equal replies; None: its own."""
    training: bool = False
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """Role or agent → how its choice to speak is made; default free."""
    floor: float = 0.0
    without: frozenset[Cut] = frozenset()
    """Messages to leave out, besides those in the team's own config."""
    recorded: tuple[Call, ...] = ()
    """Calls of an earlier play: an agent given the same prompt repeats its reply, at no cost."""
    answering: Answering = Answering()
    guard: Guard = FREE
