"""The paired tests of a summary.json in sentences, corrected for their number."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit.cli.terminal import points
from tacit.evaluation.statistics import Paired, holm

PAIRED = TypeAdapter(Paired)


@dataclass(frozen=True, slots=True)
class Compared:
    """One of a run's paired tests; `p` is corrected for their number, `of`."""

    name: str
    baseline: str
    test: Paired
    p: float
    of: int

    @property
    def sure(self) -> bool:
        return self.p < 0.05

    @property
    def side(self) -> str:
        return "above" if self.test.difference.mean > 0 else "below"

    def __str__(self) -> str:
        by, tasks = self.test.difference, self.test.tasks
        rewards = f"; mean reward {points(self.test.reward)}" if self.test.reward else ""
        if not by.mean:
            return f"{self.name} and {self.baseline} are level on {tasks} tasks{rewards}."
        sure = "significantly " if self.sure else ""
        corrected = f"; {p_value(self.p)} corrected for {self.of} tests" if self.of > 1 else ""
        return (
            f"{self.name} is {sure}{self.side} {self.baseline} by {100 * abs(by.mean):.1f} points "
            f"[{100 * by.low:+.1f}, {100 * by.high:+.1f}] on {tasks} tasks "
            f"(McNemar {p_value(self.test.p_mcnemar)}, bootstrap {p_value(self.test.p_bootstrap)}"
            f"{corrected}){rewards}."
        )


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def paired_tests(summary: Mapping[str, Any]) -> list[Compared]:
    """The tests in a summary.json, the trained team's first; unreadable ones are left out."""
    found: list[tuple[str, str, Paired]] = []
    for name, baseline, tree in _pairs(summary):
        with suppress(ValidationError):
            found.append((name, baseline, PAIRED.validate_python(tree)))
    corrected = holm([max(test.p_mcnemar, test.p_bootstrap) for _, _, test in found])
    return [
        Compared(name, baseline, test, p, len(found))
        for (name, baseline, test), p in zip(found, corrected, strict=True)
    ]


def untested(summary: Mapping[str, Any]) -> list[str]:
    """A sentence for each pair that could not be tested."""
    pairs = [(name, baseline) for name, baseline, tree in _pairs(summary) if tree is None]
    return [f"{name} and {other} have no graded task in common." for name, other in pairs]


def _pairs(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    first = str(summary.get("compared_with"))
    for place in ("trained_compared_with", "paired"):
        trees = summary.get(place)
        for other, tree in trees.items() if isinstance(trees, dict) else ():
            yield ("trained", other, tree) if place != "paired" else (other, first, tree)


def in_one_line(tests: Sequence[Compared]) -> str:
    """All of a run's tests in one sentence."""
    sure: dict[tuple[str, str], list[str]] = {}
    for one in tests:
        if one.sure:
            sure.setdefault((one.name, one.side), []).append(one.baseline)
    found = [f"{name} is {side} {', '.join(others)}" for (name, side), others in sure.items()]
    rest = sum(not one.sure for one in tests)
    found += [f"{rest} show{'s' if rest == 1 else ''} no difference"] if rest else []
    several = f"{len(tests)} paired tests (p < 0.05, corrected for their number)"
    count = several if len(tests) > 1 else "1 paired test (p < 0.05)"
    return f"{count}: {'; '.join(found)}. --details prints each."
