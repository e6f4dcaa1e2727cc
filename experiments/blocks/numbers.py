"""Single numbers for sentences; what is not in the results, or misspelled, is `NOTHING`.

A run is an experiment, `gspo`, or one of its seeds, `gspo@2`: of training the first seed where none
is named, of what was measured all of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import catalogue
from experiments.blocks.bars import silence_by_problem, token_share
from experiments.blocks.rows import NOTHING, interval, percent, points, silent_share
from experiments.records import Array, Measured, Results, difference

HOW: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "least": np.min, "most": np.max}
"""What is said of a part of a curve, beside its `range`."""


def accuracy(results: Results, run: str, evaluation: str) -> str:
    team = _measured(results, run, evaluation)
    return f"{interval(team.accuracy)} %" if team else NOTHING


def tokens(results: Results, run: str, evaluation: str) -> str:
    team = _measured(results, run, evaluation)
    return f"{team.generated:.0f}" if team else NOTHING


def tokens_by(results: Results, run: str, evaluation: str, kind: str) -> str:
    """Of one agent, `hinter/hinter`, on average over its calls."""
    mean = _by_call(results, run, evaluation, kind, "generated")
    return NOTHING if mean is None else _short(mean)


def right(results: Results, run: str, evaluation: str) -> str:
    """How many of how many, of one seed."""
    team = _measured(results, run, evaluation)
    if not team or len(team.right_ST) > 1:
        return NOTHING
    return f"{int(np.nansum(team.right_ST))} of {len(team.ids)}"


def change(results: Results, first: str, evaluation: str, second: str, other: str) -> str:
    """The second team against the first, in points."""
    a, b = _measured(results, first, evaluation), _measured(results, second, other)
    test = difference(a, b) if a and b else None
    return f"{points(test)}" if test else NOTHING


def part(results: Results, run: str, evaluation: str, other_run: str, other: str) -> str:
    """The first team's generated tokens in per cent of the second's."""
    found = token_share(_measured(results, run, evaluation), _measured(results, other_run, other))
    return NOTHING if found is None else f"{100 * found:.0f}"


def silent(results: Results, run: str, evaluation: str, where: str = "") -> str:
    """The share of silent calls in per cent, of all or on `easy` or `hard` problems."""
    team = _measured(results, run, evaluation)
    if team and not where:
        return percent(float(np.nanmean(silent_share(team))))
    shares = silence_by_problem(results, team)
    if not shares or where not in ("easy", "hard"):
        return NOTHING
    return percent(float(shares[where == "hard"].mean()))


def spoke(results: Results, run: str, evaluation: str) -> str:
    """On how many problems somebody helped who might be silent and was not, of one seed."""
    team = _measured(results, run, evaluation)
    if not team or len(team.right_ST) > 1:
        return NOTHING
    return str(int((silent_share(team) < 1).sum()))


def cut(results: Results, run: str, evaluation: str, kind: str) -> str:
    """The share of an agent's messages that ended at their cap, in per cent."""
    mean = _by_call(results, run, evaluation, kind, "cut")
    return NOTHING if mean is None else f"{100 * mean:.0f}"


def steps(results: Results, run: str) -> str:
    """How many were trained."""
    training = _training(results, run)
    return str(training["steps"]) if training else NOTHING


def best(results: Results, run: str) -> str:
    """The step that is measured."""
    training = _training(results, run)
    return str(training["best_step"]) if training else NOTHING


def validated(results: Results, run: str, step: str, what: str) -> str:
    """`accuracy` in per cent or `tokens` on the validation problems after a step, or the `best`."""
    training = _training(results, run)
    known = training["validation"] if training else {"step": ()}
    wanted = training["best_step"] if training and step == "best" else step
    for at, value in zip(known["step"], known.get(what, ()), strict=False):
        if str(at) == str(wanted):
            return percent(value) if what == "accuracy" else f"{value:.0f}"
    return NOTHING


def curve(results: Results, run: str, name: str, where: str, how: str = "mean") -> str:
    """Of a curve of training, over a step or some: `7`, `13-16`, `37-` (to the end), `last`.

    Shares are in per cent. `how`: `mean`, `least`, `most`, or their `range`.
    """
    training = _training(results, run)
    found = _between(training["curves"].get(name, ()), where) if training else ()
    if not len(found):
        return NOTHING
    values: Array = np.array(found, dtype=float) * (100.0 if _is_share(name) else 1.0)
    if how == "range":
        return f"{_short(float(values.min()))} to {_short(float(values.max()))}"
    return _short(float(HOW[how](values)))


def gap(results: Results, run: str, first: str, second: str, where: str) -> str:
    """How much higher the first of two shares is, in points, over some steps of training."""
    training = _training(results, run)
    curves = training["curves"] if training else {}
    a, b = (_between(curves.get(name, ()), where) for name in (first, second))
    if not len(a) or len(a) != len(b):
        return NOTHING
    return f"{100 * float(np.mean(np.array(a) - np.array(b))):+.1f}"


def setting(results: Results, path: str) -> str:
    """A setting as the catalogue has it: `COSTLY`, or `hint.train.steps`."""
    first, *rest = path.split(".")
    value: Any = catalogue.find(first).config if rest else getattr(catalogue, first)
    for key in rest:
        value = value[key]
    if isinstance(value, str):
        return value.replace(" {instruction}", " …").replace("{instruction} ", "… ")
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def minutes(results: Results, *names: str) -> str:
    """What a seed of each of these experiments is estimated to take, together."""
    return str(sum(catalogue.find(name).minutes for name in names))


def _measured(results: Results, run: str, evaluation: str) -> Measured | None:
    name, _, seed = run.partition("@")
    if not seed:
        return results.measured(name, evaluation)
    only = {at: one for at, one in results.seeds(name).items() if at == int(seed)}
    return Results({name: only}).measured(name, evaluation)


def _by_call(results: Results, run: str, evaluation: str, kind: str, column: str) -> float | None:
    """The mean of a column over the calls of one agent."""
    team = _measured(results, run, evaluation)
    if not team or kind not in team.kinds:
        return None
    values, calls = (team.column(f"calls.{kind}.{name}") for name in (column, "calls"))
    return float(np.nansum(values) / np.nansum(calls))


def _training(results: Results, run: str) -> Mapping[str, Any] | None:
    name, _, seed = run.partition("@")
    runs = results.training(name)
    return runs.get(int(seed)) if seed else next(iter(runs.values()), None)


def _between(values: Sequence[float], where: str) -> Sequence[float]:
    """Some steps, counted from one; none where the curve does not reach so far."""
    if where == "last":
        return values[-1:]
    low, dash, high = where.partition("-")
    first, end = int(low), int(high) if high else (len(values) if dash else int(low))
    return values[first - 1 : end] if first <= end <= len(values) else ()


def _is_share(name: str) -> bool:
    group, _, rest = name.partition("/")
    whole = ("accuracy", "groups", "silence")
    return (group in whole and rest != "gain") or rest == "clip_fraction"


def _short(value: float) -> str:
    """Two digits, or as many as a whole number has: 0.30, 4.2, 91, 1,204; below 100 one more."""
    if value == round(value) or abs(value) >= 100:
        return f"{value + 0.0:,.0f}"
    if value > 99:
        return f"{math.floor(10 * value) / 10:.1f}"
    if abs(value) >= 10:
        return f"{value:.0f}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if int(exponent) < -3 else f"{value:#.2g}"
