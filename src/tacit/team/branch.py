"""Keeps the calls of an episode in order, also where several agents are asked at once."""

from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from tacit.types import Call, Message


@dataclass(slots=True)
class Branch:
    """A sequence of calls: the episode's own, or one of several asked `together`.

    Each branch numbers and keeps its own calls, so that neither depends on which finishes first.
    """

    place: tuple[int, ...] = ()
    calls: list[Call] = field(default_factory=list)
    path_tokens: int = 0
    """Generated tokens and seconds on the longest chain of calls that led here."""
    path_seconds: float = 0.0
    spoke: bool = False
    """True if an agent has spoken before this point."""
    asked: dict[str, int] = field(default_factory=dict)
    splits: int = 0
    tool_calls: Counter[str] = field(default_factory=Counter)
    """Tools called by each agent so far; those of other branches count once they are joined."""
    answers: dict[str, Message] = field(default_factory=dict)
    """The last answer of each agent so far."""

    def number(self, agent: str) -> str:
        """The number of this agent's next call: `2`, or `1.3.2` in a branch."""
        self.asked[agent] = self.asked.get(agent, 0) + 1
        return ".".join(map(str, (*self.place, self.asked[agent])))

    def split(self, ways: int) -> list["Branch"]:
        self.splits += 1
        return [
            Branch(
                (*self.place, self.splits, way),
                path_tokens=self.path_tokens,
                path_seconds=self.path_seconds,
                spoke=self.spoke,
                tool_calls=self.tool_calls.copy(),
                answers=self.answers.copy(),
            )
            for way in range(1, ways + 1)
        ]

    def join(self, branches: Sequence["Branch"]) -> None:
        """Add the branches' calls in the order they were asked for; the slowest sets the path."""
        before = self.tool_calls.copy()
        for branch in branches:
            self.tool_calls += branch.tool_calls - before
            self.calls += branch.calls
            self.path_tokens = max(self.path_tokens, branch.path_tokens)
            self.path_seconds = max(self.path_seconds, branch.path_seconds)
            self.spoke |= branch.spoke
            self.answers |= branch.answers


BRANCH: ContextVar[Branch] = ContextVar("branch")
"""The branch of the current asyncio task; its calls are recorded there."""
