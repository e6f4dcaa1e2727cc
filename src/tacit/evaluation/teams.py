"""Measures teams in a run folder and compares them, for `eval`, `compare` and `train` alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.config import Config
from tacit.economy.ledger import PriceTable
from tacit.evaluation.measure import Summary, compare, evaluate_team, frontier, summarise
from tacit.evaluation.statistics import Paired
from tacit.grading import Grader, grade
from tacit.rollout.play import NO_CAP, Cap
from tacit.run.folder import WITHOUT, RunFolder
from tacit.team.roster import Roster
from tacit.types import Episode, Task

Listen = Callable[[str, int], Callable[[Episode], None]]
"""From a team's name and number of episodes to what is called with each episode."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One team on the held-out tasks."""

    episodes: Sequence[Episode]
    helpers: frozenset[str] = frozenset()
    without: Sequence[Episode] = ()
    """The same tasks played without the helpers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """How the teams of one run are measured."""

    config: Config
    run: RunFolder
    tasks: Sequence[Task]
    prices: PriceTable | None = None
    grader: Grader = grade
    cap: Cap = NO_CAP
    listen: Listen = lambda name, total: lambda episode: None

    async def team(
        self, name: str, roster: Roster, helpers: frozenset[str] = frozenset()
    ) -> Measured:
        """Play what the folder does not hold yet, with and without the helpers."""
        episodes = await self._play(name, roster, samples=self.config.evaluation.samples)
        return Measured(episodes, helpers, await self.without(name, roster, helpers))

    def played(self, name: str) -> list[Episode]:
        """A team's episodes in the folder, in task order."""
        order = {task.id: place for place, task in enumerate(self.tasks)}
        found = [episode for episode in self.run.episodes(name) if episode.task_id in order]
        return sorted(found, key=lambda episode: (order[episode.task_id], episode.sample))

    async def without(self, name: str, roster: Roster, helpers: frozenset[str]) -> list[Episode]:
        """Every task once without the helpers; nothing if there are none."""
        if not helpers:
            return []
        return await self._play(f"{name}{WITHOUT}", roster, samples=1, muted=helpers)

    async def _play(
        self, name: str, roster: Roster, *, samples: int, muted: frozenset[str] = frozenset()
    ) -> list[Episode]:
        return await evaluate_team(
            name,
            roster,
            self.tasks,
            self.config.evaluation.model_copy(update={"samples": samples}),
            self.run,
            seed=self.config.seed,
            grader=self.grader,
            on_episode=self.listen(name, len(self.tasks) * samples),
            cap=self.cap,
            muted=muted,
        )

    def summary(self, name: str, one: Measured) -> Summary:
        return summarise(
            name,
            one.episodes,
            self.tasks,
            self.config.evaluation,
            self.prices,
            one.without,
            one.helpers,
        )

    def compared(self, teams: Mapping[str, Measured], first: str | None) -> dict[str, Any]:
        """The teams' part of summary.json: each summarised, and tested against the first."""
        summaries = [self.summary(name, one) for name, one in teams.items()]
        return {
            "teams": {summary.team: summary.to_json() for summary in summaries},
            "frontier": frontier(summaries),
            "compared_with": first,
            "paired": {
                name: self.paired(teams[first], one)
                for name, one in teams.items()
                if first is not None and name != first
            },
        }

    def compared_with_trained(
        self, teams: Mapping[str, Measured], first: str | None
    ) -> dict[str, Any]:
        """`compared` after training: the trained team is tested against each of the others."""
        result, trained = self.compared(teams, first), teams["trained"]
        result["paired"].pop("trained", None)
        others = {name: one for name, one in teams.items() if one is not trained}
        against = {name: self.paired(one, trained) for name, one in others.items()}
        return result | {"trained_compared_with": against}

    def paired(self, first: Measured, second: Measured) -> dict[str, Any] | None:
        """`second` − `first`, as JSON."""
        test: Paired | None = compare(first.episodes, second.episodes, self.config.evaluation)
        return asdict(test) if test else None
