"""What training shows: a panel where somebody looks, one plain line a step where nobody does."""

import io

import pytest
from rich.console import Console

from tacit.cli import live as panel
from tacit.cli.live import Shown, clock_time, print_step, silence_of, sparkline, step_display
from tests.helpers.training_runs import tiny_config

STEP = {
    "step": 1.0,
    "accuracy/policy": 0.25,
    "accuracy/sampled": 0.5,
    "cost/tokens": 30.0,
    "silence/warming": 0.0,
    "silence/gain": 0.1,
    "silence/[red]hinter": 0.4,
    "silence/[red]hinter/easy": 0.8,
    "silence/[red]hinter/hard": 0.0,
    "lambda/tokens": 0.125,
    "rollout_s": 2.0,
    "update_s": 1.5,
}


def drawn(shown: Shown, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(shown.render())
    return capture.get()


def shown_at(*times: float, steps: int = 10) -> Shown:
    clock = iter(times)
    return Shown("tiny", steps, 18.0, lambda: next(clock, times[-1]))


def test_a_sparkline_goes_from_its_least_to_its_most() -> None:
    assert sparkline([0, 1, 2, 3], 4) == "▁▃▆█"
    assert sparkline([5, 5], 4) == "▁▁"
    assert sparkline([], 4) == ""
    assert sparkline([0.5], 4, low=0.0, high=1.0) == "▅"
    assert sparkline([1, 1, 3, 3], 2) == "▁█", "more than fit are means of neighbours"
    assert len(sparkline(range(1000), 24)) == 24


def test_the_panel_says_what_is_solved_spent_kept_silent_and_left() -> None:
    shown = shown_at(0.0, 60.0)
    assert "evaluating the untrained team" in drawn(shown)
    shown.add({"step": 0.0, "eval/accuracy": 0.1, "eval/tokens": 64.0})
    shown.add(STEP)
    shown.add(STEP | {"step": 2.0, "accuracy/policy": 1.0, "cost/tokens": 15.0})
    text = drawn(shown)
    assert "solved" in text and "100.0 %" in text and "▃█" in text
    assert "held-out" in text and "10.0 %, 64.0 tokens at step 0" in text
    assert "15.0 of 18" in text and "λ tokens 0.125" in text
    assert "silent easy" in text and "80 %" in text
    assert "2 of 10" in text and "about 4:00 left" in text, "60 s for 2 steps, 8 to go"


def test_the_pace_of_a_run_taken_up_again_is_its_own() -> None:
    shown = shown_at(0.0, 30.0, steps=20)
    shown.add(STEP | {"step": 11.0})
    assert shown.left_s() == 30.0 * 9


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_panel_fits_its_terminal(width: int) -> None:
    shown = shown_at(0.0, 60.0)
    for step in range(1, 100):
        shown.add(STEP | {"step": float(step)})
    assert max(map(len, drawn(shown, width).splitlines())) <= width


def test_silence_is_by_difficulty_for_one_agent_and_by_agent_for_several() -> None:
    assert silence_of(STEP) == {"easy": 0.8, "hard": 0.0}
    several = {"silence/a": 0.1, "silence/b": 0.2, "silence/a/easy": 0.3, "silence/b/easy": 0.4}
    assert silence_of(several) == {"a": 0.1, "b": 0.2}


def test_where_nobody_looks_each_step_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    with step_display(tiny_config()) as on_step:
        assert on_step is print_step
        on_step(STEP)
        on_step({"step": 2.0, "eval/accuracy": 1.0, "eval/tokens": 9.0})
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == (
        "step    1  solved  25.0 %  tokens   30.0  silent % easy 80 hard 0  λ 0.125  3.5 s"
    )
    assert lines[1] == "step    2  held-out: solved 100.0 %  tokens 9.0"
    print_step({"step": 2.0, "eval/accuracy": 0.5, "eval/reward": 0.625, "eval/tokens": 9.0})
    line = capfd.readouterr().err
    assert line == "step    2  held-out: solved 50.0 %  reward 0.625  tokens 9.0\n"


def test_where_somebody_looks_it_is_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    monkeypatch.setattr(panel, "err", console)
    with step_display(tiny_config()) as on_step:
        on_step(STEP)
    assert "╭─" in console.file.getvalue()  # type: ignore[attr-defined]


def test_times_are_read_like_a_clock() -> None:
    assert [clock_time(s) for s in (0, 65, 3700)] == ["0:00", "1:05", "1:01:40"]
