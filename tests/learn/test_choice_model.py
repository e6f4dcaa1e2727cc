"""How contexts of the choice to speak are cut into parts that are computed at once."""

import pytest

from tacit.learn.choice_model import cut
from tests.learn.test_update import PROMPTS, make_choices, make_policies, make_updater


@pytest.mark.parametrize(
    ("sizes", "most", "parts"),
    [
        ([450] * 5, 1000, [[0, 1], [2, 3], [4]]),
        ([3, 4, 10, 1], 8, [[0, 1], [2], [3]]),
        ([5, 5], 3, [[0], [1]]),
        ([], 8, []),
    ],
)
def test_parts_hold_as_much_as_they_may(
    sizes: list[int], most: int, parts: list[list[int]]
) -> None:
    assert cut(sizes, most) == parts


def test_the_parts_do_not_matter() -> None:
    policy = make_policies()["team"]
    choice, points = make_updater(policy).choice, make_choices(policy, PROMPTS, gain=0.0)
    found = []
    for tokens in (1, 100_000):
        choice.tokens = tokens
        found.append(choice.look(points).tolist())
    assert found[0] == pytest.approx(found[1], abs=1e-5)
