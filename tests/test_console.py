"""What people read in the terminal: numbers in their places, and texts never taken for markup."""

from dataclasses import replace

import pytest
from rich.console import Console
from rich.progress import Progress

from tacit.config import EvaluationConfig
from tacit.console import (
    EpisodeBar,
    agents_table,
    detail_lines,
    interval,
    paired_lines,
    percent,
    show_call,
    show_grade,
    summary_table,
)
from tacit.evaluate import Summary, summarise
from tacit.statistics import Estimate, paired
from tacit.types import Call, Episode, Grade, Stop, Task, Usage

TASK = Task(id="a", question="?", answer="1", grader="math")
CALL = Call(
    agent="actor",
    model="pocket",
    messages=(),
    text=r"[red]so[/] \boxed{1}\[",
    stop=Stop.EOS,
    usage=Usage(prompt=1000, generated=40),
)


def episode(level: str, right: bool) -> Episode:
    grade = Grade(reward=float(right), right=right)
    return Episode(task_id=level, sample=0, level=level, calls=(CALL,), grade=grade)


def summary(name: str, rights: dict[str, bool]) -> Summary:
    played = [episode(level, right) for level, right in rights.items()]
    return summarise(name, played, [TASK], EvaluationConfig(resamples=50))


def printed(table: object, width: int = 80) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_numbers_are_written_as_percent() -> None:
    assert percent(0.1234) == "12.3" and percent(None) == "–"
    assert interval(Estimate(0.5, 0.25, 1.0)) == "50.0 [25.0, 100.0]"


def test_the_summary_has_a_row_for_each_team_and_a_star_on_the_frontier() -> None:
    good = summary("good", {"easy": True, "hard": True})
    bad = summary("bad", {"easy": True, "hard": False})
    lines = printed(summary_table([bad, good])).splitlines()
    (row,) = [line for line in lines if line.strip().startswith("bad")]
    assert row.split() == ["bad", "50.0", "[9.5,", "90.5]", "100.0", "0.0", *row.split()[6:]]
    assert row.split()[6:] == ["40.0", "1000", "80", "0", "–"]
    assert any(line.strip().startswith("good *") for line in lines)


def test_money_has_a_column_only_where_there_are_prices() -> None:
    plain = summary("t", {"easy": True})
    assert "money" not in printed(summary_table([plain]))
    dear = printed(summary_table([replace(plain, money=0.0123)]))
    assert "money" in dear and "0.012300" in dear


def test_names_are_shown_as_they_are() -> None:
    odd = summary("[bold]mine[/] [x]", {"easy": True})
    assert "[bold]mine[/] [x]" in printed(summary_table([odd]), width=120)
    assert "[bold]mine[/] [x]" in printed(agents_table([odd]), width=120)


def test_what_has_no_column_has_a_line() -> None:
    plain = replace(summary("t", {"easy": True}), path_seconds=1.5)
    assert list(detail_lines([plain])) == ["t: 1.50 s on the critical path"]
    full = replace(
        plain,
        samples=8,
        majority=0.5,
        any_right=0.75,
        leaks=0.125,
        silent_accuracy=1.0,
        spoken_accuracy=None,
    )
    assert list(detail_lines([full])) == [
        "t: 1.50 s on the critical path; maj@8 50.0 %, pass@8 75.0 %; "
        "12.5 % of helpers' messages already hold the answer; "
        "100.0 % right where somebody was silent, – % elsewhere"
    ]


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ([1.0] * 4, [1.0] * 4, "b and a are level on 4 tasks."),
        ([0.0] * 40, [1.0] * 40, "b is significantly above a by 100.0 points [+100.0, +100.0]"),
        ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0], "b is below a by 33.3 points ["),
    ],
)
def test_a_comparison_is_a_sentence(first: list[float], second: list[float], sentence: str) -> None:
    (line,) = paired_lines("a", {"b": paired(first, second, resamples=200)})
    assert line.startswith(sentence)


def test_teams_without_a_task_in_common_are_said_to_have_none() -> None:
    assert list(paired_lines("a", {"b": None})) == ["b and a have no graded task in common."]


def test_the_bar_says_how_it_goes() -> None:
    progress = Progress()
    bar = EpisodeBar(progress, "team", total=4)
    for one in (episode("easy", True), episode("hard", False)):
        bar.add(one)
    (task,) = progress.tasks
    assert task.completed == 2 and task.fields["numbers"] == "50.0 %  40 tok"
    bar.add(Episode(task_id="x", sample=0, error="EngineError: gone"))
    assert "1 failed" in task.fields["numbers"] and task.fields["numbers"].startswith("50.0 %")


def test_what_a_model_says_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_call(CALL)
    show_call(replace(CALL, silent=True))
    show_grade(Grade(reward=0.0, right=False, answer="[b]"), "[/b]")
    spoken, silent, verdict = capsys.readouterr().out.splitlines()
    assert spoken == rf"actor (40 tokens)  {CALL.text}"
    assert silent == "actor (40 tokens)  silent"
    assert verdict == "wrong: read '[b]', reference '[/b]'"
