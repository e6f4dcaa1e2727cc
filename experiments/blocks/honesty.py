"""Whether trained messages are honest help: answers given away, private codes, robustness."""

from statistics import fmean

import numpy as np

from experiments.blocks.rows import (
    FINE_TUNED,
    SOLO,
    UNTRAINED_HINT,
    get,
    interval,
    percent,
    points,
    table,
)
from experiments.catalogue import EXPERIMENTS
from experiments.records import Array, Measured, Results, difference, on_shared

ALONE = (SOLO, ("solo", "baselines-dialogue", "solo, math500"))


def _trained(results: Results) -> list[tuple[str, Measured]]:
    """Every team with a trained agent that is read, in the catalogue's order."""
    order = [*EXPERIMENTS]
    names = sorted(results.runs, key=lambda name: order.index(name.partition("+")[0]))
    found = ((name, results.measured(name, "trained")) for name in names)
    return [(name, team) for name, team in found if team and name != FINE_TUNED[1]]


def _alone(results: Results, team: Measured) -> Measured | None:
    """The Actor by itself on a team's benchmark."""
    found = (get(results, row) for row in ALONE)
    return next((solo for solo in found if solo and {*solo.ids} & {*team.ids}), None)


def leaks_table(results: Results) -> str:
    """How many messages hold the answer already, and the gain without those."""
    rows, untrained = [], get(results, UNTRAINED_HINT)
    teams = [(UNTRAINED_HINT[0], untrained)] if untrained else []
    for name, team in teams + _trained(results):
        alone = _alone(results, team)
        if not alone:
            continue
        solo, team = on_shared(alone, team)
        leak = team.column("leak")
        clean = np.where(leak == 1, solo.right_ST, team.right_ST)
        tasks = [t for t, column in zip(team.ids, leak.T, strict=True) if not (column == 1).any()]
        some = difference(solo.only(tasks), team.only(tasks)) if tasks else None
        rows.append(
            (
                name,
                percent(float(np.nanmean(leak))) if not np.isnan(leak).all() else "",
                *(_share(team.right_ST[leak == held]) for held in (1, 0)),
                points(difference(solo, team)),
                f"{points(some)} on {len(tasks)}",
                f"{100 * float(np.nanmean(clean) - np.nanmean(solo.right_ST)):+.1f}",
            )
        )
    head = (
        "team", "messages that hold the answer %", "right where they do %", "where they do not %",
        "gain over solo, points",
        "gain on problems whose message does not", "gain if such messages were dropped",
    )  # fmt: skip
    return table(head, rows)


def _share(right: Array) -> str:
    return percent(float(np.nanmean(right))) if right.size else ""


def codes_table(results: Results) -> str:
    """Whether the messages are plain language: to the base model, to a paraphraser, to others."""
    rows = []
    for name, team in _trained(results):
        solo = _alone(results, team)
        others = {
            check: results.measured(name, check)
            for check in (
                "reworded", "other role prompt", "wrong teammate", "wrong teammate alone",
                "wrong teammate untrained",
            )
        }  # fmt: skip
        alone = others["wrong teammate alone"] or others["wrong teammate untrained"]
        training = list(results.training(name).values())
        losses = [one["curves"].get("train/base_loss", []) for one in training]
        first = [x for curve in losses for x in curve[:5] if x is not None]
        last = [x for curve in losses for x in curve[-5:] if x is not None]
        rows.append(
            (
                name,
                f"{fmean(first):.2f} → {fmean(last):.2f}" if first and last else "",
                _base_loss(team),
                _change(results, name, "reworded"),
                points(difference(solo, reworded))
                if solo and (reworded := others["reworded"])
                else "",
                _change(results, name, "other role prompt"),
                interval(others["wrong teammate"].accuracy) if others["wrong teammate"] else "",
                interval(alone.accuracy) if alone else "",
            )
        )
    head = (
        "team", "base loss in training, nats a token, first → last five steps",
        "base loss when measured", "messages reworded, points", "reworded, against solo",
        "role prompt reworded, points",
        "with a wrong teammate %",
        "wrong teammate and no trained one (dialogue: untrained team) %",
    )  # fmt: skip
    return table(head, rows)


def _change(results: Results, name: str, check: str) -> str:
    """What a check does to the trained team, seed by seed."""
    before = results.measured(name, "trained", beside=check)
    after = results.measured(name, check)
    return points(difference(before, after)) if before and after else ""


def _base_loss(team: Measured) -> str:
    """Mean negative log-probability a token of the trained agents' messages under the base."""
    nats, tokens = team.column("base_nats").sum(), team.column("base_tokens").sum()
    return f"{nats / tokens:.2f}" if tokens else ""
