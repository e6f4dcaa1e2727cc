"""What talk is worth, from the records: a trained team beside other plays of the same test tasks.

`rules/` holds, for each set of tasks with private views, on which of them the word-overlap rule
(`overlap.py`) speaks. It is played by taking the team's own messages where the rule speaks and
silence elsewhere, so that the two differ in when they speak and in nothing else.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.records import FOLDER, Array, Measured, Records, auc, difference
from experiments.tables import Names, interval, percent, points, table
from tacit.evaluation.statistics import Estimate
from tacit.evaluation.talk import above_gate

SPEAKING, SILENT = "trained made to speak", "trained without helpers"
RULES = FOLDER / "rules"
ORACLE = "told the missing sentence"


def talk_table(records: Records, names: Names) -> str:
    """Every seed, then the seeds together: when the team speaks, and what that is worth."""
    head = (
        "seed", "right %", "of the oracle's gain %", "over silence", "against always speaking",
        "over a random gate", "over the rule", "over the weights alone", "kept when reworded %",
        "messages %", "silent, not needed : needed %", "precision, recall %", "AUC",
    )  # fmt: skip
    rows = []
    for name in names:
        if not records.measured(name, SPEAKING):
            continue
        seeds = {_seed(n, run): Records({name: {n: run}}) for n, run in records.runs[name].items()}
        for seed, some in {**seeds, "all": records}.items():
            rows.append((seed, *_row(some, records, name)))
        rule = rule_of(name)
        if rule:
            quiet = _shares(rule["speaks"], np.array(_needed(records.get(name, "trained"))))
            rows.append(("the rule", *[""] * 9, *quiet, f"{rule['auc']:.2f}".lstrip("0")))
    return table(head, rows)


def _seed(number: int, run: Any) -> str:
    lines = run["evaluations"]["trained"].get("silent_above", {}).values()
    return f"{number}, silent from π {next(iter(lines), 0.5):.2f}".replace(" 0.", " .")


def rule_of(name: str, folder: Path = RULES) -> dict[str, Any] | None:
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    tree = json.loads(path.read_text(encoding="utf-8"))
    return {**tree, "speaks": np.array([int(one) for one in tree["speaks"]], float)}


def by_rule(records: Records, name: str) -> Measured | None:
    """The team's messages on the tasks on which the rule speaks, and silence on the others."""
    rule, plays = rule_of(name), [records.measured(name, one) for one in (SPEAKING, SILENT)]
    if rule is None or None in plays:
        return None
    loud, quiet = (play.only(rule["ids"]) for play in plays if play)
    right_ST = np.where(rule["speaks"] > 0, loud.right_ST, quiet.right_ST)
    text = ["".join("-" if np.isnan(x) else "01"[int(x)] for x in one) for one in right_ST]
    return Measured(tuple({**c, "right": t} for c, t in zip(loud.columns, text, strict=True)))


def gained(records: Records, name: str, team: Measured) -> Estimate | None:
    """The share of what the oracle gains over the Actor alone; its interval is over tasks."""
    untrained = f"{name}-untrained"
    alone, told = (records.measured(untrained, one) for one in ("alone", ORACLE))
    if not alone or not told:
        return None
    rows = [one.only(team.ids).right_ST.mean(axis=0) for one in (alone, told)]
    mine, none, all_of = team.right_ST.mean(axis=0), *rows
    places = np.random.default_rng(0).integers(len(mine), size=(2000, len(mine)))
    drawn = [one[places].mean(axis=1) for one in (mine, none, all_of)]
    shares = (drawn[0] - drawn[1]) / (drawn[2] - drawn[1])
    exact = (mine.mean() - none.mean()) / (all_of.mean() - none.mean())
    low, high = np.percentile(shares, [2.5, 97.5])
    return Estimate(float(exact), float(low), float(high))


def _row(some: Records, records: Records, name: str) -> tuple[str, ...]:
    team = some.get(name, "trained")
    others = {
        label: some.measured(name, label)
        for label in (SILENT, SPEAKING, "trained weights alone", "trained reworded")
    }
    against = {label: difference(one, team) if one else None for label, one in others.items()}
    rule, share = by_rule(some, name), gained(records, name, team)
    spoke_ST, needed = 1.0 - team.silent_ST, np.array(_needed(team))
    odds_ST = -team.column("log_silence")
    told = [auc(one[needed], one[~needed]) for one in odds_ST]
    return (
        percent(team.accuracy.mean),
        interval(share) if share else "",
        points(against[SILENT]),
        points(against[SPEAKING]),
        _gate(team, others[SILENT], others[SPEAKING]),
        points(difference(rule, team)) if rule else "",
        points(against["trained weights alone"]),
        _kept(team, others[SILENT], others["trained reworded"]),
        percent(float(spoke_ST.mean())),
        *_shares(spoke_ST, needed),
        f"{np.mean(told):.2f}".lstrip("0"),
    )


def _needed(team: Measured) -> list[bool]:
    return [level == "needed" for level in team.columns[0]["level"]]


def _shares(spoke: Array, needed: Any) -> tuple[str, str]:
    """Silence where nothing is and where something is to tell; then precision and recall."""
    rows = np.atleast_2d(spoke)
    quiet = [percent(1.0 - float(rows[:, some].mean())) for some in (~needed, needed)]
    precision = float(rows[:, needed].sum() / max(1.0, rows.sum()))
    recall = float(rows[:, needed].mean())
    return " : ".join(quiet), f"{percent(precision)}, {percent(recall)}"


def _gate(team: Measured, silent: Measured | None, speaking: Measured | None) -> str:
    """Over a gate that speaks as often but by chance; tasks are resampled, seeds are not."""
    if not silent or not speaking:
        return ""

    def rows(one: Measured) -> Array:
        right, spoke = one.right_ST.mean(axis=0), (1.0 - one.silent_ST).mean(axis=0)
        return np.stack([right, spoke, np.ones_like(right)], axis=1)

    mine, quiet, loud = map(rows, (team, silent, speaking))
    found = above_gate(mine, quiet, loud, confidence=0.95, resamples=10_000)
    mean, low, high = (f"{100 * x:+.1f}" for x in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]".replace("-", "−")


def _kept(team: Measured, silent: Measured | None, reworded: Measured | None) -> str:
    if not silent or not reworded:
        return ""
    mine, none, again = (float(np.nanmean(one.right_ST)) for one in (team, silent, reworded))
    return percent((again - none) / (mine - none)) if mine > none else ""
