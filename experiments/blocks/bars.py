"""What was to be shown, and whether it holds."""

from collections.abc import Iterable

import numpy as np

from experiments.blocks.rows import (
    ARBITERS,
    CONSISTENCY,
    DEBATE,
    DIALOGUE,
    EVO,
    FINE_TUNED,
    HINT,
    NOTHING,
    OPINION,
    READ,
    REFINE,
    ROLES,
    SEVEN,
    SOLO,
    UNTRAINED_DIALOGUE,
    UNTRAINED_HINT,
    UNTRAINED_HINTS,
    UNTRAINED_OPINION,
    UNTRAINED_READ,
    Row,
    every,
    get,
    percent,
    points,
    silent_share,
    table,
)
from experiments.records import Array, Difference, Measured, Results, difference, on_shared

MOSTLY, SELDOM = 6, 2
"""Right answers of eight that make a problem one that the agent solves, or one that it fails."""


def bars_table(results: Results) -> str:
    return table(("claim", "measured", "verdict"), [*_hint_bars(results), *_dialogue_bars(results)])


def _verdict(holds: bool | None) -> str:
    return NOTHING if holds is None else ("holds" if holds else "missed")


def _hint_bars(results: Results) -> Iterable[tuple[str, str, str]]:
    """Each of the two hinters by itself: what one holds does not count for the other."""
    for row, untrained in ((HINT, UNTRAINED_HINT), (READ, UNTRAINED_READ)):
        team, name = get(results, row), row[0]
        for other, least in ((SOLO, 5), (untrained, 15)):
            test = _test(results, other, team)
            holds = test and test.difference.mean >= least / 100 and test.p < 0.01
            claim = f"{name} ≥ {other[0]} + {least} points, p < 0.01"
            yield claim, points(test), _verdict(None if test is None else bool(holds))
        claim = f"{name} generates no more than the {untrained[0]}"
        yield _cheaper(claim, team, get(results, untrained), 1.0)
        yield from _dominance(name, team, results)
    best = max(every(results, UNTRAINED_HINTS), key=lambda one: one.accuracy.mean, default=None)
    team = get(results, HINT)
    if test := _test(results, FINE_TUNED, team):
        yield f"for comparison: {HINT[0]} against {FINE_TUNED[0]}", points(test), ""
    if best and team:
        claim = f"for comparison: {HINT[0]} against the best untrained hinter, {best.label}"
        yield claim, points(difference(best, team)), ""


def _dominance(
    name: str, team: Measured | None, results: Results
) -> Iterable[tuple[str, str, str]]:
    for row in (ROLES, REFINE, DEBATE):
        test, less = _test(results, row, team), token_share(team, get(results, row))
        shown = f"{points(test)}; {percent(less)} % of its tokens" if test and less else ""
        dominates = bool(test and less and test.difference.mean >= 0 and less < 1)
        claim = f"{name} at least as accurate as {row[0]} (mean), with fewer tokens"
        yield claim, shown, _verdict(None if test is None else dominates)
    for row, share in ((CONSISTENCY, 0.2), (DEBATE, 0.2), (EVO, 0.08)):
        claim = f"{name} ≤ {100 * share:.0f} % of the tokens of {row[0]}"
        yield _cheaper(claim, team, get(results, row), share)


def _test(results: Results, row: Row, team: Measured | None) -> Difference | None:
    """The team against another."""
    other = get(results, row)
    return difference(other, team) if team and other else None


def _dialogue_bars(results: Results) -> Iterable[tuple[str, str, str]]:
    team = get(results, DIALOGUE)
    yield from _agent_gspo(results, DIALOGUE, UNTRAINED_DIALOGUE)
    if get(results, OPINION):
        yield from _agent_gspo(results, OPINION, UNTRAINED_OPINION)
    for row in ARBITERS:
        if get(results, row):
            yield _conditional(results, row)
    if test := _test(results, SOLO, team):
        less = token_share(team, get(results, SOLO)) or 0.0
        claim = "for comparison: trained dialogue against solo"
        yield claim, f"{points(test)}; {percent(less)} % of its tokens", ""
    done = [
        benchmark
        for benchmark, trained in SEVEN.items()
        if every(results, trained)
        and results.measured("baselines-dialogue", f"untrained, {benchmark}")
    ]
    claim = "at least five of the seven benchmarks before and after"
    yield claim, ", ".join(done), _verdict(len(done) >= 5 if done else None)


def _agent_gspo(results: Results, mine: Row, untrained: Row) -> Iterable[tuple[str, str, str]]:
    """Half of the tokens, no less accurate, and silent where that is right."""
    team = get(results, mine)
    for row in (untrained, DEBATE):
        claim = f"{mine[0]} ≤ 50 % of the tokens of {row[0]}"
        yield _cheaper(claim, team, get(results, row), 0.5)
        test = _test(results, row, team)
        holds = None if test is None else test.difference.low > -0.01
        yield f"{mine[0]} no less accurate than {row[0]}", points(test), _verdict(holds)
    yield _conditional(results, mine)


def _conditional(results: Results, row: Row) -> tuple[str, str, str]:
    """Whether silence is the more frequent the less the problem asks for help."""
    claim = (
        f"{row[0]}: silent more often on problems that one agent solves in {MOSTLY} of 8 "
        f"samples or more than on those it solves in {SELDOM} or fewer"
    )
    quiet = silence_by_problem(results, get(results, row))
    if quiet is None:
        return claim, "", NOTHING
    easy, hard = quiet
    error = (easy.var(ddof=1) / len(easy) + hard.var(ddof=1) / len(hard)) ** 0.5
    gap = float(easy.mean() - hard.mean())
    shown = f"{_mean(easy)} % of messages against {_mean(hard)} %"
    if before := silence_by_problem(results, results.measured(row[1], "untrained")):
        shown += f"; untrained {_mean(before[0])} against {_mean(before[1])} %"
    return claim, shown, _verdict(gap > 1.96 * error)


def silence_by_problem(results: Results, team: Measured | None) -> tuple[Array, Array] | None:
    """The share of silent messages on each problem, of those mostly solved and seldom solved."""
    sampled = get(results, CONSISTENCY)
    if not (team and sampled):
        return None
    team, sampled = on_shared(team, sampled)
    quiet_T, solved_T = silent_share(team).mean(0), sampled.column("right_calls")[0]
    known_T = ~np.isnan(quiet_T)
    easy, hard = known_T & (solved_T >= MOSTLY), known_T & (solved_T <= SELDOM)
    return (quiet_T[easy], quiet_T[hard]) if min(easy.sum(), hard.sum()) > 1 else None


def _mean(values: Array) -> str:
    return percent(float(values.mean()))


def token_share(team: Measured | None, other: Measured | None) -> float | None:
    """Generated tokens of one team over another's, on the tasks both have."""
    if not team or not other:
        return None
    team, other = on_shared(team, other)
    return team.generated / other.generated if team.ids else None


def _cheaper(
    claim: str, team: Measured | None, other: Measured | None, limit: float
) -> tuple[str, str, str]:
    share = token_share(team, other)
    shown = "" if share is None else f"{percent(share)} %"
    return claim, shown, _verdict(None if share is None else share <= limit)
