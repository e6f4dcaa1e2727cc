"""The tables of one experiment's page, and how numbers are written."""

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
import yaml

from experiments.records import Difference, Measured, Records, auc, difference, on_shared
from tacit.evaluation.statistics import Estimate
from tacit.run.folder import VARIANTS

BINS = ((0, 0), (1, 2), (3, 5), (6, 7), (8, 8), (0, 8))
"""Of eight sampled answers of the Actor alone, so many right."""
WORTH = ", F1"
"""What rows are called that count what answers are worth; answers in words have F1."""
MEASURED_AGAIN = "2026-11-18"
"""Runs that began after this day are held against the Actor alone as it was measured again, as are
those of before that played beside it."""
Names = Sequence[str]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right; empty where there are no rows."""
    body = list(rows)
    if not body:
        return ""
    words = [
        any(cell[:1].isalpha() or cell[:1] in ("[", "*") for cell in c)
        for c in zip(*body, strict=True)
    ]
    lines = [f"| {' | '.join(row)} |" for row in (head, *body)]
    return "\n".join(
        [lines[0], f"|{'|'.join('---' if w else '---:' for w in words)}|", *lines[1:], ""]
    )


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def interval(value: Estimate) -> str:
    return f"{percent(value.mean)} [{percent(value.low)}, {percent(value.high)}]"


def points(test: Difference | None) -> str:
    """`+5.2 [+3.1, +7.4]`."""
    if test is None:
        return ""
    found = (test.difference.mean, test.difference.low, test.difference.high)
    mean, low, high = (f"{100 * value:+.1f}".replace("-", "−") for value in found)
    return f"{mean} [{low}, {high}]"


def p_value(test: Difference | None) -> str:
    return "" if test is None else "< 1e-6" if test.p < 1e-6 else f"{test.p:.2g}"


def by_seed(values_ST: Iterable[Any]) -> str:
    return ", ".join(percent(float(np.nanmean(one))) for one in values_ST)


def silence(team: Measured) -> str:
    """The share of helpers' calls in which nothing was said; empty where that never happened."""
    quiet = team.silent_ST
    return percent(float(np.nanmean(quiet))) if np.nansum(quiet) else ""


