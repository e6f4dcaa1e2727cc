"""What accuracy costs: the frontier, the time the experiments took, and what is still to do."""

from collections.abc import Mapping
from typing import Any

from experiments.blocks.rows import (
    CONSISTENCY,
    HINT,
    MISSING,
    READ,
    SERIOUS,
    every,
    get,
    percent,
    table,
)
from experiments.catalogue import EXPERIMENTS, Experiment
from experiments.records import Measured, Results, on_shared


def frontier_table(results: Results) -> str:
    """On the problems that all teams were measured on: who is beaten in both, and by whom."""
    teams = on_shared(*every(results, SERIOUS))
    rows, best = [], -1.0
    for team in sorted(teams, key=lambda t: (t.generated, -t.accuracy.mean)):
        on = team.accuracy.mean > best
        best = max(best, team.accuracy.mean)
        rows.append(
            (
                team.label,
                percent(team.accuracy.mean),
                f"{team.generated:.0f}",
                f"{team.path:.0f}",
                "yes" if on else "",
            )
        )
    return table(("team", "accuracy %", "generated", "critical path", "on the frontier"), rows)


def price_of_points(results: Results) -> str:
    """What self-consistency pays for every point it is ahead."""
    other = get(results, CONSISTENCY)
    said = [_price(team, other) for team in every(results, (HINT, READ)) if other]
    return "\n".join(said) or MISSING


def _price(team: Measured, other: Measured) -> str:
    ahead = 100 * (other.accuracy.mean - team.accuracy.mean)
    more = other.generated - team.generated
    if ahead <= 0:
        return (
            f"Self-consistency is not ahead: {-ahead:.1f} points behind the {team.label} at "
            f"{other.generated / team.generated:.1f} times its tokens."
        )
    return (
        f"Self-consistency is {ahead:.1f} points ahead of the {team.label} and pays "
        f"{more:.0f} tokens a problem more for it: {more / ahead:.0f} tokens for every point."
    )


def time_table(results: Results) -> str:
    rows = []
    for name, runs in results.runs.items():
        for seed, run in runs.items():
            seconds = (run.get("training") or {}).get("seconds", {})
            calls = run["calls"]
            rows.append(
                (
                    f"{name}, seed {seed}",
                    str((run.get("training") or {}).get("steps", "")),
                    *(f"{seconds[k]:.0f}" if k in seconds else "" for k in PHASES),
                    f"{sum(one['seconds'] for one in run['evaluations'].values()):.0f}",
                    f"{sum(call['seconds'] for call in calls):.0f}",
                    ", ".join(sorted({call["device"] for call in calls})),
                    max((call["date"] for call in calls), default=""),
                )
            )
    head = (
        "run", "steps", "play s", "update s", "validation s", "test s", "whole process s", "on",
        "date",
    )  # fmt: skip
    return table(head, rows)


PHASES = ("rollout", "update", "evaluate")


def tried_table(results: Results) -> str:
    """Variants that were tried on the way, and how they did on validation tasks."""
    rows = []
    for name, runs in results.runs.items():
        for seed, run in runs.items():
            if "+" not in name or not run.get("training"):
                continue
            held_out = run["training"]["validation"]
            best = held_out["step"].index(run["training"]["best_step"])
            rows.append(
                (
                    f"{name.partition('+')[0]}, seed {seed}",
                    " ".join(f"`{o}`" for o in run["overrides"]) or name.partition("+")[2],
                    str(run["training"]["steps"]),
                    percent(held_out["accuracy"][0]),
                    f"{percent(held_out['accuracy'][best])} at step {held_out['step'][best]}",
                    f"{held_out['tokens'][0]:.0f} → {held_out['tokens'][best]:.0f}",
                )
            )
    head = (
        "variant of", "changed", "steps", "validation %, untrained", "best", "generated tokens",
    )  # fmt: skip
    return table(head, rows)


def pending(results: Results, item: str) -> str:
    """What of a section was not run, with its command and what it would take."""
    lines = []
    for one in EXPERIMENTS.values():
        if one.item != int(item):
            continue
        runs = results.seeds(one.name)
        missing = [seed for seed in one.seeds if seed not in runs or _unmeasured(one, runs[seed])]
        if not missing:
            continue
        begun = [
            f"seed {seed} lacks {', '.join(_unmeasured(one, runs[seed]))}"
            for seed in missing
            if seed in runs
        ]
        seeds = ", ".join(map(str, missing))
        lines.append(
            f"- {one.title} (seed {seeds}): `python -m experiments {one.name} --seed "
            f"{missing[0]} --model MODEL --data DATA`, about {one.minutes:.0f} GPU minutes a seed"
            f"{'; ' if begun else ''}{'; '.join(begun)}."
        )
    return "\n".join(["Not run, or not to the end:", "", *lines]) if lines else ""


def _unmeasured(experiment: Experiment, run: Mapping[str, Any]) -> list[str]:
    return [name for name in experiment.evaluations if name not in run["evaluations"]]
