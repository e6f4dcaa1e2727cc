"""Who stays after a rung, from results by hand."""

import pytest

from tacit.config import EvaluationConfig, SearchConfig
from tacit.search.halving import BEATEN, FAILED, HALF, Result, judge, kept_of, ranked, sizes

SETTINGS = EvaluationConfig(resamples=500)


def result(rights: str, cost: float = 10.0) -> Result:
    tasks = [str(number) for number in range(len(rights))]
    right = {task: float(one == "1") for task, one in zip(tasks, rights, strict=True)}
    return Result(right, dict.fromkeys(right, cost))


def order(search: SearchConfig, **results: Result) -> list[str]:
    return ranked(results, search, SETTINGS)[0]


def test_accuracy_leads_and_cost_breaks_ties() -> None:
    best, dear, cheap = result("1111"), result("1110", 20.0), result("0111", 5.0)
    assert order(SearchConfig(), dear=dear, cheap=cheap, best=best) == ["best", "cheap", "dear"]


def test_within_the_tie_the_cheaper_one_is_ahead() -> None:
    ahead, cheap = result("1" * 60 + "0" * 40, 50.0), result("1" * 59 + "0" * 41, 5.0)
    assert order(SearchConfig(tie=0.01), ahead=ahead, cheap=cheap) == ["cheap", "ahead"]
    assert order(SearchConfig(tie=0.0), ahead=ahead, cheap=cheap) == ["ahead", "cheap"]


def test_a_tie_is_none_where_the_paired_interval_says_otherwise() -> None:
    """Nearly as accurate, but at this price surely worth less on every task."""
    one, other = result("1" * 50 + "0" * 50, 1.0), result("1" * 50 + "0" * 50, 1.5)
    search = SearchConfig(price=0.01, tie=0.01)
    places, behind = ranked({"other": other, "one": one}, search, SETTINGS)
    assert places == ["one", "other"] and behind["other"].high < 0


def test_a_price_puts_cost_into_the_objective() -> None:
    costly, plain = result("1111", 300.0), result("1100", 10.0)
    assert order(SearchConfig(), costly=costly, plain=plain)[0] == "costly"
    assert order(SearchConfig(price=0.01), costly=costly, plain=plain)[0] == "plain"


def test_the_worse_half_goes_and_who_is_surely_behind() -> None:
    results = {
        "best": result("1" * 20),
        "near": result("1" * 19 + "0"),
        "fair": result("1" * 18 + "00"),
        "bad": result("1" * 4 + "0" * 16),
    }
    judged = judge(results, 2, SearchConfig(), SETTINGS)
    assert judged.kept == ["best", "near"]
    assert judged.dropped == {"fair": HALF, "bad": BEATEN}
    judged = judge(results, 4, SearchConfig(), SETTINGS)
    assert judged.dropped == {"bad": BEATEN}, "beaten, though there is room"
    assert judged.behind["bad"].mean == pytest.approx(-0.8)


def test_a_candidate_without_a_grade_is_out_and_missing_tasks_are_left_out_of_pairs() -> None:
    holes = Result({"0": 1.0, "1": 1.0}, {"0": 1.0, "1": 1.0})
    results = {"holes": holes, "whole": result("1110"), "none": Result({}, {})}
    judged = judge(results, 3, SearchConfig(), SETTINGS)
    assert judged.dropped == {"none": FAILED}
    assert judged.behind["whole"].mean == 0.0, "level on the two tasks that both have"


def test_rungs_grow_as_far_as_there_are_tasks() -> None:
    search = SearchConfig(first=10, rungs=4, eta=3)
    assert sizes(search, 1000) == [10, 30, 90, 270]
    assert sizes(search, 100) == [10, 30, 90, 100]
    assert sizes(search, 90) == [10, 30, 90]
    assert [kept_of(n, search) for n in (13, 5, 2, 1)] == [5, 2, 2, 1]
