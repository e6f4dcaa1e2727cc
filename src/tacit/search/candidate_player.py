"""Plays candidates on the search's tasks, and holds what that costs under the budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from tacit.config import Config
from tacit.economy.ledger import PriceTable
from tacit.engine.base import Engine
from tacit.errors import RunError, SpendCap
from tacit.evaluation.measure import evaluate_team, scores, summarise
from tacit.evaluation.statistics import Estimate
from tacit.grading import Grader
from tacit.rollout.play import NO_CAP, Cap
from tacit.run.folder import RunFolder
from tacit.run.opening import seat
from tacit.search.candidates import Candidate
from tacit.search.halving import Result
from tacit.types import Episode, Task

COMFORT = 1.25
"""Episodes are played many at once as long as so many times their expected cost is left."""


class Spent(RunError):
    """The budget of the search allows no further episode."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is told of a candidate; tokens are means per episode."""

    tasks: int
    accuracy: Estimate
    generated: float
    read: float


class Player(Protocol):
    """What a search plays its candidates with."""

    spent: float
    """By all episodes so far, in what the budget counts."""

    def begin(self, expected: float | None) -> None:
        """A turn begins that will cost about so much; None if that is not known."""
        ...

    async def play(self, one: Candidate, tasks: int) -> str | None:
        """Play a candidate on the first so many tasks; why it cannot be played, or None.

        Raises Spent when the budget does not allow another episode.
        """
        ...

    def result(self, name: str, tasks: int) -> Result: ...

    def numbers(self, name: str, tasks: int) -> Numbers: ...


def cost_of(config: Config, prices: PriceTable | None) -> Callable[[Episode], float]:
    """What an episode costs, in what the budget counts."""
    if config.search.money is not None:
        assert prices is not None
        return lambda episode: sum(map(prices.cost, episode.calls))
    if config.search.counted == "generated":
        return lambda episode: float(episode.usage.generated)
    return lambda episode: float(episode.usage.total)


@dataclass(slots=True, kw_only=True)
class CandidatePlayer:
    """Plays with engines, and keeps every episode in the run folder."""

    config: Config
    run: RunFolder
    tasks: Sequence[Task]
    engines: dict[str, Engine]
    grader: Grader
    budget: float
    prices: PriceTable | None = None
    spend_cap: Cap = NO_CAP
    on_episode: Callable[[Episode], None] = lambda episode: None
    spent: float = 0.0
    _dearest: float = 0.0
    _comfortable: bool = False
    _cost: Callable[[Episode], float] = field(init=False)

    def __post_init__(self) -> None:
        self._cost = cost_of(self.config, self.prices)
        for path in sorted((self.run.path / "episodes").glob("*.jsonl")):
            for episode in self.run.episodes(path.stem):
                self._pay(episode)

    def begin(self, expected: float | None) -> None:
        left = self.budget - self.spent
        self._comfortable = expected is not None and COMFORT * expected <= left

    async def play(self, one: Candidate, tasks: int) -> str | None:
        known = {(e.task_id, e.sample) for e in self.run.episodes(one.name) if e.grade}

        def counted(episode: Episode) -> None:
            if (episode.task_id, episode.sample) not in known:
                self._pay(episode)
            self.on_episode(episode)

        try:
            await evaluate_team(
                one.name,
                seat(one.team, self.engines, one.name),
                self.tasks[:tasks],
                self.config.evaluation,
                self.run,
                seed=self.config.seed,
                grader=self.grader,
                on_episode=counted,
                cap=Cap(self._reached, self._left),
            )
        except SpendCap as cap:
            if self.spend_cap.reached():
                raise
            raise Spent(str(cap)) from None
        except RunError as error:
            return str(error)
        return None

    def result(self, name: str, tasks: int) -> Result:
        played = self._played(name, tasks)
        costs: dict[str, list[float]] = {}
        for episode in played:
            costs.setdefault(episode.task_id, []).append(self._cost(episode))
        return Result(scores(played), {task: fmean(mine) for task, mine in costs.items()})

    def numbers(self, name: str, tasks: int) -> Numbers:
        some, settings = self.tasks[:tasks], self.config.evaluation
        whole = summarise(name, self._played(name, tasks), some, settings)
        return Numbers(whole.tasks, whole.accuracy, whole.generated.mean, whole.read)

    def _played(self, name: str, tasks: int) -> list[Episode]:
        wanted = {task.id for task in self.tasks[:tasks]}
        found = (e for e in self.run.episodes(name) if e.task_id in wanted and e.grade)
        return list({(e.task_id, e.sample): e for e in found}.values())

    def _pay(self, episode: Episode) -> None:
        cost = self._cost(episode)
        self.spent += cost
        self._dearest = max(self._dearest, cost)

    def _left(self) -> float:
        """What may be spent at once, so that the dearest episode so far would still fit."""
        capped = self.spend_cap.left()
        if not math.isinf(capped):
            return capped
        return math.inf if self._comfortable else max(0.0, self._over())

    def _over(self) -> float:
        return self.budget - self.spent - self._dearest

    def _reached(self) -> str | None:
        if why := self.spend_cap.reached():
            return why
        return None if self._over() >= 0 else "the search's budget allows no further episode"
