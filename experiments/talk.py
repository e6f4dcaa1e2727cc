"""What talk is worth, from the records: a trained team beside other plays of the same test tasks.

`rules/` holds, for each set of tasks with private views, on which of them the word-overlap rule
(`overlap.py`) speaks. It is played by taking the team's own messages where the rule speaks and
silence elsewhere, so that the two differ in when they speak and in nothing else.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.records import (
    FOLDER,
    RESAMPLES,
    Array,
    Measured,
    Records,
    auc,
    difference,
)
from experiments.tables import Names, interval, percent, points, table
from tacit.evaluation.statistics import Estimate

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
        of = f" ({name.partition('+')[2]})" if "+" in name else ""
        seeds = {_seed(n, run): Records({name: {n: run}}) for n, run in records.runs[name].items()}
        for seed, some in {**seeds, "all": records}.items():
            rows.append((seed + of, *_row(some, records, name)))
        if rule := rule_of(name):
            rows.append((f"the rule{of}", *_rule_row(records, name, rule)))
    return table(head, rows)


def _seed(number: int, run: Any) -> str:
    lines = run["evaluations"]["trained"].get("silent_above", {}).values()
    return f"{number}, silent from π {next(iter(lines), 0.5):.2f}".replace(" 0.", " .")


def _set(name: str) -> str:
    """The experiment that a variant has its tasks from."""
    return name.partition("+")[0]


def rule_of(name: str) -> dict[str, Any] | None:
    """What the rule says of an experiment's tasks, if it is kept."""
    path = RULES / f"{_set(name)}.json"
    if not path.exists():
        return None
    tree = json.loads(path.read_text(encoding="utf-8"))
    return {**tree, "speaks": np.array([int(one) for one in tree["speaks"]], float)}


def by_rule(records: Records, name: str) -> Measured | None:
    """The team's messages on the tasks on which the rule speaks, and silence on the others."""
    rule, plays = rule_of(name), _plays(records, name)
    if rule is None or None in plays:
        return None
    quiet, loud = (play.only(rule["ids"]) for play in plays if play)
    right_ST = np.where(rule["speaks"] > 0, loud.right_ST, quiet.right_ST)
    text = ["".join("-" if np.isnan(x) else "01"[int(x)] for x in one) for one in right_ST]
    return Measured(tuple({**c, "right": t} for c, t in zip(loud.columns, text, strict=True)))


def gained(records: Records, name: str, team: Measured) -> Estimate | None:
    """The share of what the oracle gains over the Actor alone."""
    untrained = f"{_set(name)}-untrained"
    alone, told = (records.measured(untrained, one) for one in ("alone", ORACLE))
    if not alone or not told:
        return None
    rows = [team.right_ST, *(one.only(team.ids).right_ST for one in (alone, told))]
    return over_draws(lambda mine, none, all_of: (mine - none) / (all_of - none), rows)


def over_draws(formula: Callable[..., Array], rows_ST: Sequence[Array]) -> Estimate:
    """A formula of means, with a 95 % interval over resampled seeds and tasks.

    Rows of one seed stand beside every seed of the others. Tasks that failed in any are left out.
    """
    seeds, dice = max(map(len, rows_ST)), np.random.default_rng(0)
    wide_NT = np.concatenate([np.broadcast_to(x, (seeds, x.shape[1])) for x in rows_ST])
    wide_NT = wide_NT[:, ~np.isnan(wide_NT).any(axis=0)]
    kinds_NK, counts_K = np.unique(wide_NT, axis=1, return_counts=True)  # few, so drawn as such
    seeds_RS = dice.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    shares_K, tasks = counts_K / counts_K.sum(), counts_K.sum()
    tasks_RK = dice.multinomial(tasks, shares_K, RESAMPLES) / tasks
    wide = np.split(kinds_NK, len(rows_ST))
    drawn = formula(*(((seeds_RS @ one_SK) * tasks_RK).sum(axis=1) for one_SK in wide))
    low, high = np.percentile(drawn, [2.5, 97.5])
    exact = formula(*((one_SK.mean(axis=0) * shares_K).sum() for one_SK in wide))
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
        _gate(team.right_ST, spoke_ST, [others[SILENT], others[SPEAKING]]),
        points(difference(rule, team)) if rule else "",
        points(against["trained weights alone"]),
        _kept(team, others[SILENT], others["trained reworded"]),
        percent(float(spoke_ST.mean())),
        *_shares(spoke_ST, needed),
        f"{np.mean(told):.2f}".lstrip("0"),
    )


def _rule_row(records: Records, name: str, rule: dict[str, Any]) -> tuple[str, ...]:
    """The rule with the messages of all seeds."""
    played = by_rule(records, name)
    assert played is not None
    needed = np.array(_needed(played))
    plays = [one and one.only(played.ids) for one in _plays(records, name)]
    spoke_ST = np.broadcast_to(rule["speaks"], played.right_ST.shape)
    share = gained(records, name, played)
    return (
        percent(played.accuracy.mean),
        interval(share) if share else "",
        *(points(difference(one, played)) if one else "" for one in plays),
        _gate(played.right_ST, spoke_ST, plays),
        *[""] * 3,
        percent(float(spoke_ST.mean())),
        *_shares(spoke_ST, needed),
        f"{rule['auc']:.2f}".lstrip("0"),
    )


def _plays(records: Records, name: str) -> list[Measured | None]:
    return [records.measured(name, one) for one in (SILENT, SPEAKING)]


def _needed(team: Measured) -> list[bool]:
    return [level == "needed" for level in team.columns[0]["level"]]


def _shares(spoke: Array, needed: Any) -> tuple[str, str]:
    """Silence where nothing is and where something is to tell; then precision and recall."""
    rows = np.atleast_2d(spoke)
    quiet = [percent(1.0 - float(rows[:, some].mean())) for some in (~needed, needed)]
    precision = float(rows[:, needed].sum() / max(1.0, rows.sum()))
    recall = float(rows[:, needed].mean())
    return " : ".join(quiet), f"{percent(precision)}, {percent(recall)}"


def gate(right: Array, spoke: Array, quiet: Array, loud: Array) -> Array:
    """How far a team is above one that speaks as often, but by chance (`tacit.evaluation.talk`)."""
    return right - spoke * loud - (1.0 - spoke) * quiet


def _gate(right_ST: Array, spoke_ST: Array, plays: Sequence[Measured | None]) -> str:
    quiet, loud = plays
    if not quiet or not loud:
        return ""
    found = over_draws(gate, [right_ST, spoke_ST, quiet.right_ST, loud.right_ST])
    mean, low, high = (f"{100 * x:+.1f}" for x in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]".replace("-", "−")


def _kept(team: Measured, silent: Measured | None, reworded: Measured | None) -> str:
    if not silent or not reworded:
        return ""
    mine, none, again = (float(np.nanmean(one.right_ST)) for one in (team, silent, reworded))
    return percent((again - none) / (mine - none)) if mine > none else ""
