"""Plays a team with and without each of its parts, where it pays to know more.

Every task is played once as it is. Without a part, what was said before it, and whatever does not
depend on it, is taken from that play; the rest is asked anew. The first rung has few tasks, each
further one twice as many, and only parts whose place is still uncertain play on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tacit.audit.messages import Spoken, most_telling
from tacit.audit.targets import Target, targets_of
from tacit.audit.worth import Worth, pairs_of, unsettled, worth_of
from tacit.config import AuditConfig, Cut
from tacit.economy.ledger import PriceTable
from tacit.types import Episode, Task

BASE = "audited"
"""The name of the plays with everything in."""


class Player(Protocol):
    """Plays tasks once for each sample, and keeps what it played."""

    async def play(
        self,
        name: str,
        tasks: Sequence[Task],
        without: frozenset[Cut] = frozenset(),
        recorded: Mapping[tuple[str, int], Episode] | None = None,
    ) -> list[Episode]: ...

    async def again(
        self, task: Task, episode: Episode, call: int, without: Cut, times: int
    ) -> list[tuple[Episode, Episode]]:
        """Play on from one call of an episode, with it and without it, drawing anew."""
        ...


@dataclass(slots=True, kw_only=True)
class Audit:
    """The state of an audit, all of which can be read again from what was played."""

    player: Player
    tasks: Sequence[Task]
    settings: AuditConfig
    confidence: float = 0.95
    prices: PriceTable | None = None
    samples: bool = False
    """Whether some agent samples, so that a single play shows little."""
    say: Callable[[str], None] = lambda sentence: None
    base: list[Episode] = field(default_factory=list)
    without: dict[str, list[Episode]] = field(default_factory=dict)
    worth: dict[str, Worth] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    ended: str = ""

    async def run(self) -> None:
        sizes: dict[str, int] = {}
        rungs = rungs_of(len(self.tasks), self.settings.first)
        await self._with_all(rungs[0])
        self.targets = targets_of(self.base, self.settings)
        going = {target.name for target in self.targets}
        while going:
            for target in list(self.targets):
                if target.name in going:
                    size = next(n for n in rungs if n > sizes.get(target.name, 0))
                    await self._with_all(size)
                    await self._without(target, size)
                    sizes[target.name] = size
            full = [name for name, size in sizes.items() if size == len(self.tasks)]
            going = unsettled(self.worth, self.confidence, self.settings.margin, full)
            if going and (over := self._over(going, sizes, rungs)):
                self.ended = over
                return
            if going:
                self.say(f"{len(going)} of {len(self.targets)} parts are not settled yet")
        rest = unsettled(self.worth, self.confidence, self.settings.margin)
        self.ended = "all tasks are played" if rest else "the order is settled"

    async def _with_all(self, size: int) -> None:
        if len(self.base) < size * self.settings.samples:
            self.base = await self.player.play(BASE, self.tasks[:size])

    async def _without(self, target: Target, size: int) -> None:
        recorded = {(one.task_id, one.sample): one for one in self.base}
        cut = frozenset({target.cut})
        plays = await self.player.play(f"without {target.name}", self.tasks[:size], cut, recorded)
        pairs = pairs_of(self.base, plays)
        if pairs and target.kind == "agent" and all(_unchanged(*pair) for pair in pairs):
            self.targets.remove(target)  # it is asked all the same: only it can answer
            return
        self.without[target.name] = plays
        self.worth[target.name] = worth_of(
            target,
            pairs,
            confidence=self.confidence,
            prices=self.prices,
            failed=sum(one.grade is None for one in plays),
        )

    def _over(
        self, going: Iterable[str], sizes: Mapping[str, int], rungs: Sequence[int]
    ) -> str | None:
        """Why the next rung would be too dear, by what the last ones cost; None if it is not."""
        if self.settings.tokens is None:
            return None
        spent, largest = self.spent(), max(sizes.values())
        more, widest = 0.0, largest
        for name in going:
            size = next(n for n in rungs if n > sizes[name])
            more += paid(self.without[name]) * (size - sizes[name]) / sizes[name]
            widest = max(widest, size)
        more += paid(self.base) * (widest - largest) / largest
        if spent + more <= self.settings.tokens:
            return None
        return (
            f"the next rung would take about {more:,.0f} more tokens, and {spent:,} of "
            f"audit.tokens={self.settings.tokens:,} are spent"
        )

    def spent(self) -> int:
        """Tokens generated and read, without what was taken from earlier plays."""
        return paid(self.base) + sum(map(paid, self.without.values()))

    async def telling(self) -> list[Spoken]:
        """The messages that helped and harmed most; where agents sample, played on from again."""
        tasks = {task.id: task for task in self.tasks}
        found = most_telling(self.targets, self.base, self.without, self.settings.messages)
        if not self.samples:
            return found
        sure = []
        for one in found:
            plays = await self.player.again(
                tasks[one.episode.task_id], one.episode, one.call, one.cut, self.settings.again
            )
            sure.append(one.confirmed(plays))
        return sorted((one for one in sure if one.value), key=lambda one: -one.value)

    def to_json(self, messages: Sequence[Spoken] = ()) -> dict[str, Any]:
        order = sorted(self.worth.values(), key=lambda one: -one.value.mean)
        margin = self.settings.margin
        graded = [one.grade.reward for one in self.base if one.grade]
        return {
            "reward": sum(graded) / len(graded) if graded else None,
            "tasks": len({one.task_id for one in self.base}),
            "samples": self.settings.samples,
            "failed": len(self.base) - len(graded),
            "confidence": self.confidence,
            "parts": [asdict(one) | {"verdict": one.verdict(margin)} for one in order],
            "messages": [one.to_json() for one in messages],
            "spent": self.spent(),
            "equal": self.equal(),
            "ended": self.ended,
        }

    def equal(self) -> int:
        """About what it would have taken to play every part on as many tasks as the longest."""
        most = max((one.tasks for one in self.worth.values()), default=0)
        each = (
            paid(self.without[name]) * most / max(1, one.tasks) for name, one in self.worth.items()
        )
        return round(paid(self.base) + sum(each))


def _unchanged(whole: Episode, other: Episode) -> bool:
    same = len(whole.calls) == len(other.calls)
    return same and all(call.reused for call in other.calls)


def rungs_of(tasks: int, first: int) -> list[int]:
    """Numbers of tasks: `first`, twice as many, and so on up to all."""
    rungs = [min(first, tasks)]
    while rungs[-1] < tasks:
        rungs.append(min(2 * rungs[-1], tasks))
    return rungs


def paid(episodes: Iterable[Episode]) -> int:
    """Tokens generated and read in these episodes' own calls."""
    return sum(
        call.usage.total for episode in episodes for call in episode.calls if not call.reused
    )
