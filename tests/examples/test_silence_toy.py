"""The toy shows what it says, and would not if the estimator were wrong."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "examples" / "silence_toy.py"
SOLO = 0.675


@pytest.fixture(scope="module")
def toy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("silence_toy", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ends(toy: ModuleType) -> dict[str, Any]:
    return {variant: toy.simulate(variant) for variant in toy.VARIANTS}


def test_plain_sampling_collapses_into_silence(ends: dict[str, Any]) -> None:
    end = ends["none"]
    assert end.silent_easy > 0.95 and end.silent_hard > 0.95
    assert end.accuracy == pytest.approx(SOLO, abs=0.01)


def test_arms_are_silent_where_silence_pays_and_only_there(ends: dict[str, Any]) -> None:
    end = ends["arms"]
    assert end.accuracy > 0.85
    assert end.silent_easy > 0.9 and end.silent_hard < 0.1


def test_the_floor_helps_against_the_leaning_and_hurts_everywhere(ends: dict[str, Any]) -> None:
    assert ends["arms"].accuracy > ends["no floor"].accuracy + 0.01
    assert ends["no floor"].accuracy > ends["floor everywhere"].accuracy + 0.01
    assert ends["floor everywhere"].accuracy > SOLO + 0.01


def test_a_flipped_sign_of_the_choice_is_never_silent(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = toy.choice_step
    monkeypatch.setattr(toy, "choice_step", lambda p, gain, settings: -right(p, gain, settings))
    assert toy.simulate("arms", steps=100).silent_easy < 0.01


def test_the_example_stays_short() -> None:
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) < 100
