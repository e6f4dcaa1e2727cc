"""How often a search finds the best team, and at what cost, where both are planted.

    python benchmarks/search.py --out benchmarks/results/search.json
    python benchmarks/search.py --run runs/pocket-search --out benchmarks/results/search.json

Every seed plants another accuracy and cost for each of the shipped topologies and for every edit of
them, and draws which tasks each team solves; teams find the same tasks hard. Nothing is played, but
the search decides as it does in earnest. It is compared with playing all teams on all tasks, and
with spending as much as the search did on all teams alike. No model is asked. The second command
records a search that was run; docs/search.md shows both as tables.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.config import Config, TeamConfig
from tacit.config.file import parse_config
from tacit.engine.base import derive_seed
from tacit.evaluation.statistics import wilson
from tacit.search.candidate_player import Numbers, Spent
from tacit.search.candidates import Candidate, first_candidates, size_of, title_of
from tacit.search.halving import Result, ranked, sizes
from tacit.search.rungs import Search
from tacit.search.search_state import State, entry_of

NEAR = 0.01
"""A team this near to the best of the first pool counts as found."""
TASKS = 1024
ALIKE = 0.5
"""Correlation of what two teams find hard."""


def config_of(seed: int, **search: Any) -> Config:
    actor, hinter = {"max_tokens": 16}, {"max_tokens": 80}
    tree = {
        "seed": seed,
        "team": {"topology": "solo", "agents": {"actor": actor}},
        "teams": {"hint": {"topology": "hint_actor", "agents": {"hinter": hinter, "actor": actor}}},
        "evaluation": {"resamples": 300},
        "search": search,
    }
    return parse_config(tree)


@dataclass(frozen=True, slots=True)
class Planted:
    """The truth about every team, by seed."""

    seed: int
    pool: frozenset[str]
    """Teams that are as good as their topology is; edits of them are better or worse by chance."""

    @classmethod
    def of(cls, seed: int, pool: Sequence[Candidate]) -> "Planted":
        return cls(seed, frozenset(title_of(one.team, usual="pocket") for one in pool))

    def accuracy(self, team: TeamConfig) -> float:
        """Between 0.2 and 0.7 by topology; an edit moves it by some points."""
        base = 0.2 + 0.5 * self._draws(f"{team.topology} accuracy").random()
        name = title_of(team, usual="pocket")
        moved = 0.0 if name in self.pool else self._draws(name).normal()
        return float(np.clip(base + 0.03 * moved, 0.02, 0.98))

    def cost(self, team: TeamConfig) -> float:
        """From 30 to 1,000 tokens by topology, and more for more rounds and agents."""
        dear = self._draws(f"{team.topology} cost").random()
        return float(30 * 33**dear * size_of(team) ** 0.5)

    def right(self, team: TeamConfig, tasks: int) -> list[float]:
        """Which of the first tasks the team solves."""
        own = self._draws(f"{title_of(team, usual='pocket')} tasks").normal(size=TASKS)
        hard = ALIKE**0.5 * _difficulty(self.seed) + (1 - ALIKE) ** 0.5 * own
        solved = hard[:tasks] < NormalDist().inv_cdf(self.accuracy(team))
        return [float(one) for one in solved]

    def _draws(self, what: str) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.seed, what))


@cache
def _difficulty(seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=TASKS)


@dataclass(slots=True)
class PlantedPlayer:
    """Plays candidates by their planted truth."""

    truth: Planted
    budget: float
    spent: float = 0.0
    _teams: dict[str, TeamConfig] = field(default_factory=dict)
    _played: dict[str, int] = field(default_factory=dict)

    def begin(self, expected: float | None) -> None:
        """Every turn is played alike."""

    async def play(self, one: Candidate, tasks: int) -> str | None:
        self._teams[one.name] = one.team
        new = max(0, tasks - self._played.get(one.name, 0))
        if (cost := new * self.truth.cost(one.team)) > self.budget - self.spent:
            raise Spent("the search's budget allows no further episode")
        self.spent += cost
        self._played[one.name] = max(tasks, self._played.get(one.name, 0))
        return None

    def result(self, name: str, tasks: int) -> Result:
        return result_of(self.truth, self._teams[name], tasks)

    def numbers(self, name: str, tasks: int) -> Numbers:
        one = self.result(name, tasks)
        accuracy = wilson(sum(one.right.values()), tasks)
        return Numbers(tasks, accuracy, one.cost, 0.0)


def result_of(truth: Planted, team: TeamConfig, tasks: int) -> Result:
    right = {str(n): value for n, value in enumerate(truth.right(team, tasks))}
    return Result(right, dict.fromkeys(right, truth.cost(team)))


async def searched(seed: int, share: float = 1.0, **settings: Any) -> dict[str, Any]:
    """One search for a share of what all would cost, and the choice that other ways would make."""
    config = config_of(seed, **settings)
    pool = first_candidates(config)
    truth = Planted.of(seed, pool)
    last = sizes(config.search, TASKS)[-1]
    each = sum(truth.cost(one.team) for one in pool)
    player = PlantedPlayer(truth, budget=share * each * last)
    state = State(unit="tokens", budget=player.budget, start=pool[0].name)
    state.entries = {one.name: entry_of(one, born=0) for one in pool}
    search = Search(config, state, player, TASKS)
    await search.run()
    assert state.winner
    best = max(truth.accuracy(one.team) for one in pool)
    chosen = {
        "search": search.candidates[state.winner].team,
        "all teams, all tasks": _best(truth, pool, last, config),
        "as much on all alike": _best(truth, pool, max(1, int(player.spent / each)), config),
    }
    return {
        "behind": {way: best - truth.accuracy(team) for way, team in chosen.items()},
        "share": player.spent / (each * last),
        "within": player.spent <= player.budget,
        "rungs": len(state.rungs),
        "edited": bool(state.entries[state.winner].born),
    }


def _best(truth: Planted, pool: Sequence[Candidate], tasks: int, config: Config) -> TeamConfig:
    results = {one.name: result_of(truth, one.team, tasks) for one in pool}
    first = ranked(results, config.search, config.evaluation)[0][0]
    return next(one.team for one in pool if one.name == first)


def summed_up(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    ways = runs[0]["behind"]
    return {
        "seeds": len(runs),
        "found": {w: fmean(r["behind"][w] <= NEAR for r in runs) for w in ways},
        "points_behind": {w: 100 * fmean(r["behind"][w] for r in runs) for w in ways},
        "share_of_all": fmean(run["share"] for run in runs),
        "largest_share": max(run["share"] for run in runs),
        "edited_winners": fmean(run["edited"] for run in runs),
        "within_budget": all(run["within"] for run in runs),
    }


def planted_table(record: dict[str, Any]) -> str:
    """For docs/search.md."""
    rows = [
        "| search | found % | all teams, all tasks | as much on all alike | points behind the best "
        "| share of the cost of all |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, one in record["planted"].items():
        found = " | ".join(f"{100 * share:.1f}" for share in one["found"].values())
        behind = " / ".join(f"{points:.1f}" for points in one["points_behind"].values())
        rows.append(f"| {name} | {found} | {behind} | {one['share_of_all']:.0%} |")
    return "\n".join(rows)


def run_table(record: dict[str, Any]) -> str:
    """Likewise: the candidates, best first, then the winner on other tasks."""
    run = record["run"]
    rows = ["| team | tasks | accuracy % [95 %] | tokens | out |", "|---|---:|---:|---:|---|"]
    entries = sorted(
        run["entries"].values(),
        key=lambda one: (one["name"] != run["winner"], -one["tasks"], -one["accuracy"]["mean"]),
    )
    for one in entries:
        left = one["dropped"] and f"rung {one['rung']}: {one['dropped']}"
        fate = "winner" if one["name"] == run["winner"] else left or "last rung"
        accuracy = _interval(one["accuracy"])
        rows.append(f"| {one['name']} | {one['tasks']} | {accuracy} | {one['cost']:.0f} | {fate} |")
    rows += [
        "",
        "| on the check's tasks | accuracy % [95 %] | said | read |",
        "|---|---:|---:|---:|",
    ]
    trained = {f"{run['winner']}, trained": run["training"]["teams"]["trained"]}
    for name, one in (run["check"]["teams"] | trained).items():
        said = f"{one['generated']['mean']:.1f} | {one['read']:.0f}"
        rows.append(f"| {name} | {_interval(one['accuracy'])} | {said} |")
    return "\n".join(rows)


def _interval(one: dict[str, float]) -> str:
    return f"{100 * one['mean']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"


def recorded(run: Path) -> dict[str, Any]:
    """A search's own file, without what its config says already."""
    whole = json.loads((run / "search.json").read_text(encoding="utf-8"))
    for entry in whole["entries"].values():
        del entry["team"]
    return dict(whole)


SETTINGS: dict[str, dict[str, Any]] = {
    "half the cost of all": {"share": 0.5},
    "without edits": {"share": 0.5, "newcomers": 0},
    "a third of it": {"share": 0.33},
    "first 32, half": {"share": 0.5, "first": 32},
    "eta 3, 3 rungs, half": {"share": 0.5, "eta": 3, "rungs": 3},
}


def planted(seeds: int) -> dict[str, Any]:
    found = {}
    for name, settings in SETTINGS.items():
        runs = [asyncio.run(searched(seed, **settings)) for seed in range(seeds)]
        found[name] = summed_up(runs)
        print(name, json.dumps(found[name]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--run", type=Path, help="Record this search instead.")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    new = {"run": recorded(given.run)} if given.run else {"planted": planted(given.seeds)}
    if given.out:
        known = json.loads(given.out.read_text()) if given.out.exists() else {}
        whole = known | {"date": str(date.today()), "near": NEAR} | new
        given.out.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
