"""What talk is worth, from the records: a trained team beside other plays of the same test tasks.

`rules/` holds, for each set of tasks with private views, on which of them the word-overlap rule
(`overlap.py`) speaks. It is played by taking the team's own messages where the rule speaks and
silence elsewhere, so that the two differ in when they speak and in nothing else.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.records import (
    FOLDER,
    RESAMPLES,
    Array,
    Columns,
    Measured,
    Records,
    auc,
    difference,
    on_shared,
)
from experiments.tables import WORTH, Names, interval, percent, points, table
from tacit.evaluation.statistics import Estimate
from tacit.run.folder import ALONE, REWORDED, SPEAKING, VARIANTS, WITHOUT

TRAINED, NO_TOOL = "trained", ", without the tool"
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
        for played in _evaluations(records, name):
            runs = {
                seed: run
                for seed, run in records.runs[name].items()
                if played + SPEAKING in run["evaluations"]
            }
            marks = [name.partition("+")[2], played.removeprefix(TRAINED).removeprefix(", ")]
            of = "".join(f" ({mark})" for mark in marks if mark)
            seeds = {_seed(n, run, played): Records({name: {n: run}}) for n, run in runs.items()}
            rule = rule_of(name) if played == TRAINED else None
            for seed, some in {**seeds, "all": records}.items():
                plays = Plays.of(some, name, played)
                rows.append((seed + of, *_row(plays, records, name, rule)))
                if worth := plays.worth:
                    rows.append((seed + of + WORTH, *_row(worth, records, name)))
            if rule:
                rows.append((f"the rule{of}", *_rule_row(plays, records, name, rule)))
    return table(head, rows)


def _evaluations(records: Records, name: str) -> list[str]:
    """Those that were also played with everybody made to speak, but for training's own."""
    found = dict.fromkeys(one for run in records.runs[name].values() for one in run["evaluations"])
    return [one for one in found if one + SPEAKING in found and not one.startswith("eval-")]


def _seed(number: int, run: Any, played: str) -> str:
    lines = run["evaluations"][played].get("silent_above", {}).values()
    return f"{number}, silent from π {next(iter(lines), 0.5):.2f}".replace(" 0.", " .")


class Plays(NamedTuple):
    """A team, and the same tasks played in other ways with its weights."""

    team: Measured
    silent: Measured | None
    speaking: Measured | None
    alone: Measured | None
    reworded: Measured | None

    @classmethod
    def of(cls, records: Records, name: str, played: str) -> "Plays":
        ways = (WITHOUT, SPEAKING, ALONE, REWORDED)
        others = [records.measured(name, played + way, beside=played) for way in ways]
        team = records.measured(name, played, beside=played + SPEAKING)
        assert team is not None
        return cls(team, *others)

    @property
    def worth(self) -> "Plays | None":
        """The same by what answers are worth; None if that is right or wrong."""
        team, *others = (one.worth if one else None for one in self)
        return Plays(team, *others) if team else None


class Chose(NamedTuple):
    """Every agent that could be silent on every task, under one seed."""

    needed: Any
    """Whether it knew what the others lack."""
    spoke: Any
    odds: Any
    """−log π(silence), of several choices the one in which it was most inclined to speak."""
    named: Any
    """Whether the question names the title of what it knew; NaN where nobody says."""

    @classmethod
    def of(cls, one: Columns, rounds: int | None = None) -> "Chose | None":
        """None if the record does not say who was needed. `rounds`: only the first ones."""
        known = one.get("needed") or _by_level(one)
        rows = [
            [_flags(known[agent]), *found, _flags(named)]
            for agent in known
            if (found := _choices(one, agent, rounds))
            for named in [one.get("named", {}).get(agent) or "-" * len(one["ids"])]
        ]
        if not rows:
            return None
        needed, spoke, odds, named = (np.concatenate(some) for some in zip(*rows, strict=True))
        asked = ~np.isnan(needed) & ~np.isnan(spoke)
        return cls((needed > 0)[asked], spoke[asked], odds[asked], named[asked])

    @property
    def auc(self) -> float:
        return auc(self.odds[self.needed], self.odds[~self.needed])

    @property
    def shares(self) -> list[str]:
        """Who spoke, of those with a title that the question names, a second hop, nothing, all."""
        kinds = (self.named > 0, self.needed & (self.named < 1), ~self.needed)
        return [*(_mean(self.spoke[kind]) for kind in kinds), _mean(self.spoke)]


