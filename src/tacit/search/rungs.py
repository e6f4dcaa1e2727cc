"""The search itself, turn by turn: a probe, then rungs of more tasks and fewer candidates.

After a rung, edited versions of the leaders play the tasks of that rung and take the places of
those they outdo. The cost of every turn is predicted from the costs seen, and a turn that does not
fit the budget is not begun. A killed search repeats no decision: the turn under way is played to
its end, with the episodes that are there.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from tacit.config import Config
from tacit.errors import RunError
from tacit.search.candidate_player import Player, Spent
from tacit.search.candidates import Candidate, Pool, size_of
from tacit.search.edits import newcomers
from tacit.search.halving import CROWDED, LEAST, judge, kept_of, sizes
from tacit.search.search_state import Entry, State, Turn, amount, candidate_of, entry_of

PROBE = 4
"""Tasks that every candidate of the first pool plays before any cost is known."""
SLACK = 1.1
"""How much dearer than its candidates were so far a rung may turn out, and still fit."""
SURPRISE = 1.5
"""How much dearer than guessed an edited team may turn out."""


class Search:
    """Plays turn after turn until the last rung, or until the next does not fit the budget."""

    def __init__(
        self,
        config: Config,
        state: State,
        player: Player,
        tasks: int,
        *,
        save: Callable[[], None] = lambda: None,
        on_turn: Callable[[Turn], None] = lambda turn: None,
        on_judged: Callable[[Turn], None] = lambda turn: None,
    ) -> None:
        self.config, self.state, self.player = config, state, player
        self.sizes = sizes(config.search, tasks)
        self._save, self._on_turn, self._on_judged = save, on_turn, on_judged
        everyone = (candidate_of(entry, config) for entry in state.entries.values())
        self.pool = Pool(config, everyone)

    @property
    def candidates(self) -> dict[str, Candidate]:
        return {one.name: one for one in self.pool.candidates}

    async def run(self) -> None:
        """To the winner. `state.stopped` says why it ended."""
        while not self.state.stopped:
            turn = self._under_way() or self._next()
            if turn is None:
                break
            try:
                await self._play(turn)
            except Spent as reached:
                self._give_up(turn, str(reached))
        self._crown()
        self._save()

    def _under_way(self) -> Turn | None:
        last = self.state.turns[-1] if self.state.turns else None
        return last if last and last.kept is None else None

    def _next(self) -> Turn | None:
        """The next turn, written down before it is played; None when the search is over."""
        turns, names = self.state.turns, self.state.alive
        if not turns:
            return self._begin(Turn(kind="probe", tasks=min(PROBE, self.sizes[0]), teams=names))
        done = len(self.state.rungs)
        if done == len(self.sizes):
            self.state.stopped = "the last rung is played"
            return None
        if turns[-1].kind == "rung" and (new := self._newcomers(turns[-1])):
            return self._begin(new)
        if done and len(names) < LEAST:
            self.state.stopped = "one team is left"
            return None
        turn = Turn(kind="rung", tasks=self.sizes[done], teams=names)
        if SLACK * self.expected(turn) > self.left:
            self.state.stopped = self._too_dear(turn)
            return None
        return self._begin(turn)

    def _begin(self, turn: Turn) -> Turn:
        self.state.turns.append(turn)
        self._save()
        return turn

    async def _play(self, turn: Turn) -> None:
        new = turn.kind == "newcomers"
        self.player.begin(self.expected(turn) if turn.kind == "rung" else None)
        self._on_turn(turn)
        failed = {}
        for name in turn.teams:
            if why := await self.player.play(self.candidates[name], turn.tasks):
                failed[name] = why
        if len(failed) == len(turn.teams) and not new:
            raise RunError(failed[turn.teams[0]])
        self._judge(turn)

    def _judge(self, turn: Turn) -> None:
        search, settings = self.config.search, self.config.evaluation
        before = [] if turn.kind != "newcomers" else self.state.alive
        names = [*before, *turn.teams]
        results = {name: self.player.result(name, turn.tasks) for name in names}
        rung = len(self.state.rungs) + (turn.kind == "rung")
        keep = {
            "probe": len(names),
            "rung": len(names) if rung == len(self.sizes) else kept_of(len(names), search),
            "newcomers": max(LEAST, len(before)),
        }[turn.kind]
        judged = judge(results, keep, search, settings)
        kept = list(results) if turn.kind == "probe" else list(judged.kept)
        for name in names:
            entry = self._record(name, turn.tasks, rung, results[name].cost)
            entry.behind = judged.behind.get(name)
            if name not in kept:
                crowded = turn.kind == "newcomers" and name in turn.teams
                entry.dropped = CROWDED if crowded else judged.dropped[name]
        turn.kept, turn.spent = kept, self.player.spent
        self._on_judged(turn)
        self._save()

    def _record(self, name: str, tasks: int, rung: int, cost: float) -> Entry:
        numbers, entry = self.player.numbers(name, tasks), self.state.entries[name]
        entry.tasks, entry.accuracy = numbers.tasks, numbers.accuracy
        entry.generated, entry.read = numbers.generated, numbers.read
        entry.rung, entry.cost = rung, cost
        return entry

    def _newcomers(self, rung: Turn) -> Turn | None:
        """Edited versions of the leaders, as many as leave enough for the rungs to come."""
        search = self.config.search
        if not search.newcomers or not search.edits:
            return None
        room = self.left - self._ladder()
        leaders = [self.candidates[name] for name in self.state.alive[: search.newcomers]]
        found: list[str] = []
        number = len(self.state.turns)
        for one in newcomers(leaders, self.pool, self.config, search.newcomers, number):
            room -= self.guess(one) * rung.tasks * self.config.evaluation.samples
            if room < 0:
                break
            self.state.entries[one.name] = entry_of(one, number)
            found.append(one.name)
        joined = [one for one in self.pool.candidates if one.name in self.state.entries]
        self.pool = Pool(self.config, joined)  # without those that there is no room for
        return Turn(kind="newcomers", tasks=rung.tasks, teams=found) if found else None

    @property
    def left(self) -> float:
        return self.state.budget - self.player.spent

    def expected(self, turn: Turn) -> float:
        """What a turn will cost, from what its candidates have cost so far."""
        samples = self.config.evaluation.samples
        total = 0.0
        for name in turn.teams:
            entry = self.state.entries[name]
            cost = entry.cost or self.guess(self.candidates[name])
            total += cost * max(0, turn.tasks - entry.tasks) * samples
        return total

    def _ladder(self) -> float:
        """What the rungs to come will cost, if those that stay cost as much as those that go."""
        names, before, total = self.state.alive, 0, 0.0
        teams, samples = len(names), self.config.evaluation.samples
        mean = fmean(self.state.entries[name].cost for name in names)
        for size in self.sizes[len(self.state.rungs) :]:
            before = before or max(self.state.entries[name].tasks for name in names)
            total += teams * mean * (size - before) * samples
            teams, before = kept_of(teams, self.config.search), size
        return total

    def guess(self, one: Candidate) -> float:
        """The cost of a team that has not been played, from its parent's and their sizes."""
        if one.parent is None:
            return 0.0
        parent = self.candidates[one.parent]
        growth = max(1.0, size_of(one.team) / size_of(parent.team))
        return SURPRISE * growth * self.state.entries[parent.name].cost

    def _too_dear(self, turn: Turn) -> str:
        need, left = amount(self.expected(turn)), amount(max(0.0, self.left))
        return (
            f"the next rung, {len(turn.teams)} teams on {turn.tasks} tasks, would take about "
            f"{need} of the {left} {self.state.unit} left"
        )

    def _give_up(self, turn: Turn, why: str) -> None:
        """The budget ended a turn: its candidates stay as the last whole rung left them."""
        self.state.turns.remove(turn)
        for name in turn.teams if turn.kind == "newcomers" else ():
            self.state.entries[name].dropped = why
        self.state.stopped = f"{why}; the turn under way does not count"

    def _crown(self) -> None:
        """The first of those that are left; then the best of the first pool among them."""
        if not self.state.rungs:
            budget = f"the budget of {amount(self.state.budget)} {self.state.unit}"
            raise RunError(
                f"no rung fits {budget}: {self.state.stopped}; raise search.tokens or "
                f"search.money, lower search.first, or leave out {self._dearest()}"
            )
        self.state.winner = self.state.alive[0]
        first = [name for name, entry in self.state.entries.items() if not entry.born]
        self.state.best_of_first = self._furthest(first)

    def _furthest(self, names: Sequence[str]) -> str:
        """Of these, the one that got furthest, and was nearest to the leader there."""
        order = {name: place for place, name in enumerate(self.state.alive)}
        entries = self.state.entries

        def merit(name: str) -> tuple[float, ...]:
            one = entries[name]
            accuracy = one.accuracy.mean if one.accuracy else 0.0
            return (-order[name], 0.0, 0.0) if name in order else (-1e9, one.rung, accuracy)

        return max(names, key=merit)

    def _dearest(self) -> str:
        """By what was played, also in a turn that the budget cut off."""
        costs = {n: self.player.result(n, self.sizes[0]).cost for n in self.state.entries}
        name = max(costs, key=lambda name: costs[name])
        return f"`{name}`, the dearest so far" if costs[name] else "dear teams"
