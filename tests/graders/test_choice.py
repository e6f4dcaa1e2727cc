"""One-of-a-few answers: what counts as the choice a text settles on."""

import pytest

from tacit.errors import GradingError
from tacit.graders.choice import LETTERS, YES_NO, grade, read_choice
from tacit.types import Task


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        (r"\boxed{Yes}", "yes"),
        (r"No. Wait: \boxed{\text{no}.}", "no"),
        (r"\boxed{True}", "yes"),
        (r"\boxed{\text{not plausible}}", "no"),
        (r"\boxed{yes or no}", ""),
        (r"\boxed{maybe} but I would say yes", ""),
        ("So the answer is yes, although no bird can fly there.", "yes"),
        ("The answer is false.", "no"),
        ("Answer: yes or no", ""),
        ('The answer is "no".', "no"),
        ("Yes, he could have.", "yes"),
        ("**No**, that is implausible.", "no"),
        ("I first thought no. On reflection: yes", "yes"),
        ("Yes. There is no evidence against it", "yes"),
        ("This yes/no question is hard. Yes", "yes"),
        ("It is not plausible.", "no"),
        ("It isn't true.", "no"),
        ("Nobody knows; eyes on the north", ""),
        ("The answer is no because he left.", "no"),
        ("The answer is yes because no one knows", "yes"),
        ("Yes, no doubt about it", "yes"),
        ("Yes, and no one would deny it", "yes"),
        ("yes rather than no", "yes"),
        ("It is no, not yes", "no"),
        ("It can't be true", "no"),
        ("True or false? False.", "no"),
        (r"Yes. \boxed{no", "yes"),
        ("", ""),
    ],
)
def test_yes_and_no_are_read(text: str, choice: str) -> None:
    assert read_choice(text, YES_NO) == choice


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        (r"\boxed{(B)}", "B"),
        (r"\boxed{b}", "B"),
        (r"\boxed{\textbf{(B) } 12}", "B"),
        ("The answer is (B) because A man knows", "B"),
        ("It must be C. A man told me so", "C"),
        ("Options A, B and D fail, so D", "D"),
        ("a car", ""),
        ("The answer is A because B is wrong", "A"),
        ("It is A because B is wrong", "A"),
        ("B) because A) is wrong", "B"),
        ("Option C, since A and B fail", "C"),
        ("A was tempting because of x, so B", "B"),
        ("Since A fails, B", "B"),
        ("It is A because B is wrong. On reflection: B", "B"),
        ("B, not A", "B"),
        ("The answer is not A but B", "B"),
        ("I choose B instead of C", "B"),
        ("A or B? B", "B"),
        ("neither A nor B, so C", "C"),
    ],
)
def test_letters_are_read(text: str, choice: str) -> None:
    assert read_choice(text, LETTERS) == choice


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("neither yes nor no", YES_NO),
        ("The answer is neither yes nor no.", YES_NO),
        ("Yes and no", YES_NO),
        ("The answer is yes and no", YES_NO),
        ("Yes and no are both possible", YES_NO),
        ("yes, but also no", YES_NO),
        ("maybe yes, maybe no", YES_NO),
        ("It is partly true and partly false", YES_NO),
        ("Yes/No", YES_NO),
        (r"\boxed{neither yes nor no}", YES_NO),
        (r"\boxed{yes", YES_NO),
        ("A or B", LETTERS),
        ("A, B", LETTERS),
        ("(A) or (B)", LETTERS),
        ("The answer is either A or C", LETTERS),
        ("Either A or B is correct", LETTERS),
        ("A and B are correct", LETTERS),
        ("neither A nor B", LETTERS),
        (r"\boxed{A or B}", LETTERS),
        (r"\boxed{not A}", LETTERS),
        ("red or blue", ("Red", "Blue")),
    ],
)
def test_a_hedge_is_no_answer(text: str, choices: tuple[str, ...]) -> None:
    assert read_choice(text, choices) == ""


def test_words_of_the_task_are_read_as_it_writes_them() -> None:
    colours = ("Red", "Dark red", "Blue")
    assert read_choice("not blue but dark red", colours) == "Dark red"
    assert read_choice(r"\boxed{BLUE}", colours) == "Blue"
    assert read_choice("blueish", colours) == ""


async def test_the_grade_compares_choices() -> None:
    task = Task(id="t", question="?", answer="yes", grader="choice", data={"choices": YES_NO})
    right = await grade(task, r"\boxed{True}")
    wrong = await grade(task, r"\boxed{no}")
    assert (right.right, right.reward, right.answer) == (True, 1.0, "yes")
    assert (wrong.right, wrong.reward, wrong.answer) == (False, 0.0, "no")


async def test_choices_are_guessed_from_the_reference() -> None:
    letter = Task(id="t", question="?", answer="(D)", grader="choice")
    assert (await grade(letter, "Surely D.")).right
    word = Task(id="t", question="?", answer="false", grader="choice")
    assert (await grade(word, "No")).right


async def test_a_reference_outside_the_choices_is_an_error() -> None:
    task = Task(id="t", question="?", answer="perhaps", grader="choice", data={"choices": YES_NO})
    with pytest.raises(GradingError, match="none of the choices"):
        await grade(task, "yes")
