"""Where a run stands, apart from its weights."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from tacit.economy.budget import Dual
from tacit.silence.warmup import Warmup


@dataclass(slots=True)
class State:
    """What a checkpoint keeps beside weights: with it a run goes on as if never stopped."""

    step: int = 0
    position: int = 0
    duals: dict[str, Dual] = field(default_factory=dict)
    warmup: Warmup = field(default_factory=lambda: Warmup(limit=0))
    best: dict[str, Any] | None = None
    worse: int = 0
    """Evaluations since the best one."""
    dead: int = 0
    """Steps in a row without any signal."""
    empty: float = 1.0
    """Share of empty messages in this step; all, where an older checkpoint does not say."""
    stopped: str | None = None
    dropped: int = 0
    """Training episodes that failed and were left out."""
    owed: bool = False
    """Whether the evaluation of this step is still to be made."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "State":
        """What `to_json` gave; a ValueError where something is of another type."""
        own = {name: tree[name] for name in cls.__slots__ if name in tree}
        return _ADAPTER.validate_python(own | {"duals": tree["duals"], "warmup": tree["warmup"]})


_ADAPTER = TypeAdapter(State)