def _by_level(one: Columns) -> dict[str, str]:
    if "needed" not in one.get("level", ()):
        return {}
    return {"": "".join("01"[level == "needed"] for level in one["level"])}


def _flags(text: str) -> Array:
    return np.array([np.nan if one == "-" else float(one) for one in text])


def _choices(one: Columns, agent: str, rounds: int | None) -> tuple[Array, Array] | None:
    """Whether the agent spoke, and its odds, by task; NaN where it was not asked."""
    if "log_silence" in one:
        team = Measured((one,))
        return 1.0 - team.silent_ST[0], -team.column("log_silence")[0]
    asked = [name for name in one.get("choices", {}) if name.startswith(f"{agent}, round ")]
    asked = [name for name in asked if rounds is None or int(name.split()[-1]) < rounds]
    if not asked:
        return None
    silent = np.array([_flags(one["choices"][name]["silent"]) for name in asked])
    team = Measured((one,))
    odds = [-team.column(f"choices.{name}.log_silence")[0] for name in asked]
    never = np.isnan(silent).all(axis=0)
    most = np.fmax.reduce(np.array(odds), axis=0)
    return np.where(never, np.nan, (silent == 0).any(axis=0)), most


def holders_table(records: Records, names: Names) -> str:
    """Who of several agents with paragraphs speaks, before and after a question of the asker's.

    Then what the rules of `overlap.py` would have done.
    """
    rows, sets = [], dict[str, Columns]()
    for name in names:
        for seed, run in records.runs[name].items():
            for evaluation, one in run["evaluations"].items():
                chose_free = {"named", "choices"} <= one.keys() and not evaluation.endswith(
                    VARIANTS
                )
                if evaluation.startswith("eval-") or not chose_free:
                    continue
                sets.setdefault(one["tasks"].partition("/")[0], one)
                again = any(choice.endswith("round 1") for choice in one["choices"])
                for rounds, when in ((1, "before the question"), (None, "after")):
                    chose = Chose.of(one, rounds)
                    if chose is None or (rounds and not again):
                        continue
                    label = f"{evaluation}, {when}" if again else evaluation
                    rows.append((label, str(seed), f"{chose.auc:.2f}".lstrip("0"), *chose.shares))
    for tasks, one in sets.items():
        for path in sorted(RULES.glob(f"{tasks.replace('_', '-')}-*.json")):
            rule = json.loads(path.read_text(encoding="utf-8"))
            silent = {}
            for agent, flags in rule["speaks"].items():
                quiet = {
                    task: "10"[int(flag)] for task, flag in zip(rule["ids"], flags, strict=True)
                }
                text = "".join(quiet.get(task, "-") for task in one["ids"])
                silent[f"{agent}, round 0"] = {"silent": text, "log_silence": 0.0}
            if ruled := Chose.of({**one, "choices": silent}):
                known = f"{rule['auc']:.2f}".lstrip("0")
                rows.append(
                    (
                        f"the rule by {path.stem.rpartition('-')[2]}, {tasks}",
                        "",
                        known,
                        *ruled.shares,
                    )
                )
    head = (
        "team", "seed", "AUC", "spoke, title named %", "second hop %", "not needed %", "all %",
    )  # fmt: skip
    return table(head, rows)