def course(curve: Sequence[float | None], scale: float = 1.0) -> str:
    """The first value, the one half-way, the last."""
    known = [value for value in curve if value is not None]
    moments = sorted({0, len(known) // 2, len(known) - 1}) if known else []
    return " → ".join(f"{scale * known[i]:.1f}" for i in moments)


def alone(records: Records, name: str, team: Measured) -> Measured | None:
    """The Actor by itself on the same tasks, with the same model folder and cap where there are
    two: a record's own evaluation `solo, TASKS`, or of whom it is a variant, before that of
    others."""
    tasks = team.tasks.partition("/")[0]
    for one in (name, name.partition("+")[0]):
        if own := records.measured(one, f"solo, {tasks}"):
            return own
    if team.tasks == "gsm8k/test":
        beside = name.endswith("+right-end") or name == "finetuned-hinter"
        again = beside or records.begun(name) > MEASURED_AGAIN
        return records.measured("baselines+right-end" if again else "baselines", "solo")
    if tasks == "split-gsm8k":
        return records.measured(name, "alone")
    if team.tasks == "jigsaw/test":  # split GSM8K: the same for both kinds of helper
        return records.measured("split-gsm8k-blind-untrained", "alone")
    if tasks in ("humaneval_plus", "mbpp_plus"):
        return records.measured(f"code-baselines-{tasks}", "solo")
    if team.tasks == "gsm8k/train":  # its own where it has one, since caps differ
        return records.measured(name, "solo") or records.measured("prompts", "solo")
    own = records.measured(name, "solo")
    shared = records.measured("baselines-dialogue", f"solo, {tasks}")
    return own if own and own.tasks == team.tasks else shared


def _teams(records: Records, names: Names) -> Iterable[tuple[str, str, Measured]]:
    """The evaluations of an experiment and its variants, each over all its seeds."""
    for name in names:
        runs = records.runs[name].values()
        for evaluation in dict.fromkeys(one for run in runs for one in run["evaluations"]):
            if evaluation != "team without helpers":
                yield name, evaluation, records.get(name, evaluation)


def _scored(records: Records, names: Names) -> Iterable[tuple[str, str, Measured]]:
    """The evaluations, and once more by what answers are worth where that is more than right."""
    for name, evaluation, team in _teams(records, names):
        yield name, evaluation, team
        if worth := team.worth:
            yield name, evaluation + WORTH, worth


def _label(name: str, what: str) -> str:
    return f"{what} ({name.partition('+')[2]})" if "+" in name else what


def measured_table(records: Records, names: Names) -> str:
    head = (
        "team", "tasks", "number", "seeds", "right % [95 %]", "against the Actor alone", "p",
        "generated", "read", "longest chain", "generated by role", "silent %",
        "messages with the answer %", "calls cut off %",
    )  # fmt: skip
    rows = []
    for name, evaluation, team in _scored(records, names):
        if evaluation.startswith("eval-"):
            continue
        solo = alone(records, name, team)
        if evaluation.endswith(WORTH):
            solo = solo.worth if solo else None
        itself = evaluation.partition(",")[0] in ("solo", "alone")
        test = difference(solo, team) if solo and not itself else None
        roles = (f"{k.replace('/', ' as ')} {team.mean('generated', [k]):.0f}" for k in team.kinds)
        rows.append(
            (
                _label(name, evaluation),
                team.tasks,
                str(len(team.ids)),
                f"{team.seeds}: {by_seed(team.right_ST)}" if team.seeds > 1 else "1",
                interval(team.accuracy),
                points(test),
                "" if evaluation.endswith(WORTH) else p_value(test),
                f"{team.mean('generated'):.1f}",
                f"{team.mean('read'):.1f}",
                f"{float(np.nanmean(team.column('path'))):.1f}",
                ", ".join(roles),
                silence(team),
                _leaks(team),
                f"{100 * team.mean('cut') / team.mean('calls'):.0f}",
            )
        )
    return table(head, rows)


def _leaks(team: Measured) -> str:
    """Tasks with a message that already holds the answer, of those on which something was said."""
    name = next((one for one in ("leak", "leaks") if one in team.columns[0]), None)
    leak = team.column(name) if name and team.helpers else np.full(1, np.nan)
    return "" if np.isnan(leak).all() else percent(float(np.nanmean(leak)))


def within_table(records: Records, names: Names) -> str:
    """What training and each check change, on the seeds that have both."""
    rows = []
    for name, label, team in _scored(records, names):
        evaluation = label.removesuffix(WORTH)
        if "untrained" in evaluation:
            continue
        trained = re.match("trained($|, )", evaluation) and not evaluation.endswith(VARIANTS)
        first = f"un{evaluation}" if trained else "trained"
        before = records.measured(name, first, beside=evaluation)
        if not before and trained and evaluation != "trained":
            first = "trained"
            before = records.measured(name, first, beside=evaluation)
        if before and label != evaluation:
            before = before.worth
        if before and before.tasks == team.tasks:
            test = difference(before, team)
            tokens = f"{before.mean('generated'):.0f} → {team.mean('generated'):.0f}"
            p = p_value(test) if label == evaluation else ""
            rows.append((_label(name, label), first, points(test), p, tokens))
    return table(("team", "against", "points [95 %]", "p", "generated"), rows)


def level_table(records: Records, names: Names) -> str:
    """Accuracy and silence by level; how well the choice tells needed from free tasks."""
    rows = []
    for name, evaluation, team in _teams(records, names):
        for level in sorted({*team.columns[0].get("level", ())}):
            some = team.on_level(level)
            quiet = by_seed(some.silent_ST) if silence(team) else ""
            known = separation(team) if level == "needed" else ""
            right = by_seed(some.right_ST)
            rows.append((_label(name, evaluation), level, str(len(some.ids)), right, quiet, known))
    head = ("team", "level", "tasks", "right % by seed", "silent % by seed", "AUC by seed")
    return table(head, rows)


def separation(team: Measured) -> str:
    """AUC of 1 − π(silence) for needed against free tasks, seed by seed."""
    if "log_silence" not in team.columns[0]:
        return ""
    needed, free = (-team.on_level(one).column("log_silence") for one in ("needed", "free"))
    if np.isnan(needed).any() or np.isnan(free).any():
        return ""
    return ", ".join(f"{auc(a, b):.2f}".lstrip("0") for a, b in zip(needed, free, strict=True))


def difficulty_table(records: Records, names: Names) -> str:
    """When a trained team speaks and what that does, by the Actor's own success of eight."""
    rows = []
    solo, sampled = (records.get("baselines", one) for one in ("solo", "self-consistency"))
    for name in names:
        team = records.measured(name, "trained")
        if not team or team.tasks != "gsm8k/test" or not team.helpers:
            continue
        one, eight, mine = on_shared(solo, sampled, team)
        solved_T, alone_T = eight.column("right_calls")[0], one.right_ST[0]
        for low, high in BINS:
            some = (solved_T >= low) & (solved_T <= high)
            if not some.any():
                continue
            label = f"{low} of 8" if low == high else f"{low} to {high} of 8"
            effects = _effects(alone_T[some], mine.right_ST[:, some], mine.silent_ST[:, some])
            shown = _label(name, label if high - low < 8 else "all")
            rows.append((shown, str(int(some.sum())), *map(percent, effects)))
    head = (
        "Actor alone right", "problems", "silent %", "spoke %", "alone %", "team %", "helped %",
        "harmed %",
    )  # fmt: skip
    return table(head, rows)


def _effects(alone_T: Any, right_ST: Any, quiet_ST: Any) -> tuple[float, ...]:
    """Helped and harmed are shares of the problems on which somebody spoke."""
    loud = quiet_ST < 1
    helped, harmed = ((right_ST > alone_T) & loud).sum(), ((right_ST < alone_T) & loud).sum()
    means = (np.nanmean(quiet_ST), loud.mean(), np.nanmean(alone_T), np.nanmean(right_ST))
    return (*map(float, means), helped / max(1, loud.sum()), harmed / max(1, loud.sum()))


def training_table(records: Records, names: Names) -> str:
    head = (
        "run", "steps", "best", "validation %, first → best", "tokens", "sampled tokens, M",
        "π(silence) %, first → half-way → last", "tokens of a message, the same",
        "λ of tokens, turns at the end", "gradient norm", "base loss, first → last five steps",
        "play, update s", "date",
    )  # fmt: skip
    rows = [
        (_label(name, f"seed {seed}"), *_trained(run))
        for name in names
        for seed, run in records.runs[name].items()
        if run.get("training")
    ]
    return table(head, rows)


def _trained(run: Mapping[str, Any]) -> tuple[str, ...]:
    training, settings = run["training"], run["config"]["train"]
    curves, held_out, seconds = training["curves"], training["validation"], training["seconds"]
    ends = (0, held_out["step"].index(training["best_step"]))
    roles = [k[7:] for k in curves if k.startswith("tokens/") and k != "tokens/actor"]
    known = {name: [x for x in curve if x is not None] for name, curve in curves.items()}
    episodes = settings.get("tasks_per_step", 16) * settings.get("group", 8)
    norms, base = known.get("train/gradient_norm", []), known.get("train/base_loss", [])
    quiet = {role: curves[f"silence/{role}"] for role in roles if f"silence/{role}" in curves}
    prices = (k for k in ("lambda/tokens", "lambda/turns") if k in curves)
    return (
        str(training["steps"]),
        str(training["best_step"]),
        " → ".join(percent(held_out["accuracy"][i]) for i in ends),
        " → ".join(f"{held_out['tokens'][i]:.0f}" for i in ends),
        f"{sum(known.get('cost/tokens', [])) * episodes / 1e6:.1f}",
        "; ".join(f"{role} {course(curve, 100)}" for role, curve in quiet.items()),
        "; ".join(f"{role} {course(curves[f'tokens/{role}'])}" for role in roles),
        ", ".join(f"{curves[k][-1]:.3g}" for k in prices),
        f"{fmean(norms):.3f} ± {stdev(norms):.3f}" if len(norms) > 1 else "",
        f"{fmean(base[:5]):.2f} → {fmean(base[-5:]):.2f}" if base else "",
        ", ".join(f"{seconds[k]:.0f}" for k in ("rollout", "update") if k in seconds),
        max((call["date"] for call in run["calls"]), default=""),
    )


def settings(records: Records, names: Names) -> str:
    """The first seed's config as it was recorded, without what is empty or off."""
    run = next(iter(records.runs[names[0]].values()))
    if not run.get("training"):
        return ""
    tree = {k: v for k, v in run["config"].items() if k not in ("models", "teams")}
    text = yaml.safe_dump(_plain(tree), sort_keys=False, allow_unicode=True, width=110)
    return f"```yaml\n{text}```\n"


def _plain(tree: Any) -> Any:
    if not isinstance(tree, Mapping):
        return tree
    inner = {key: _plain(value) for key, value in tree.items()}
    return {
        k: v for k, v in inner.items() if v is not None and v not in ({}, []) and v is not False
    }
