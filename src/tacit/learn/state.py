"""The state of a run apart from its weights."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import NonNegativeInt, TypeAdapter

from tacit.economy.budget import Dual, Warmup


@dataclass(slots=True)
class State:
    """What a checkpoint keeps beside the weights, so that a run resumes exactly."""

    step: int = 0
    position: int = 0
    """Of the task sampler."""
    duals: dict[str, Dual] = field(default_factory=dict)
    warmup: Warmup = field(default_factory=lambda: Warmup(limit=0))
    best: dict[str, Any] | None = None
    worse: int = 0
    """Evaluations since the best one."""
    dead: int = 0
    """Consecutive steps without any signal."""
    empty: float = 1.0
    """Share of empty messages in this step; 1 if an older checkpoint does not say."""
    stopped: str | None = None
    dropped: int = 0
    """Training episodes that failed and were left out."""
    owed: bool = False
    """True if the evaluation of this step is still missing."""
    sizes: dict[str, NonNegativeInt] = field(default_factory=dict)
    """Bytes of each file that is cut back when the run resumes."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "State":
        """Inverse of `to_json`; raises ValueError if something has the wrong type."""
        own = {name: tree[name] for name in cls.__slots__ if name in tree}
        required = {name: tree[name] for name in ("duals", "warmup", "sizes")}
        return _ADAPTER.validate_python(own | required)


_ADAPTER = TypeAdapter(State)
