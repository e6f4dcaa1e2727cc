"""How an answer must be given so that its grader can read it. Shown to whoever answers."""

from collections.abc import Sequence

INSTRUCTIONS = {
    "math": r"Please reason step by step, and put your final answer within \boxed{}.",
    "code": "Give the whole function, with its imports, in one ```python block.",
    "choice": r"Reason briefly, and put {choices} within \boxed{}.",
    "span": "Reason briefly, and end with a line `Answer: …` of as few words as possible.",
    "chess": r"Reason briefly, and put the move, in standard algebraic notation, within \boxed{}.",
}


def instruction(grader: str, choices: Sequence[str] | None = None) -> str:
    r"""Example: instruction("choice", ["yes", "no"]) asks to put yes or no within \boxed{}."""
    *others, last = choices or ["your choice"]
    listed = f"{', '.join(others)} or {last}" if others else last
    return INSTRUCTIONS.get(grader, "").replace("{choices}", listed)
