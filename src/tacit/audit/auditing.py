"""Plays a team with and without each of its parts, where it pays to know more.

Every task is played once as it is. Without a part, what was said before it, and whatever does not
depend on it, is taken from that play; the rest is asked anew. The first rung has few tasks, each
further one twice as many, and only parts whose place is still uncertain play on.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tacit.audit.targets import Target, targets_of
from tacit.audit.telling import Spoken, most_telling
from tacit.audit.worth import Pair, Worth, pairs_of, unsettled, worth_of
from tacit.config import AuditConfig, Cut
from tacit.economy.ledger import PriceTable
from tacit.errors import ConfigError, RunError, SpendCap
from tacit.run.folder import RunFolder
from tacit.types import Episode, Task

FILE, AGAIN = "audit.json", "again.json"
PROBE = 4
"""Tasks of a dry run."""
LEAST = 4
"""The fewest tasks of a first rung."""
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
    ) -> "Again":
        """Play on from one call of an episode, with it and without it, drawing anew."""
        ...


@dataclass(frozen=True, slots=True)
class Again:
    """Plays from one message on: differences in reward, and the tokens they took."""

    differences: list[float]
    tokens: int


async def once(run: RunFolder, key: str, play: Callable[[], Awaitable[Sequence[Pair]]]) -> Again:
    """Plays from one message on, which the folder keeps under this key."""
    known = run.read_json(AGAIN) if (run.path / AGAIN).exists() else {}
    if key in known:
        return Again(**known[key])
    pairs = await play()
    graded = [(one.grade, two.grade) for one, two in pairs]
    found = [one.reward - two.reward for one, two in graded if one and two]
    played = Again(found, sum(paid(pair) for pair in pairs))
    if found:  # else the same command tries again
        run.write_json(AGAIN, known | {key: asdict(played)})
    return played


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
    _rungs: list[int] = field(default_factory=lambda: [1])
    _left: set[str] = field(default_factory=set)
    """Parts that cannot be left out."""
    _notes: list[str] = field(default_factory=list)
    """Why parts are not valued, and messages not shown."""
    _again: int = 0
    """Tokens of plays from single messages on."""

    async def run(self) -> None:
        """Play rung after rung, as far as it is worth it and may be spent."""
        self._rungs = rungs_of(len(self.tasks), self.settings.first)
        while self.settings.tokens and self._rungs[0] >= 2 * LEAST:
            self._rungs.insert(0, self._rungs[0] // 2)
        await self._with_all(self._rungs[0])
        try:
            await self._settle()
        except SpendCap as error:
            if not self.worth:
                raise
            self.ended = str(error)

    async def _settle(self) -> None:
        sizes: dict[str, int] = {}
        going = self._found()
        while going:
            for target in [one for one in self.targets if one.name in going]:
                if over := self._over([target.name], sizes):
                    if not self.worth:
                        raise ConfigError(f"audit.tokens is too little for one part: {over}")
                    self.ended = over
                    return
                size = self._next(target.name, sizes)
                await self._with_all(size)
                await self._without(target, size)
                sizes[target.name] = size
            going = self._going(sizes) | self._found()
            if going:
                tasks = max(sizes.values(), default=0)
                self.say(f"after {tasks} tasks, {len(going)} of {len(self.targets)} parts are open")
        rest = unsettled(self.worth, self.strict, self.settings.margin)
        self.ended = "all tasks are played" if rest else "the order is settled"

    @property
    def strict(self) -> float:
        """The confidence of one look, shared among all rungs, since any may end the audit."""
        return 1 - (1 - self.confidence) / len(self._rungs)

    def _found(self) -> set[str]:
        """Parts that have come up in what was played since."""
        seen = {target.name for target in self.targets} | self._left
        new = [one for one in targets_of(self.base, self.settings) if one.name not in seen]
        self.targets += new
        return {target.name for target in new}

    def _going(self, sizes: Mapping[str, int]) -> set[str]:
        """Who plays on. Up to `first` tasks that is everybody, as far as the tokens reach."""
        every = {one.name for one in self.targets if sizes.get(one.name, 0) < len(self.tasks)}
        small = self._rungs[0] < min(self.settings.first, len(self.tasks))
        if small and not self._over(every, sizes):
            del self._rungs[0]
            return every
        full = [name for name, size in sizes.items() if size == len(self.tasks)]
        return unsettled(self.worth, self.strict, self.settings.margin, full)

    def _next(self, name: str, sizes: Mapping[str, int]) -> int:
        """Tasks of a part's next rung."""
        return next(size for size in self._rungs if size > sizes.get(name, 0))

    async def _with_all(self, size: int) -> None:
        if len(self.base) < size * self.settings.samples:
            self.base = await self.player.play(BASE, self.tasks[:size])

    async def _without(self, target: Target, size: int) -> None:
        recorded = {(one.task_id, one.sample): one for one in self.base}
        cut = frozenset({target.cut})
        try:
            plays = await self.player.play(
                f"without {target.name}", self.tasks[:size], cut, recorded
            )
        except SpendCap:
            raise
        except RunError as error:  # not one play succeeded
            self._drop(target, str(error))
            return
        pairs = pairs_of(self.base, plays)
        if pairs and all(_unchanged(*pair) for pair in pairs):
            self._drop(target)  # all is asked for all the same: only it can answer
            return
        self.without[target.name] = plays
        self.worth[target.name] = worth_of(
            target,
            pairs,
            confidence=self.confidence,
            prices=self.prices,
            failed=sum(one.error is not None for one in plays),
        )

    def _drop(self, target: Target, why: str = "") -> None:
        self.targets.remove(target)
        self._left.add(target.name)
        if why:
            self._note(f"{target.name} is not valued: {why}")

    def _note(self, sentence: str) -> None:
        self._notes.append(sentence)
        self.say(sentence)

    def _over(self, going: Iterable[str], sizes: Mapping[str, int]) -> str | None:
        """Why their next rungs would be too dear, by what the last ones cost; None if they are not.

        A part that was not played yet may take as much as the whole.
        """
        have = len({one.task_id for one in self.base})
        widest = max([have, *(self._next(name, sizes) for name in going)])
        more = paid(self.base) / max(1, have) * (widest - have)
        for name in going:
            size, known = sizes.get(name, 0), paid(self.without.get(name, ()))
            each = known / size if size else self.whole / max(1, have)
            more += each * (self._next(name, sizes) - size)
        return self._too_dear(more)

    @property
    def whole(self) -> int:
        """Tokens of the plays with everything in, also where they were recorded and are free."""
        return sum(one.usage.total for one in self.base)

    def _too_dear(self, more: float) -> str | None:
        limit, spent = self.settings.tokens, self.spent()
        if limit is None or spent + more <= limit:
            return None
        return (
            f"going on would take about {more:,.0f} more tokens, and {spent:,} of "
            f"audit.tokens={limit:,} are spent"
        )

    def spent(self) -> int:
        """Tokens generated and read, without what was taken from earlier plays."""
        return paid(self.base) + sum(map(paid, self.without.values())) + self._again

    async def telling(self) -> list[Spoken]:
        """The messages that helped and harmed most; where agents sample, played on from again."""
        tasks = {task.id: task for task in self.tasks}
        found = most_telling(self.targets, self.base, self.without, self.settings.messages)
        if not self.samples:
            return found
        sure: list[Spoken] = []
        self._again = 0
        for one in found:
            task, times = tasks[one.episode.task_id], self.settings.again
            rest = sum(call.usage.total for call in one.episode.calls[one.call + 1 :])
            if over := self._too_dear(2 * times * rest):
                self._note(f"{len(found) - len(sure)} messages are not played on from: {over}")
                break
            try:
                plays = await self.player.again(task, one.episode, one.call, one.cut, times)
            except SpendCap as error:
                self._note(str(error))
                break
            self._again += plays.tokens
            if plays.differences:
                sure.append(one.confirmed(plays.differences))
            else:
                self._note("a message is not shown: no play from it on could be graded")
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
            "parts": [asdict(one) | {"verdict": one.verdict(self.strict, margin)} for one in order],
            "messages": [one.to_json() for one in messages],
            "notes": [*self._notes, *self._failures()],
            "spent": self.spent(),
            "equal": self.equal(),
            "ended": self.ended,
        }

    def _failures(self) -> Iterator[str]:
        every = {"with all": self.base}
        every |= {f"without {name}": plays for name, plays in self.without.items()}
        for name, plays in every.items():
            for graded, what in (
                (True, "failed, which counts as reward 0"),
                (False, "do not count"),
            ):
                wrong = [one.error for one in plays if one.error and bool(one.grade) == graded]
                if wrong:
                    yield f"{name}, {len(wrong)} of {len(plays)} plays {what}: {wrong[0]}"
        if self.base and not any(one.grade and one.grade.reward for one in self.base):
            yield "with all, every reward is 0, so nothing can be seen to help: check the grader"
        if rest := [one.name for one in self.targets if one.name not in self.worth]:
            yield f"not valued, since it ended before: {', '.join(rest)}"

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


