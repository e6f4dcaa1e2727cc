"""How an answer must be given so that its grader can read it. Shown to whoever answers."""

from collections.abc import Sequence


def choose_from(choices: Sequence[str]) -> str:
    r"""Example: choose_from(["yes", "no"]) asks to put yes or no within \boxed{}."""
    listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return rf"Reason briefly, and put {listed} within \boxed{{}}."


INSTRUCTIONS = {
    "math": r"Please reason step by step, and put your final answer within \boxed{}.",
    "code": "Give the whole function, with its imports, in one ```python block.",
    "choice": choose_from(["your choice"]),
    "chess": r"Reason briefly, and put the move, in standard algebraic notation, within \boxed{}.",
}
"""By the name of the grader."""
