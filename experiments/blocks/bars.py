"""What was to be shown, and whether it holds; and single numbers for sentences."""

from collections.abc import Iterable
from typing import Any

from experiments import catalogue
from experiments.blocks.rows import (
    CONSISTENCY,
    DEBATE,
    DIALOGUE,
    EVO,
    HINT,
    LEAN,
    NOTHING,
    REFINE,
    ROLES,
    SEVEN,
    SOLO,
    UNTRAINED_DIALOGUE,
    UNTRAINED_HINT,
    get,
    interval,
    percent,
    points,
    table,
)
from experiments.records import Measured, Results, difference, on_shared


def bars_table(results: Results) -> str:
    return table(("claim", "measured", "verdict"), [*_hint_bars(results), *_dialogue_bars(results)])


def _verdict(holds: bool | None) -> str:
    return NOTHING if holds is None else ("holds" if holds else "missed")


def _hint_bars(results: Results) -> Iterable[tuple[str, str, str]]:
    team, solo, before = (get(results, row) for row in (HINT, SOLO, UNTRAINED_HINT))
    for other, least in ((solo, 5), (before, 15)):
        name = "solo" if least == 5 else "the untrained hint"
        test = difference(other, team) if team and other else None
        holds = test and test.difference.mean >= least / 100 and test.p < 0.01
        claim = f"trained hint ≥ {name} + {least} points, p < 0.01"
        yield claim, points(test), _verdict(None if test is None else bool(holds))
    claim = "trained hint generates no more than the untrained hint"
    yield _cheaper(claim, team, before, 1.0)
    for row in (HINT, LEAN):
        yield from _dominance(row[0], get(results, row), results)


def _dominance(
    name: str, team: Measured | None, results: Results
) -> Iterable[tuple[str, str, str]]:
    for row in (ROLES, REFINE, DEBATE):
        other = get(results, row)
        test = difference(other, team) if team and other else None
        less = _share(team, other)
        shown = f"{points(test)}; {percent(less)} % of its tokens" if test and less else ""
        dominates = bool(test and less and test.difference.mean >= 0 and less < 1)
        claim = f"{name} no less accurate than {row[0]}, with fewer tokens"
        yield claim, shown, _verdict(None if test is None else dominates)
    for row, share in ((CONSISTENCY, 0.2), (DEBATE, 0.2), (EVO, 0.08)):
        claim = f"{name} ≤ {100 * share:.0f} % of the tokens of {row[0]}"
        yield _cheaper(claim, team, get(results, row), share)


def _dialogue_bars(results: Results) -> Iterable[tuple[str, str, str]]:
    team, before, debate = (get(results, r) for r in (DIALOGUE, UNTRAINED_DIALOGUE, DEBATE))
    for other, name in ((before, "the untrained dialogue"), (debate, "untrained debate")):
        yield _cheaper(f"trained dialogue ≤ 50 % of the tokens of {name}", team, other, 0.5)
    test = difference(before, team) if team and before else None
    holds = None if test is None else test.difference.low > -0.01
    claim = "trained dialogue no less accurate (95 % lower bound above −1 point)"
    yield claim, points(test), _verdict(holds)
    done = [
        benchmark
        for benchmark, where in SEVEN.items()
        if results.measured(*where)
        and results.measured("baselines-dialogue", f"untrained, {benchmark}")
    ]
    claim = "at least five of the seven benchmarks before and after"
    yield claim, ", ".join(done), _verdict(len(done) >= 5 if done else None)


def _share(team: Measured | None, other: Measured | None) -> float | None:
    """Generated tokens of one team over another's, on the tasks both have."""
    if not team or not other:
        return None
    team, other = on_shared(team, other)
    return team.generated / other.generated if team.ids else None


def _cheaper(
    claim: str, team: Measured | None, other: Measured | None, limit: float
) -> tuple[str, str, str]:
    share = _share(team, other)
    shown = "" if share is None else f"{percent(share)} %"
    return claim, shown, _verdict(None if share is None else share <= limit)


def accuracy(results: Results, experiment: str, evaluation: str) -> str:
    team = results.measured(experiment, evaluation)
    return f"{interval(team.accuracy)} %" if team else NOTHING


def tokens(results: Results, experiment: str, evaluation: str) -> str:
    team = results.measured(experiment, evaluation)
    return f"{team.generated:.0f}" if team else NOTHING


def change(results: Results, first: str, evaluation: str, second: str, other: str) -> str:
    """The second team against the first."""
    a, b = results.measured(first, evaluation), results.measured(second, other)
    test = difference(a, b) if a and b else None
    return f"{points(test)}" if test else NOTHING


def setting(results: Results, path: str) -> str:
    """A setting as the catalogue has it: `COSTLY`, or `hint.train.steps`."""
    first, *rest = path.split(".")
    value: Any = catalogue.find(first).config if rest else getattr(catalogue, first)
    for key in rest:
        value = value[key]
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