def estimate(audit: Audit, tasks: int, cap: float | None) -> dict[str, Any]:
    """What an audit of so many tasks will take, by the few that were played."""
    played = max(1, len({one.task_id for one in audit.base}))
    base = paid(audit.base) / played
    each = {one.name: audit.whole / played for one in audit.targets}
    each |= {name: paid(plays) / played for name, plays in audit.without.items()}
    first, settings = min(audit.settings.first, tasks), audit.settings
    again = 4 * settings.messages * settings.again * max(each.values(), default=0.0)
    again *= audit.samples / settings.samples
    return {
        "tasks": tasks,
        "first": first,
        "parts": each,
        "base": base,
        "tokens_first": round(first * (base + sum(each.values()))),
        "tokens_most": round(tasks * (base + sum(each.values()))),
        "tokens_again": round(again),
        "money_most": _money(audit, tasks / played),
        "currency": audit.prices.currency if audit.prices else None,
        "limit": settings.tokens,
        "cap": cap,
    }


def _money(audit: Audit, scale: float) -> float | None:
    if audit.prices is None:
        return None
    plays = [*audit.base, *(one for plays in audit.without.values() for one in plays)]
    calls = [call for episode in plays for call in episode.calls if not call.reused]
    return scale * sum(map(audit.prices.cost, calls))
