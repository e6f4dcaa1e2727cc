"""The groups of one step as they were played, which may be ahead of what was learned.

A run that is killed with a batch played ahead goes on with that batch, so a checkpoint holds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from tacit.learn.arms import Played
from tacit.types import Episode


@dataclass(frozen=True, slots=True)
class Rollout:
    groups: tuple[Played, ...]
    failed: tuple[Episode, ...] = ()
    """Left out of the groups."""

    def to_json(self) -> Any:
        return _ADAPTER.dump_python(self, mode="json")

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "Rollout":
        return _ADAPTER.validate_python(tree)

    def versions(self) -> list[int]:
        """Of the weights behind every message of a trained agent."""
        return [
            call.version
            for group in self.groups
            for episode in group.spoken
            for call in episode.calls
            if call.policy
        ]


_ADAPTER = TypeAdapter(Rollout)
