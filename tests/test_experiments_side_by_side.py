"""Several experiments at a time: what is begun when, begun again, or not any more."""

import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.clock import Clock
from experiments.side_by_side import SideBySide


class Scripted:
    """Each name ends with its codes, one after the other, and the clock goes on by a minute."""

    def __init__(self, folder: Path, minutes: float, **codes: Sequence[int]) -> None:
        self.begun: list[str] = []
        self.said: list[str] = []
        self.codes = {name: iter(some) for name, some in codes.items()}
        ticks = count(0.0, 30.0)  # it is read twice for each that runs
        clock = Clock(minutes, now=lambda: next(ticks))
        self.runs = SideBySide(self.command, clock, folder / "logs", self.said.append)

    def command(self, name: str) -> list[str]:
        self.begun.append(name)
        end = f"print('the end of {name}'); raise SystemExit({next(self.codes[name])})"
        return [sys.executable, "-c", end]


def test_all_of_them_run_and_leave_a_log(tmp_path: Path) -> None:
    some = Scripted(tmp_path, 60, a=[0], b=[0], c=[0])
    assert some.runs.run(["a", "b", "c"], at_once=2) == 0
    assert sorted(some.begun) == ["a", "b", "c"]
    assert (tmp_path / "logs" / "b.log").read_text() == "the end of b\n"


def test_what_is_to_be_continued_is_begun_again_behind_the_others(tmp_path: Path) -> None:
    some = Scripted(tmp_path, 60, a=[75, 0], b=[0])
    assert some.runs.run(["a", "b"], at_once=1) == 0
    assert some.begun == ["a", "b", "a"]


def test_but_not_for_ever(tmp_path: Path) -> None:
    some = Scripted(tmp_path, 60, a=[75] * 9)
    assert some.runs.run(["a"], at_once=1) == 75
    assert some.begun == ["a"] * 3


def test_a_failure_is_told_with_its_last_line_and_stops_no_other(tmp_path: Path) -> None:
    some = Scripted(tmp_path, 60, a=[2], b=[75] * 3, c=[0])
    assert some.runs.run(["a", "b", "c"], at_once=1) == 2
    assert any("a: failed with 2 (the end of a)" in line for line in some.said)
    assert "c" in some.begun


def test_nothing_is_begun_when_too_little_time_is_left(tmp_path: Path) -> None:
    some = Scripted(tmp_path, 4, **{name: [0] for name in "abcd"})
    assert some.runs.run(list("abcd"), at_once=1) == 75
    assert 0 < len(some.begun) < 4
    assert "d: not begun, too little time is left" in some.said


@pytest.mark.parametrize("bad", ["smoke@x", "smoke@", "smok@1"])
def test_a_bad_name_is_refused_before_anything_runs(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["smoke", bad, "--at-once", "2", "--runs", str(tmp_path)]
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not list(tmp_path.iterdir())


def test_two_seeds_side_by_side_are_the_runs_they_would_be_alone(tmp_path: Path) -> None:
    few = ["train.steps=1", "--only", "solo"]
    places = {
        name: ["--runs", str(tmp_path / name), "--out", str(tmp_path / name)] for name in "ab"
    }
    assert main(["smoke", "smoke@1", *few, *places["a"], "--at-once", "2"]) == 0
    assert main(["smoke", "smoke@1", *few, *places["b"]]) == 0
    for seed in (0, 1):
        one, other = (
            (tmp_path / name / f"smoke-s{seed}" / "outcomes" / "solo.json") for name in "ab"
        )
        assert (
            one.read_text().partition('"seconds"')[0]
            == (other.read_text().partition('"seconds"')[0])
        )
