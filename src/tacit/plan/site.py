"""Where a run is to be, and what it is expected to take there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.plan.cards import GIB, Card
from tacit.plan.forecast import Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where it is to run, and what a prompt and an answer are taken to be."""

    card: Card
    gpus_per_node: int = 1
    nodes: int = 1
    network_per_s: float = 50e9
    """Bytes a second between nodes, in one direction."""
    gpu_price: float | None = None
    """Money for one GPU for an hour."""
    question: int = 100
    """Tokens of a task's question."""
    fill: float = 0.7
    """The mean answer over the most tokens that it may have."""

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes

    @property
    def between_per_s(self) -> float:
        """Bytes a second that gradients and weights travel at."""
        return self.card.link_per_s if self.nodes == 1 else self.network_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is expected to take. Seconds are of one step unless they say otherwise."""

    card: str
    phases: Mapping[str, float]
    """play, score, update, sync, and the rate limits of an API where they are slower than play."""
    causes: Mapping[str, Mapping[str, float]]
    """Phase → what its seconds are spent on."""
    memory: Mapping[str, float]
    """Bytes on each GPU, by part."""
    ways: int
    """GPUs that share each copy of the models, because they do not fit into one."""
    replicas: int
    """Copies of the models; 0 if there are too few GPUs even for one."""
    generated: float
    """Tokens said in a step by models on the GPUs."""
    learned: float
    """Tokens that an update computes in a step."""
    evaluations_s: float
    """Seconds of all evaluations of the run together."""
    steps: int
    gpus: int
    """As many as one copy needs, if the site has fewer."""
    gpu_price: float | None
    api: Mapping[str, Need]
    api_money: float | None
    currency: str
    notes: Sequence[str]

    @property
    def step_s(self) -> float:
        return sum(self.phases.values())

    @property
    def run_s(self) -> float:
        return self.steps * self.step_s + self.evaluations_s

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.run_s / 3600

    @property
    def gpu_money(self) -> float | None:
        return None if self.gpu_price is None else self.gpu_price * self.gpu_hours

    @property
    def bottleneck(self) -> tuple[str, str]:
        """The longest phase, and what most of it is spent on."""
        phase = max(self.phases, key=lambda name: self.phases[name])
        causes = self.causes.get(phase, {})
        return phase, max(causes, key=lambda name: causes[name]) if causes else ""

    def to_json(self) -> dict[str, Any]:
        phase, cause = self.bottleneck
        return {
            "gpu": self.card,
            "gpus": self.gpus,
            "step_seconds": self.step_s,
            "phases": dict(self.phases),
            "causes": {name: dict(parts) for name, parts in self.causes.items()},
            "bottleneck": {"phase": phase, "cause": cause},
            "memory_gib": {name: part / GIB for name, part in self.memory.items()},
            "gpus_a_copy": self.ways,
            "copies": self.replicas,
            "generated_tokens": round(self.generated),
            "learned_tokens": round(self.learned),
            "evaluation_seconds": self.evaluations_s,
            "run_seconds": self.run_s,
            "gpu_hours": self.gpu_hours,
            "gpu_money": self.gpu_money,
            "api": {
                name: {
                    "calls": round(need.calls),
                    "prompt": round(need.prompt),
                    "generated": round(need.generated),
                }
                for name, need in self.api.items()
            },
            "api_money": self.api_money,
            "currency": self.currency,
            "notes": list(self.notes),
        }