def tools_table(records: Records, names: Names) -> str:
    """Whether a tool was called where that made the answer right: beside the same team without."""
    rows = []
    for name in names:
        for seed, run in records.runs[name].items():
            one = Records({name: {seed: run}})
            for played, without in ((e, f"{e}{NO_TOOL}") for e in run["evaluations"]):
                if without not in run["evaluations"]:
                    continue
                team, other = on_shared(one.get(name, played), one.get(name, without))
                calls = sum(team.column(f"calls.{kind}.calls")[0] for kind in team.helpers)
                plain = sum(other.column(f"calls.{kind}.calls")[0] for kind in other.helpers)
                asked = calls > plain
                gained = team.right_ST[0] > other.right_ST[0]
                known = auc(asked[gained] * 1.0, asked[~gained] * 1.0) if gained.any() else 0.5
                rows.append(
                    (
                        played,
                        str(seed),
                        points(difference(other, team)),
                        _mean(asked),
                        _mean(asked[gained]),
                        _mean(asked[~gained]),
                        f"{known:.2f}".lstrip("0"),
                        f"{team.mean('observed'):.1f}",
                    )
                )
    head = (
        "team", "seed", "over the same without the tool", "called %", "where it made right %",
        "elsewhere %", "AUC", "tokens observed",
    )  # fmt: skip
    return table(head, rows)


def _mean(values: Array) -> str:
    return percent(float(values.mean())) if len(values) else ""


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


def by_rule(plays: Plays, rule: dict[str, Any]) -> Measured | None:
    """The team's messages on the tasks on which the rule speaks, and silence on the others."""
    if not plays.silent or not plays.speaking:
        return None
    quiet, loud = (play.only(rule["ids"]) for play in (plays.silent, plays.speaking))
    right_ST = np.where(rule["speaks"] > 0, loud.right_ST, quiet.right_ST)
    text = ["".join("-" if np.isnan(x) else "01"[int(x)] for x in one) for one in right_ST]
    return Measured(tuple({**c, "right": t} for c, t in zip(loud.columns, text, strict=True)))


def gained(records: Records, name: str, team: Measured) -> Estimate | None:
    """The share of what the oracle gains over the Actor alone."""
    untrained = f"{_set(name)}-untrained"
    alone, told = (records.measured(untrained, one) for one in ("alone", ORACLE))
    if not alone or not told or team.tasks != alone.tasks:
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


def _row(
    plays: Plays, records: Records, name: str, rule: dict[str, Any] | None = None
) -> tuple[str, ...]:
    team, ruled = plays.team, by_rule(plays, rule) if rule else None
    against = [difference(one, team) if one else None for one in plays[1:4]]
    share = gained(records, name, team)
    chosen = [chose for one in team.columns if (chose := Chose.of(one))]
    told: tuple[str, ...] = ("", "", "")
    if chosen:
        spoke, needed = (np.concatenate(some) for some in list(zip(*chosen, strict=True))[1::-1])
        known = np.mean([chose.auc for chose in chosen])
        told = (*_shares(spoke, needed), f"{known:.2f}".lstrip("0"))
    spoke_ST = 1.0 - team.silent_ST
    return (
        percent(team.accuracy.mean),
        interval(share) if share else "",
        *map(points, against[:2]),
        _gate(team.right_ST, spoke_ST, [plays.silent, plays.speaking]),
        points(difference(ruled, team)) if ruled else "",
        points(against[2]),
        _kept(team, plays.silent, plays.reworded),
        percent(float(np.nanmean(spoke_ST))),
        *told,
    )


def _rule_row(plays: Plays, records: Records, name: str, rule: dict[str, Any]) -> tuple[str, ...]:
    """The rule with the messages of all seeds."""
    played = by_rule(plays, rule)
    assert played is not None
    needed = _flags(_by_level(played.columns[0])[""]) > 0
    others = [one and one.only(played.ids) for one in (plays.silent, plays.speaking)]
    spoke_ST = np.broadcast_to(rule["speaks"], played.right_ST.shape)
    share = gained(records, name, played)
    return (
        percent(played.accuracy.mean),
        interval(share) if share else "",
        *(points(difference(one, played)) if one else "" for one in others),
        _gate(played.right_ST, spoke_ST, others),
        *[""] * 3,
        percent(float(spoke_ST.mean())),
        *_shares(spoke_ST, needed),
        f"{rule['auc']:.2f}".lstrip("0"),
    )


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
