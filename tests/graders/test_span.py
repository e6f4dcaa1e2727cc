"""Short answers in words. The numbers are worked out by hand from HotpotQA's evaluation."""

import pytest

from tacit.grading import grade, read_answer
from tacit.types import Task


def task(answer: str, *aliases: str) -> Task:
    return Task(id="t", question="?", answer=answer, grader="span", data={"aliases": aliases})


@pytest.mark.parametrize(
    ("wanted", "text", "f1", "right"),
    [
        ("Chief of Protocol", "Answer: chief of protocol.", 1.0, True),
        ("The U.S. Army", "Answer: US army", 1.0, True),
        # 2 words in common of 3 and 3: precision 2/3, recall 2/3.
        ("Chief of Protocol", "Answer: Chief of Staff", 2 / 3, False),
        # 1 of 4 words (the article is dropped), recall 1: 2 · ¼ · 1 / (¼ + 1).
        ("1755", "Answer: in the year 1755 perhaps", 0.4, False),
        # A word that is given twice counts twice only if the reference has it twice.
        ("New York", "Answer: New New York", 0.8, False),
        ("Paris", "Answer: London", 0.0, False),
        # Yes and no share nothing with longer answers, on either side.
        ("yes", "Answer: yes, it is", 0.0, False),
        ("No Doubt", "Answer: no", 0.0, False),
        ("no", "Answer: No.", 1.0, True),
        ("yes", "Answer: no", 0.0, False),
        ("Paris", "", 0.0, False),
        ("Paris", "Answer: the", 0.0, False),
    ],
)
async def test_f1_and_exact_match(wanted: str, text: str, f1: float, right: bool) -> None:
    graded = await grade(task(wanted), text)
    assert graded.reward == pytest.approx(f1)
    assert graded.right is right


async def test_the_best_of_the_references_counts() -> None:
    wanted = task("Vito Corleone", "Vito Andolini", "The Godfather")
    assert (await grade(wanted, "Answer: Godfather")).right
    assert (await grade(wanted, "Answer: Vito Andolini Corleone")).reward == pytest.approx(0.8)
    assert (await grade(wanted, "Answer: Michael")).reward == 0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("First London.\nAnswer: Paris", "paris"),
        ("Answer: London\nNo, wait.\n**Answer:** Paris**", "paris"),
        ("Final answer:\nParis", "paris"),
        ("So the answer is Dr. No, of 1962", "dr no of 1962"),
        (r"Answer: London, or \boxed{Paris}", "paris"),
        ("It lies in France.\nParis\n\n", "paris"),
        (r"Paris \boxed{Lon", "paris"),
        ("  \n", ""),
    ],
)
def test_where_the_answer_is_read(text: str, answer: str) -> None:
    assert read_answer(task("Paris"), text) == answer
