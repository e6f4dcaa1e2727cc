"""The example runs, and its topology does what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.scripted_teams import order, play, scripted, user

SOURCE = Path(__file__).parents[2] / "examples" / "custom_topology.py"
TOPOLOGY = "custom_topology:hint_when_unsure"


@pytest.fixture(autouse=True)
def beside_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SOURCE.parent))


async def test_no_hint_is_asked_for_where_the_answers_agree() -> None:
    scripts = {"actor": [r"\boxed{42}", r"it is \boxed{42}"], "hinter": ["never asked"]}
    episode = await play(scripted(TOPOLOGY, scripts))
    assert order(episode) == [("actor", "solver")] * 2
    assert episode.answer == r"\boxed{42}"


async def test_where_they_differ_the_actor_answers_again_with_a_hint() -> None:
    scripts = {"actor": [r"\boxed{1}", r"\boxed{2}", r"\boxed{42}"], "hinter": ["add"]}
    episode = await play(scripted(TOPOLOGY, scripts))
    assert order(episode)[2:] == [("hinter", "hinter"), ("actor", "solver")]
    assert "<hint>\nadd\n</hint>" in user(episode.calls[-1])
    assert episode.grade is not None and episode.grade.right


def test_the_example_runs_with_the_pocket_model() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SOURCE)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    alone, own, *_ = done.stdout.splitlines()
    assert alone.startswith("alone ") and own.startswith("hint when unsure ")
    assert " of 40 right" in alone and "asked for a hint in " in done.stdout
    assert "  hinter  " in done.stdout


def test_the_example_stays_short() -> None:
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) < 90
