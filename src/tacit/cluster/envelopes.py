"""What the head and its workers send each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.rollout.play import Job
from tacit.types import Episode, Receipt


@dataclass(frozen=True, slots=True)
class Order:
    """An episode to play."""

    number: int
    roster: int
    """Number of the team that plays, in `Orders.rosters`."""
    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """The current weights of all policies. A number is never given twice, a version may be."""

    number: int = 0
    """0: as the models and the seed give them, which every worker has from the start."""
    policies: Mapping[str, tuple[int, Any]] = field(default_factory=dict)
    """Policy → version, and the reference to its weights in the object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Episodes to play with one edition."""

    orders: tuple[Order, ...]
    edition: Edition
    rosters: Mapping[int, Any]
    """The teams of these orders, as references into the object store."""


@dataclass(slots=True)
class Recovery:
    """A fault that the run got over."""

    what: str
    seconds: float
    """For how long what was lost had been under way."""

    def __str__(self) -> str:
        return f"{self.what}; {self.seconds:.1f} s lost"


@dataclass(slots=True)
class Report:
    """What a worker did since its last report."""

    done: list[tuple[int, Episode | Exception]] = field(default_factory=list)
    """Number of the order and outcome; an exception would hit every episode and ends the run."""
    receipts: list[Receipt] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    recovered: list[Recovery] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker process runs."""

    node: str
    host: str
    pid: int
    log: str
    """The file that its standard error goes to."""
