"""Measures teams in a run folder and compares them, for `eval`, `compare` and `train` alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit.config import Config, Cut
from tacit.economy.ledger import PriceTable
from tacit.evaluation.measure import Summary, compare, evaluate_team, frontier, summarise
from tacit.evaluation.statistics import Paired
from tacit.evaluation.variants import reworded, trained_alone
from tacit.grading import Grader, grade
from tacit.rollout.play import NO_CAP, Cap
from tacit.run.folder import ALONE, REWORDED, SPEAKING, WITHOUT, RunFolder
from tacit.run.opening import Variants
from tacit.team.roster import Roster
from tacit.types import Episode, Task

Listen = Callable[[str, int], Callable[[Episode], None]]
"""Given a team's name and number of episodes, returns what to call with each episode."""
NOT_PLAYED = {
    "speaking": "needs weights that are still loaded",
    "alone": "it needs trained weights of the answering agent's model",
    "reworded": "set evaluation.reworded=true; it needs a frozen agent",
}
"""Default reasons why a play of the tasks is missing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One team on the held-out tasks."""

    episodes: Sequence[Episode]
    variants: Variants = field(default_factory=Variants)
    without: Sequence[Episode] = ()
    """The same tasks played without the helpers."""
    others: Mapping[str, Sequence[Episode]] = field(default_factory=dict)
    """The same tasks played in other ways, by their name in `Talk.plays`."""


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

    async def team(self, name: str, roster: Roster, variants: Variants | None = None) -> Measured:
        """Play what the folder does not hold yet, including the other ways."""
        variants = variants or Variants()
        episodes = await self._play(name, roster, samples=self.config.evaluation.samples)
        without = await self.without(name, roster, variants.helpers)
        return Measured(episodes, variants, without, await self.others(name, roster, variants))

    def played(self, name: str) -> list[Episode]:
        """A team's episodes in the folder, in task order."""
        order = {task.id: place for place, task in enumerate(self.tasks)}
        found = [episode for episode in self.run.episodes(name) if episode.task_id in order]
        return sorted(found, key=lambda episode: (order[episode.task_id], episode.sample))

    async def without(self, name: str, roster: Roster, helpers: frozenset[str]) -> list[Episode]:
        """Every task once without the helpers; nothing if there are none."""
        if not helpers:
            return []
        return await self._play(f"{name}{WITHOUT}", roster, samples=1, without=Cut.of(helpers))

    async def others(
        self, name: str, roster: Roster, variants: Variants
    ) -> dict[str, Sequence[Episode]]:
        """The plays that a team's talk is measured against, except `without`."""
        speakers, settings = variants.speakers, self.config.evaluation
        found: dict[str, Sequence[Episode]] = {}
        if speakers and "speaking" not in variants.missing:
            found["speaking"] = await self._play(
                f"{name}{SPEAKING}", roster, samples=settings.samples, speaking=speakers
            )
        if "silent" not in variants.missing and (alone := trained_alone(roster, speakers)):
            found["alone"] = await self._play(f"{name}{ALONE}", alone, samples=1)
        if speakers and settings.reworded and (other := reworded(roster, speakers)):
            title, samples = f"{name}{REWORDED}", settings.samples
            found["reworded"] = await self._play(title, other, samples=samples)
        return found

    async def _play(
        self,
        name: str,
        roster: Roster,
        *,
        samples: int,
        without: frozenset[Cut] = frozenset(),
        speaking: frozenset[str] = frozenset(),
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
            without=without,
            speaking=speaking,
        )

    def summary(self, name: str, one: Measured) -> Summary:
        compared = one.variants.speakers and "silent" not in one.variants.missing
        silent = {"silent": one.without} if compared else {}
        missing = {**NOT_PLAYED, **one.variants.missing} if one.variants.speakers else {}
        return summarise(
            name,
            one.episodes,
            self.tasks,
            self.config.evaluation,
            self.prices,
            one.without,
            one.variants.helpers,
            silent | dict(one.others),
            {play: why for play, why in missing.items() if play not in one.others},
        )

    def compared(self, teams: Mapping[str, Measured], first: str | None) -> dict[str, Any]:
        """The teams' part of summary.json: each summarised, and tested against the first."""
        summaries = [self.summary(name, one) for name, one in teams.items()]
        return {
            "teams": {summary.team: summary.to_json() for summary in summaries},
            "frontier": frontier(summaries),
            "frontier_with_read": frontier(summaries, read=True),
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
