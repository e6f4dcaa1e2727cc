"""What a run remembers of its evaluations."""

import pytest

from tacit.learn.state import State
from tests.helpers.training_runs import tiny_config

SEEN = {"eval/tokens": 100.0, "eval/turns": 1.0}
FIRST = SEEN | {"eval/accuracy": 0.30, "eval/reward": 0.40}
SECOND = SEEN | {"eval/accuracy": 0.20, "eval/reward": 0.45}
"""Less often quite right, and more often in part."""


@pytest.mark.parametrize(("older", "best"), [(False, 2), (True, 1)])
def test_a_run_goes_on_to_choose_by_what_it_has_chosen_by(older: bool, best: int) -> None:
    """A run from before rewards were ranked has exact matches to compare with."""
    state, config = State(step=1), tiny_config()
    state.remember_best(FIRST, config)
    if older:
        state.best = {"step": 1, "rank": [True, 0.30, -100.0], "turns": 1.0}
    state.step = 2
    state.remember_best(SECOND, config)
    assert state.best is not None and state.best["step"] == best
