"""Several experiments at a time: what is begun when, begun again, or not any more."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.side_by_side import SideBySide

SLEEPS = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(75)
"""


class Scripted:
    """Each name ends with its codes, one after the other; there is time to begin so many."""

    def __init__(self, folder: Path, most: int = 99, **codes: Sequence[int]) -> None:
        self.begun: list[str] = []
        self.said: list[str] = []
        self.most = most
        self.codes = {name: iter(some) for name, some in codes.items()}
        self.runs = SideBySide(self.command, folder / "logs", self.said.append)

    def command(self, name: str) -> list[str] | None:
        if len(self.begun) == self.most:
            return None
        self.begun.append(name)
        end = f"print('the end of {name}'); raise SystemExit({next(self.codes[name])})"
        return [sys.executable, "-c", end]


def test_all_of_them_run_and_leave_a_log(tmp_path: Path) -> None:
    some = Scripted(tmp_path, a=[0], b=[0], c=[0])
    assert some.runs.run(["a", "b", "c"], at_once=2) == 0
    assert sorted(some.begun) == ["a", "b", "c"]
    assert (tmp_path / "logs" / "b.log").read_text() == "the end of b\n"


def test_what_is_to_be_continued_is_begun_again_behind_the_others(tmp_path: Path) -> None:
    some = Scripted(tmp_path, a=[75, 0], b=[0])
    assert some.runs.run(["a", "b"], at_once=1) == 0
    assert some.begun == ["a", "b", "a"]


def test_but_only_when_another_has_ended(tmp_path: Path) -> None:
    """Whoever found no memory would find none at once."""
    some = Scripted(tmp_path, a=[75, 0])
    gate = tmp_path / "gate"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)"

    def command(name: str) -> Sequence[str] | None:
        if name == "slow":
            some.begun.append(name)
            return [sys.executable, "-c", wait]
        return some.command(name)

    def say(line: str) -> None:
        some.said.append(line)
        if "a: to be continued" in line:
            gate.touch()

    runs = SideBySide(command, tmp_path / "logs", say)
    assert runs.run(["slow", "a"], at_once=2) == 0
    assert [line.partition(" after")[0].partition(" (")[0] for line in some.said] == [
        "slow: begun", "a: begun", "a: to be continued", "slow: finished", "a: begun",
        "a: finished",
    ]  # fmt: skip


def test_nor_for_ever(tmp_path: Path) -> None:
    some = Scripted(tmp_path, a=[75] * 9)
    assert some.runs.run(["a"], at_once=1) == 75
    assert some.begun == ["a"] * 3


def test_a_failure_is_told_with_its_last_line_and_stops_no_other(tmp_path: Path) -> None:
    some = Scripted(tmp_path, a=[2], b=[75] * 3, c=[0])
    assert some.runs.run(["a", "b", "c"], at_once=1) == 2
    assert any("a: failed with 2 (the end of a)" in line for line in some.said)
    assert some.begun == ["a", "b", "c", "b", "b"]


def test_what_there_is_no_time_for_is_told_and_to_be_continued(tmp_path: Path) -> None:
    some = Scripted(tmp_path, most=2, **{name: [0] for name in "abcd"})
    assert some.runs.run(list("abcd"), at_once=1) == 75
    assert some.begun == ["a", "b"]
    assert some.said[-1] == "d: not begun, too little time is left"


def test_an_interrupt_ends_those_that_run_and_begins_no_other(tmp_path: Path) -> None:
    begun: list[str] = []
    awake = tmp_path / "awake"

    def command(name: str) -> list[str]:
        begun.append(name)
        if name == "breaks":
            while not awake.exists():  # an interpreter interrupted while it starts ends with 1
                time.sleep(0.01)
            raise KeyboardInterrupt
        if name == "parks":
            return [sys.executable, "-c", "raise SystemExit(75)"]
        return [sys.executable, "-c", SLEEPS, str(awake)]

    runs = SideBySide(command, tmp_path / "logs", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        runs.run(["sleeps", "parks", "breaks", "never"], at_once=2)
    assert begun == ["sleeps", "parks", "breaks"], "nor again what was to be continued"
    assert runs._ends["sleeps"] == runs._ends["parks"] == 75


@pytest.mark.parametrize("bad", ["smoke@x", "smoke@", "smok@1", "smoke@0"])
def test_a_bad_name_is_refused_before_anything_runs(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["smoke", bad, "--at-once", "2", "--runs", str(tmp_path)]
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_refused_side_by_side_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "smoke-s1").mkdir()
    assert main(["smoke", "smoke@1", "--at-once", "2", "--runs", str(tmp_path)]) == 2
    assert "go on with --resume" in capsys.readouterr().err


def test_two_seeds_side_by_side_are_the_runs_they_would_be_alone(tmp_path: Path) -> None:
    few = ["train.steps=1", "--only", "solo"]

    def places(name: str) -> list[Any]:
        return ["--runs", str(tmp_path / name), "--out", str(tmp_path / name)]

    assert main(["smoke", "smoke@1", *few, *places("a"), "--at-once", "2"]) == 0
    assert main(["smoke", "smoke@1", *few, *places("b")]) == 0
    for seed in (0, 1):
        one, other = (
            (tmp_path / name / f"smoke-s{seed}" / "outcomes" / "solo.json") for name in "ab"
        )
        assert (
            one.read_text().partition('"seconds"')[0]
            == (other.read_text().partition('"seconds"')[0])
        )
