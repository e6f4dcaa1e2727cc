"""What people read in the terminal: numbers in their places, and texts never taken for markup."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from tacit.cli.conversation import _show_grade, show_call
from tacit.cli.paired_tests import Compared, in_one_line, paired_tests
from tacit.cli.tables import (
    SUMMARY,
    agents_table,
    detail_lines,
    print_result,
    summary_table,
    talk_table,
)
from tacit.cli.terminal import EpisodeBar, episode_progress, interval, out, percent
from tacit.config import EvaluationConfig
from tacit.evaluation.measure import Summary, summarise
from tacit.evaluation.statistics import Estimate, paired
from tacit.evaluation.talk import Choosing, Play, Talk
from tacit.types import Call, Episode, Grade, Stop, Task, ToolCall, Usage

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


ODD = (
    "[bold]mine[/] [x]",
    "a :jigsaw: of agents",
    "self-consistency",
    "a_name_without_a_place_to_break_it_that_is_longer_than_all_others_and_the_table",
)


@pytest.mark.parametrize("name", ODD)
def test_names_are_shown_whole_and_as_they_are(name: str) -> None:
    teams = [summary(name, {"easy": True, "hard": True}), summary("solo", {"easy": False})]
    for table in (summary_table(teams), agents_table(teams)):
        shown = printed(table)
        assert name in shown
        assert all(len(line) <= 80 for line in shown.splitlines())
        assert "…" not in shown


def test_every_word_of_the_table_is_explained_under_it() -> None:
    shown = " ".join(printed(summary_table([summary("t", {"easy": True})])).split())
    for word in ("* On the frontier", "`accuracy`", "`per solved`", "`path`", "`silent`"):
        assert word in shown
    same = "trained: step 40, the best of those evaluated on these same tasks"
    assert same in " ".join(printed(summary_table([], f"{same}.")).split())


def test_levels_have_columns_where_there_is_room_and_lines_where_not() -> None:
    few, many = (summary("t", {f"level {n}": True for n in range(count)}) for count in (2, 5))
    assert "level 1" in printed(summary_table([few])) and not list(detail_lines([few]))
    assert "level 1" not in printed(summary_table([many]))
    (line,) = detail_lines([many])
    assert line.startswith("t: accuracy % by level level 0 100.0, level 1 100.0")


def test_what_has_no_column_has_a_line() -> None:
    plain = summary("t", {"easy": True})
    assert list(detail_lines([plain])) == []
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
        "t: maj@8 50.0 %, pass@8 75.0 %; "
        "12.5 % of helpers' messages already hold the answer; "
        "100.0 % right where somebody was silent, – % elsewhere"
    ]


def pairs_of(**pairs: tuple[list[float], list[float]]) -> list[Compared]:
    found = {name: asdict(paired(*pair, resamples=20_000)) for name, pair in pairs.items()}
    return paired_tests({"compared_with": "a", "paired": found})


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ([1.0] * 4, [1.0] * 4, "b and a are level on 4 tasks."),
        (
            [0.0] * 40,
            [1.0] * 40,
            "b is significantly above a by 100.0 points [+100.0, +100.0] on 40 tasks "
            "(McNemar p < 0.001, bootstrap p < 0.001).",
        ),
        ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0], "b is below a by 33.3 points ["),
    ],
)
def test_a_comparison_is_a_sentence(first: list[float], second: list[float], sentence: str) -> None:
    (test,) = pairs_of(b=(first, second))
    assert str(test).startswith(sentence)


def test_significance_is_corrected_for_the_number_of_tests() -> None:
    pair = ([0.0] * 6 + [1.0] * 20, [1.0] * 26)  # six to none: McNemar p = 0.031
    (alone,) = pairs_of(b=pair)
    assert alone.sure and "significantly" in str(alone)
    first, second = pairs_of(b=pair, c=pair)
    assert first.p == second.p == pytest.approx(2 * 0.03125) and not first.sure
    assert str(first).endswith("p = 0.062 corrected for 2 tests).")


def test_all_tests_are_one_line_unless_asked_for() -> None:
    better, level = ([0.0] * 40, [1.0] * 40), ([1.0] * 40, [1.0] * 40)
    tests = pairs_of(b=better, c=level, d=better, e=level)
    assert in_one_line(tests) == (
        "4 paired tests (p < 0.05, corrected for their number): b is above a; d is above a; "
        "2 show no difference. --details prints each."
    )


def test_tests_that_cannot_be_read_are_left_out() -> None:
    assert paired_tests({"paired": {"b": None, "c": {"odd": 1}}, "trained_compared_with": 3}) == []


def test_one_test_is_not_corrected() -> None:
    (test,) = pairs_of(b=([0.0] * 40, [1.0] * 40))
    assert in_one_line([test]) == "1 paired test (p < 0.05): b is above a. --details prints each."


def test_a_result_is_printed_from_its_summary_alone(capsys: pytest.CaptureFixture[str]) -> None:
    teams = {name: summary(name, {"easy": True}).to_json() for name in ("[solo]", "trained")}
    test = asdict(paired([0.0] * 40, [1.0] * 40, resamples=20_000))
    result = {
        "teams": teams,
        "best_step": 40,
        "trained_compared_with": {"[solo]": test, "debate": None},
        "spend": None,
    }
    shown = {}
    for details in (False, True):
        print_result(json.loads(json.dumps(result)), Path("runs/[x]"), details=details)
        shown[details] = " ".join(capsys.readouterr().out.split())
    assert "best of those evaluated on these same tasks" in shown[False]
    assert "trained is above [solo]. --details prints each." in shown[False]
    assert "McNemar" not in shown[False] and "McNemar p < 0.001" in shown[True]
    assert "trained and debate have no graded task in common." in shown[True]
    assert "debate" not in shown[False]
    assert shown[True].endswith("transcripts and numbers: runs/[x]")


def test_no_text_is_taken_for_markup_or_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    out.print("[red]a :jigsaw: of[/] words")
    assert capsys.readouterr().out == "[red]a :jigsaw: of[/] words\n"
    with episode_progress() as progress:
        EpisodeBar(progress, "[b]:jigsaw:[/]", total=1)
    assert "[b]:jigsaw:[/]" in printed(progress.get_renderable())


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
    _show_grade(Grade(reward=0.0, right=False, answer="[b]"), "[/b]")
    spoken, silent, verdict = capsys.readouterr().out.splitlines()
    assert spoken == rf"actor (40 tokens)  {CALL.text}"
    assert silent == "actor (40 tokens)  silent"
    assert verdict == "wrong: read '[b]', reference '[/b]'"


def test_no_text_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_call(replace(CALL, text="clear \x1b[2J\x9b2J \x07 \x7f"))
    show_call(replace(CALL, text=" ", tool_calls=(ToolCall("\x1b]0;title\x07", "\x1b[A"),)))
    said, called = capsys.readouterr().out.splitlines()
    assert said == "actor (40 tokens)  clear \ufffd[2J\ufffd2J  \ufffd", "rich drops the bell"
    assert called == "actor (40 tokens) calls tools  \ufffd]0;title(\ufffd[A)"


def talk(**plays: Play) -> Talk:
    free = Play(accuracy=0.9, messages=0.5, generated=1234.5, read=54321.0)
    choice = Choosing(
        needed=4, idle=4, auc=0.975, by="silence_logprob", precision=0.8, recall=1.0,
        silent_needed=0.0, silent_idle=0.75,
    )  # fmt: skip
    missing = {"speaking": "hinter: an API model cannot be made to speak"}
    return Talk(tasks=8, plays={"free": free, **plays}, rate=0.5, choosing=choice, missing=missing)


def test_other_plays_stand_below_the_teams_own_and_fit_80_columns() -> None:
    plain = summary("plain", {"easy": True})
    assert talk_table([plain]) is None, "nothing was measured"
    told = replace(plain, team="told", talk=talk())
    assert talk_table([told]) is None, "nothing to set it beside"
    above = Estimate(1.0, -1.0, 1.0)
    quiet = Play(accuracy=0.4, messages=0.0, generated=1200.0, read=43210.0, above=above)
    names = ("silent", "speaking", "gate", "alone", "reworded")
    lines = printed(talk_table([plain, replace(told, talk=talk(**dict.fromkeys(names, quiet)))]))
    (row,) = [line for line in lines.splitlines() if "all silent" in line]
    assert row.split() == ["all", "silent", "40.0", "+100.0", "[-100.0,", "+100.0]", "0.00",
                           "1200.0", "43210"]  # fmt: skip
    assert "plain" not in lines and max(map(len, lines.splitlines())) <= 80


def test_a_reward_has_a_column_by_its_name_only_where_some_team_has_one() -> None:
    plain = summary("plain", {"easy": True})
    assert "F1" not in printed(summary_table([plain]))
    above = Estimate(0.2, 0.1, 0.3)
    quiet = Play(accuracy=0.4, messages=0.0, generated=1200.0, read=43210.0, above=above)
    also = replace(quiet, accuracy=0.55, above=Estimate(0.034, -0.01, 0.08))
    told = replace(
        plain, team="told", reward=Estimate(0.584, 0.5, 0.65), reward_name="F1",
        talk=replace(talk(silent=quiet), rewards={"silent": also}),
    )  # fmt: skip
    shown = printed(summary_table([plain, told]))
    assert "`F1` is the mean reward" in shown and "58.4 [50.0, 65.0]" in shown
    assert shown.count("100.0 [20.7, 100.0]") == 3, "right or wrong: the reward is the accuracy"
    lines = printed(talk_table([told]))
    assert "F1 %, and as it" in lines and "55.0  +3.4 [-1.0, +8.0]" in lines
    assert max(map(len, lines.splitlines())) <= 80
    assert "F1" not in printed(talk_table([replace(told, reward_name="")]))


def test_the_choice_and_what_is_missing_are_told_in_words() -> None:
    known = talk().choosing
    assert known is not None
    line, left = detail_lines([replace(summary("told", {"easy": True}), talk=talk())])
    assert left == "told, not played: made to speak (hinter: an API model cannot be made to speak)"
    assert "silent in 0.0 % of the calls" in line
    assert "and in 75.0 % of the rest (AUC 0.97); 80.0 % of what was said was needed" in line
    rough = replace(talk(), choosing=replace(known, by="spoke"))
    line, _ = detail_lines([replace(summary("told", {"easy": True}), talk=rough)])
    assert "(AUC of speaking or not 0.97)" in line


def test_agents_that_choose_differently_are_told_apart() -> None:
    told, plain = talk(), summary("told", {"easy": True})
    assert told.choosing is not None
    unlike = {"holder 1": told.choosing, "holder 2": replace(told.choosing, auc=None)}
    (line, _) = detail_lines([replace(plain, talk=replace(told, choosing_by_agent=unlike))])
    assert "AUC by agent holder 1 0.97, holder 2 –" in line
    for same in ({"a": told.choosing}, dict.fromkeys("ab", told.choosing)):
        (line, _) = detail_lines([replace(plain, talk=replace(told, choosing_by_agent=same))])
        assert "by agent" not in line


def test_tokens_are_judged_as_said_and_as_said_and_read() -> None:
    shares = {"messages": 0.5, "generated": 0.875, "read": 0.625, "total": 0.75}
    told = replace(talk(), share_of_speaking=shares)
    (line, _) = detail_lines([replace(summary("told", {"easy": True}), talk=told)])
    assert "50.0 % of the messages" in line
    assert "87.5 % of the tokens said, 75.0 % of those said and read" in line
    terse = replace(summary("terse", {"easy": True}), read=4000.0)
    brief = replace(summary("brief", {"easy": True}), generated=Estimate(50.0, 50.0, 50.0))
    shown = " ".join(printed(summary_table([terse, brief])).split())
    assert "terse *" in shown and "With tokens read, the frontier is brief." in shown
    assert "With tokens read" not in printed(summary_table([brief]))


def test_a_summary_from_before_talk_was_measured_still_opens() -> None:
    tree = summary("old", {"easy": True}).to_json()
    del tree["talk"]
    assert SUMMARY.validate_python(tree).talk is None
    whole = replace(summary("new", {"easy": True}), talk=talk())
    assert SUMMARY.validate_python(json.loads(json.dumps(whole.to_json()))) == whole
