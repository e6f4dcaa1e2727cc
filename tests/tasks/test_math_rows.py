"""Taking the answer out of a worked solution."""

import pytest

from tacit.tasks.math import last_boxed


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so $\boxed{7}$.", "7"),
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{ x_{1}^{2} } and on", "x_{1}^{2}"),
        (r"is $\boxed 9$.", "9"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
        (r"\boxed{}", ""),
    ],
)
def test_last_boxed(solution: str, answer: str) -> None:
    assert last_boxed(solution) == answer


@pytest.mark.parametrize("solution", ["no box", r"\boxed{1"])
def test_a_solution_without_a_whole_box_is_an_error(solution: str) -> None:
    with pytest.raises(ValueError, match="boxed"):
        last_boxed(solution)
