"""What a search prints: a line for each turn, a table of the candidates, the plan of a dry run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tacit.cli.paired_tests import PAIRED, Compared
from tacit.cli.tables import print_result
from tacit.cli.terminal import Grid, interval, out, percent, print_json
from tacit.config import Config
from tacit.evaluation.statistics import Estimate, holm
from tacit.run.folder import RunFolder
from tacit.search.finishing import WINNER
from tacit.search.halving import kept_of, sizes
from tacit.search.search_state import State, Turn, amount

LEGEND = (
    "Teams with as many `tasks` played the same ones. The accuracy flatters the winner, which was "
    "chosen on them. `cost` is per episode, in the unit of the budget. In `out`, `in 1` left after "
    "rung 1, `last` after the last; `beaten` had a paired interval against the leader below 0. "
    "`new` teams are edited copies of leaders."
)


def turn_line(state: State, turn: Turn) -> str:
    """One sentence about a turn that was judged."""
    kept = turn.kept or []
    best = state.entries[kept[0]]
    accuracy = percent(best.accuracy.mean if best.accuracy else None)
    spent = f"{amount(turn.spent)} of {amount(state.budget)} {state.unit}"
    if turn.kind == "probe":
        return f"probe: {len(turn.teams)} teams on {turn.tasks} tasks; {spent}"
    if turn.kind == "newcomers":
        stay = sum(name in kept for name in turn.teams)
        edits = "; ".join(f"{state.entries[n].parent}: {state.entries[n].edit}" for n in turn.teams)
        return f"new: {len(turn.teams)} edited teams ({edits}), {stay} stay; {spent}"
    return (
        f"rung {len(state.rungs)}: {len(turn.teams)} teams on {turn.tasks} tasks, "
        f"{len(kept)} stay, the best is `{best.name}` with {accuracy} %; {spent}"
    )


def candidates_table(result: Mapping[str, Any]) -> Grid:
    entries = sorted(
        result["entries"].values(),
        key=lambda one: (one["name"] != result["winner"], -one["tasks"], -_accuracy(one).mean),
    )
    rows = [
        [one["name"], str(one["tasks"]), interval(_accuracy(one)), amount(one["cost"]), fate]
        for one in entries
        for fate in [_fate(one, result["winner"])]
    ]
    return Grid(["team", "tasks", "accuracy %\n[interval]", "cost", "out"], rows, legend=LEGEND)


def _accuracy(entry: Mapping[str, Any]) -> Estimate:
    return Estimate(**(entry["accuracy"] or {"mean": 0.0, "low": 0.0, "high": 1.0}))


def _fate(entry: Mapping[str, Any], winner: str) -> str:
    if entry["name"] == winner:
        return "winner"
    new = "new, " if entry["born"] else ""
    why = "beaten " if entry["dropped"] == "beaten" else ""
    return new + (f"{why}in {entry['rung']}" if entry["dropped"] else "last")


def sentences(result: Mapping[str, Any]) -> Iterator[str]:
    """The winner, what it took, and how it did on tasks that the search did not see."""
    spend, unit = result["spend"], result["unit"]
    yield f"winner: {result['winner']} ({result['stopped']})"
    whole, every = amount(spend["first_pool"]), amount(spend["all"])
    yield (
        f"the search took {amount(spend['search'])} of {amount(result['budget'])} {unit}, "
        f"{spend['search'] / max(spend['first_pool'], 1e-12):.0%} of the {whole} that the first "
        f"pool would have taken on all tasks of the last rung ({every} with the edited teams)"
    )
    if check := result["check"]:
        more = f"{amount(spend['check'])} {unit} more"
        yield f"on {check['tasks']} tasks that the search did not see ({more}):"
        for name, tree in check["teams"].items():
            accuracy, said = Estimate(**tree["accuracy"]), tree["generated"]["mean"]
            tokens = f"{said:.1f} tokens said, {tree['read']:.0f} read"
            yield f"  {name}: {interval(accuracy)} %, {tokens}"
        trees = check["winner_compared_with"].items()
        tests = {other: PAIRED.validate_python(tree) for other, tree in trees if tree}
        corrected = holm([max(test.p_mcnemar, test.p_bootstrap) for test in tests.values()])
        for (other, test), p in zip(tests.items(), corrected, strict=True):
            yield str(Compared(result["winner"], other, test, p, len(tests)))
    if (training := result["training"]) and "not_trained" in training:
        yield f"the winner was not trained: {training['not_trained']}"


def show_search(result: Mapping[str, Any], folder: Path, *, as_json: bool, details: bool) -> None:
    """Print a finished search, and the training of its winner."""
    if as_json:
        return print_json(result)
    out.print(candidates_table(result))
    for line in sentences(result):
        out.print(line)
    if "teams" in (result["training"] or {}):
        trained = RunFolder(folder / WINNER)
        out.print(f"\ntrained: {', '.join(result['training']['roles'])}")
        print_result(trained.read_json("summary.json"), trained.path, details=details)


def plan_of(config: Config, state: State, tasks: int, sampled: float) -> dict[str, Any]:
    """What a search will take: by rung, from the cost of each team in a sample."""
    search, samples = config.search, config.evaluation.samples
    costs = {name: entry.cost for name, entry in state.entries.items()}
    mean, before, teams = fmean(costs.values()), 0, len(costs)
    rungs: list[dict[str, Any]] = []
    last = sizes(search, tasks)[-1]
    for size in sizes(search, tasks):
        episodes = teams * (size - before) * samples
        new = search.newcomers if search.edits and size != last else 0
        joined = new * size * samples
        rungs.append(
            {"teams": teams, "new": new, "tasks": size, "episodes": episodes + joined}
            | {"cost": (episodes + joined) * mean}
        )
        teams, before = kept_of(teams, search), size
    return {
        "pool": costs,
        "unit": state.unit,
        "rungs": rungs,
        "expected": sum(one["cost"] for one in rungs),
        "all": sum(costs.values()) * last * samples,
        "budget": search.tokens or search.money,
        "sampled": sampled,
    }


def print_plan(plan: Mapping[str, Any]) -> None:
    pool: Sequence[Sequence[str]] = [[n, amount(cost)] for n, cost in plan["pool"].items()]
    unit = plan["unit"]
    out.print(Grid(["team", f"{unit}\nan episode"], pool, title="The first pool"))
    rows = [
        [str(n), str(r["teams"]), str(r["new"]), str(r["tasks"]), str(r["episodes"]),
         amount(r['cost'])]
        for n, r in enumerate(plan["rungs"], start=1)
    ]  # fmt: skip
    headers = ["rung", "teams", "new", "tasks", "episodes", f"{unit}, about"]
    legend = (
        "This assumes the pool's mean cost: cheap leaders make it less, expensive ones more. `new` "
        "is the most edited teams. The winner's check and training are not included."
    )
    out.print(Grid(headers, rows, title="What the search will take", legend=legend))
    budget = f" of a budget of {amount(plan['budget'])}" if plan["budget"] else ""
    out.print(
        f"about {amount(plan['expected'])}{budget} {unit}; the whole pool on all tasks would take "
        f"{amount(plan['all'])}; this sample took {amount(plan['sampled'])}"
    )
