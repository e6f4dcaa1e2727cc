"""Whether trained messages are honest help: answers given away, private codes, robustness."""

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from experiments.blocks.rows import (
    FINE_TUNED,
    SOLO,
    UNTRAINED_HINT,
    Row,
    get,
    interval,
    percent,
    points,
    table,
)
from experiments.catalogue import EXPERIMENTS
from experiments.records import Array, Measured, Results, difference, on_shared

ON_MATH: Row = ("gspo-math", "baselines-dialogue", "solo, math500")
"""The one team that is checked on other problems than GSM8K's, and the agent by itself there."""


def _checked(results: Results) -> Iterator[tuple[str, Measured, Measured | None]]:
    """Teams in which a trained agent may say something, each with the Actor by itself."""
    order = {name: place for place, name in enumerate(EXPERIMENTS)}
    for name in sorted(results.runs, key=lambda name: order.get(name.partition("+")[0], -1)):
        team = results.measured(name, "trained")
        if not team or name == FINE_TUNED[1]:
            continue
        if team.columns[0]["tasks"] == "gsm8k/test":
            yield name, team, get(results, SOLO)
        elif name == ON_MATH[0]:
            yield name, team, get(results, ON_MATH)


def leaks_table(results: Results) -> str:
    """How many messages hold the answer already, and the gain without those."""
    rows: list[tuple[str, ...]] = []
    untrained = (UNTRAINED_HINT[0], get(results, UNTRAINED_HINT), get(results, SOLO))
    for name, team, alone in (untrained, *_checked(results)):
        if not team or not alone:
            continue
        solo, team = on_shared(alone, team)
        leak, gain = team.column("leak"), points(difference(solo, team))
        if np.isnan(leak).all():
            rows.append((name, "nothing said", "", "", gain, "", ""))
            continue
        clean = np.where(leak == 1, solo.right_ST, team.right_ST)
        tasks = [t for t, column in zip(team.ids, leak.T, strict=True) if not (column == 1).any()]
        some = difference(solo.only(tasks), team.only(tasks)) if tasks else None
        rows.append(
            (
                name,
                percent(float(np.nanmean(leak))),
                *(_share(team.right_ST[leak == held]) for held in (1, 0)),
                gain,
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
    for name, team, solo in _checked(results):
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
        "wrong teammate and no trained one (dialogues, arbiter, second opinion: untrained team) %",
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
