"""Mathematics: finding the answer in a text, plain numbers, and formulas through math-verify."""

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from tacit.errors import GradingError
from tacit.graders.final_answer import boxes, final_answer
from tacit.graders.latex import clean, flat, parts
from tacit.graders.math import decide, grade
from tacit.graders.number import read_number
from tacit.grading import read_answer
from tacit.types import Task


def task(answer: str) -> Task:
    return Task(id="t", question="?", answer=answer, grader="math")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}, no, \boxed{6}.", "6"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\fbox{8}", "8"),
        (r"\boxed 9.", "9"),
        (r"It is \boxed{3}. I put it in \boxed{}.", "3"),
        (r"The answer is 4. \boxed{\frac{1}{2", "4"),
        ("3 + 4 = 7\n#### 7", "7"),
        (r"The answer is $\frac{1}{2}$.", r"\frac{1}{2}"),
        (r"The answer is $\$1,500$.", r"\$1,500"),
        ("The final answer: **12**", "12"),
        ("The answer to the question is 7 (not 8).", "7"),
        ("The answer is 18 dollars, because 20 - 2 = 18.", "18"),
        ("Answer: x = 5.", "x = 5"),
        ("He paid $1,200.50 for 3/4 of it", "3/4"),
        ("first 3\nthen 1,234.5", "1,234.5"),
        (r"\boxed{12", ""),
        (r"The answer is \boxed{12", ""),
        (r"so 12 \boxed{\begin{pmatrix} 1 \\ 7", "12"),
        ("The answer is 1 1/2 cups.", "1 1/2"),
        ("He needs 1 1/2 cups", "1 1/2"),
        (r"He needs 1\frac{1}{2} cups", r"1\frac{1}{2}"),
        ("nothing here", ""),
        ("", ""),
    ],
)
def test_the_final_answer_is_found(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_neighbouring_boxes_are_joined_only_for_lists() -> None:
    text = r"not \boxed{9}. So $x = \boxed{1}$ or $\boxed{2}$."
    assert final_answer(text) == "2"
    assert final_answer(text, several=True) == "1, 2"


def test_many_unclosed_boxes_take_one_pass() -> None:
    assert boxes(r"\boxed{" * 20_000) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", Fraction(18)),
        ("025", Fraction(25)),
        ("-3.50", Fraction(-7, 2)),
        ("−3", Fraction(-3)),
        (".5", Fraction(1, 2)),
        ("1,234,567", Fraction(1234567)),
        (r"1{,}234", Fraction(1234)),
        (r"\$12,\!345.60", Fraction(1234560, 100)),
        (r"-\$0.50", Fraction(-1, 2)),
        ("3/4", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\dfrac34", Fraction(3, 4)),
        (r"\frac{360}7", Fraction(360, 7)),
        (r"2\frac12", Fraction(5, 2)),
        (r"137 \frac{1}{2}", Fraction(275, 2)),
        ("4e3", Fraction(4000)),
        (r"1.2 \times 10^{-2}", Fraction(12, 1000)),
        (r"10^{-3}", Fraction(1, 1000)),
        ("x = 5", Fraction(5)),
        (r"\textbf{(113) }", Fraction(113)),
        (r"18\text{ ways.}", Fraction(18)),
        (r"144 \mbox{ m}^3", Fraction(144)),
        (r"45^\circ", Fraction(45)),
        ("5 cm^2", Fraction(5)),
        ("5cm", Fraction(5)),
        ("7 apples per day.", Fraction(7)),
        ("3 million", Fraction(3_000_000)),
        ("1 1/2", Fraction(3, 2)),
        ("-1 1/2", Fraction(-3, 2)),
        (r"-1\frac12", Fraction(-3, 2)),
        ("1 1/2 cups", Fraction(3, 2)),
        ("2 ¾", Fraction(11, 4)),
        ("1½", Fraction(3, 2)),
        ("½", Fraction(1, 2)),
        ("1 000 000", Fraction(1_000_000)),
        (r"12\,345.5", Fraction(24691, 2)),
        (r"(1,\!234)", Fraction(1234)),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"-2.1\overline{6}", Fraction(-13, 6)),
        (r"0.\bar{9}\%", Fraction(1)),
        ("10^-3", Fraction(1, 1000)),
        (r"5 \times 10**-3", Fraction(5, 1000)),
    ],
)
def test_plain_numbers_are_read_exactly(text: str, value: Fraction) -> None:
    number = read_number(text)
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize(
    "text",
    [
        "5x",
        "3 pi",
        r"3\pi",
        "1,2",
        "(1,2)",
        "2500,7500",
        "1/0",
        "1e999999",
        "6 m",
        "",
        "abc",
        "5 or 6",
        "1 2",
        "12 34",
        "(1,234)",
        "(1,234,567)",
        "(1,234.5)",
    ],
)
def test_other_text_is_no_plain_number(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("18", "18.0", True),
        ("18", "19", False),
        ("1000000", "1000001", False),
        ("7.02e5", "702001", False),
        ("1e-8", "2e-8", False),
        (r"\frac{1}{2}", "0.5", True),
        (r"\frac{1}{3}", "0.333333", True),
        (r"\frac{1}{3}", "0.3333", False),
        (r"\frac{1}{3000000}", "0.000000", False),
        ("0.5", "0.500001", False),
        (r"50\%", "50", True),
        (r"50\%", "0.5", True),
        ("50", r"50\%", True),
        (r"50\%", r"0.5\%", False),
        (r"\text{Friday}", "friday", True),
        (r"\text{(C)}", "C", True),
        (r"\left( 3, \dfrac12 \right)", r"(3,\frac{1}{2})", True),
        (r"1012_{3}", "1012_3", True),
        ("1012_3", "1012", True),
        ("1012", "1012_3", True),
        ("1012_3", "1012_4", False),
        ("1012_3", "1013", False),
        ("$A$, $B$", r"B \text{ and } A", True),
        (r"\text{A, D}", "D,A", True),
        ("-1,-9", "", False),
        ("5", "", False),
        ("x=5", "5", True),
        ("5", "y=5", True),
        ("x=5", "y=5", False),
        ("k = 1/2", "m=0.5", False),
        ("11/2", "1 1/2", False),
        (r"\frac{1}{3}", r"0.\overline{3}", True),
        (r"\frac{3}{10}", r"0.\overline{3}", False),
    ],
)
def test_settled_without_algebra(reference: str, answer: str, right: bool) -> None:
    assert decide(reference, answer) is right


def writings(value: Fraction) -> list[str]:
    """One number in the ways people write it."""
    sign, (top, bottom) = "-" * (value < 0), abs(value).as_integer_ratio()
    whole, rest = divmod(top, bottom)
    ways = [
        f"{sign}{top}/{bottom}",
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        f"x = {sign}{top}/{bottom}",
    ]
    if rest:
        ways += [f"{sign}{whole} {rest}/{bottom}", rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}"]
    digits: list[str] = []
    seen: dict[int, int] = {}
    while rest not in seen:
        seen[rest] = len(digits)
        digits.append(str(10 * rest // bottom))
        rest = 10 * rest % bottom
    fixed, repeated = "".join(digits[: seen[rest]]), "".join(digits[seen[rest] :])
    if len(repeated) <= 40:
        ways.append(rf"{sign}{whole}.{fixed}\overline{{{repeated}}}")
    return ways


NUMBERS = st.fractions(-2000, 2000, max_denominator=60)


@given(NUMBERS, NUMBERS)
def test_a_number_equals_itself_however_written_and_no_other(
    one: Fraction, other: Fraction
) -> None:
    for first in writings(one):
        assert all(decide(first, second) for second in writings(one))
        assert one == other or not any(decide(first, second) for second in writings(other))


def test_latex_is_rewritten_without_changing_it() -> None:
    assert clean(r"\tfrac 9{20}\,\text{ cm}^2.") == r"\frac{9}{20}"
    assert clean(r"\sqrt2 + \frac\pi3") == r"\sqrt{2} + \frac{\pi}{3}"
    assert clean(r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}") == r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"
    assert flat(r"\left[ 0, \infty \right)") == r"[0,\infty)"
    assert parts(r"(1,2), 3{,}000 \text{ or } x") == ["(1,2)", " 3000", " x"]


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (r"2\sqrt{3}", r"\sqrt{12}"),
        ("x^2+2x+1", "(x+1)^2"),
        ("7", r"\sqrt{49}"),
        (r"(1+i)^2", "2i"),
        ("1,2", r"\{2, 1\}"),
        (r"1 \pm \sqrt{19}", r"1-\sqrt{19}, 1+\sqrt{19}"),
        (r"[0,1)", r"0 \le x < 1"),
        (r"x \in [-2,7]", "[-2,7]"),
        (r"(2,\infty)", r"(2,+\infty)"),
        ("f(x)=2x", "2x"),
        ("y = 2x", "2x"),
        (r"\begin{pmatrix} 1 \\ 7 \end{pmatrix}", r"\begin{bmatrix}1\\7\end{bmatrix}"),
        ("(3,2),(-3,2)", "(-3,2), (3,2)"),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}"),
        (r"8\sqrt{3}", r"8\sqrt{3}\text{ in}^2"),
        (r"8\sqrt{3}", r"8\sqrt{3} cm"),
        ("2^{1009}", r"2\cdot 2^{1008}"),
        (r"\sqrt{0.5}", r"\frac{\sqrt{2}}{2}"),
        ("0.5x", r"\frac{x}{2}"),
        ("0.1+0.2", "0.3"),
        (r"(\frac{1}{3}, 2)", "(0.333333, 2)"),
        ("(2.5, 1.5)", "2.5, 1.5"),
        (r"(1{,}234, 5)", "(1234, 5)"),
        ("(1,234)", "(1, 234)"),
        ("1,2", "(1,2)"),
        (r"\{(1,2)\}", "(1,2)"),
        (r"\{(1,2),(3,4)\}", "(3,4), (1,2)"),
        (r"\frac{x}{3}", r"0.\overline{3}x"),
        (r"\frac{5\pi}{2}", r"2 1/2 \pi"),
        ("x<1 or x>2", r"(-\infty,1)\cup(2,\infty)"),
        (r"(-\infty,1]\cup[2,\infty)", r"x \ge 2 \text{ or } x \le 1"),
        ("(1,2)", "x>1 and x<2"),
        ("8", "2**3"),
        ("x^2", "x**2"),
        (r"\frac{1}{x}", "x^-1"),
        ("1", r"\tan 45^\circ"),
        (r"\frac{\sqrt{3}}{2}", r"\cos(30°)"),
        (r"\frac{1}{4}", r"\sin^2 30^{\circ}"),
        ("3", r"\log_2 8"),
        ("6", r"\binom 4 2"),
    ],
)
async def test_equal_formulas_are_right(reference: str, answer: str) -> None:
    grade_of = await grade(task(reference), rf"\boxed{{{answer}}}")
    assert (grade_of.right, grade_of.reward, grade_of.answer) == (True, 1.0, answer)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("(1,2)", "(2,1)"),
        ("[0,1)", "(0,1)"),
        ("1,2,3", "1,2"),
        ("-1,-9", "-1"),
        ("2d", "2"),
        ("R", "r"),
        ("6m", "6"),
        (r"1e-8\pi", r"2e-8\pi"),
        ("2^{1009}", "2^{1010}"),
        ("y=2x", "y=3x"),
        ("x^2", "x^3"),
        (r"\begin{pmatrix} 1 \\ 7 \end{pmatrix}", r"\begin{bmatrix}7\\1\end{bmatrix}"),
        (r"\text{odd}", "even"),
        ("2", "(((((2"),
        ("2", r"\notacommand{"),
        ("2", "i < 1"),
        ("2", r",1,234\infty0.5e0."),
        ("5", "5 or 6"),
        ("12", "1 2"),
        ("3", "1 2"),
        ("(1,2)", r"\{1,2\}"),
        (r"\{1,2\}", "(1,2)"),
        ("(1,2,3)", r"\{1,2,3\}"),
        ("(1,234)", "1,234"),
        ("1,234", "(1,234)"),
        (r"\pi", "3.14159265"),
        (r"\pi", "3.141592653589793"),
        (r"\sqrt{2}", "1.41421356"),
        ("1.41421356", r"\sqrt{2}"),
        ("e", "2.718281828"),
        (r"\ln 2", "0.693147181"),
        (r"(\sqrt{2}, 1)", "(1.41421356, 1)"),
        (r"x=\sqrt{2}", "x=1.41421356"),
        (r"(-\infty,1)\cup(2,\infty)", "x<1 or x>3"),
        (r"(-\infty,1)\cup(2,\infty)", "x<1 and x>2"),
        ("x<1 or x>2", "y<1 or y>2"),
        ("x>0, y>1", "x>1, y>0"),
        ("x^2", "x**3"),
        (r"\sin 30", r"\sin 30^\circ"),
    ],
)
async def test_unequal_formulas_are_wrong(reference: str, answer: str) -> None:
    grade_of = await grade(task(reference), rf"The answer is: ${answer}$")
    assert (grade_of.right, grade_of.reward) == (False, 0.0)


async def test_an_endless_comparison_is_wrong_and_says_so() -> None:
    grade_of = await grade(task("2"), r"\boxed{9^{9^{9^{9}}}}")
    assert not grade_of.right
    assert grade_of.note == "undecided within 5 s"
    assert (await grade(task(r"\sqrt{8}"), r"\boxed{2\sqrt{2}}")).right


async def test_an_overlong_answer_is_wrong_and_says_so() -> None:
    grade_of = await grade(task("2"), r"\boxed{" + "1+" * 5000 + "1}")
    assert not grade_of.right
    assert "longer than" in grade_of.note


async def test_a_reference_that_is_no_formula_is_compared_as_text_and_says_so() -> None:
    reference = r"m_{\max} = 2 \mho"
    assert (await grade(task(reference), rf"\boxed{{{reference}}}")).right
    grade_of = await grade(task(reference), r"\boxed{m}")
    assert not grade_of.right
    assert "as text" in grade_of.note


@pytest.mark.parametrize(
    "text", ["1 1/" + "9" * 5000, "0." + "7" * 5000 + r"\overline{3}", "9" * 5000]
)
def test_endless_digits_are_read_as_text(text: str) -> None:
    assert read_answer(task("2"), text.replace("NINES", "9" * 5000))


@pytest.mark.parametrize("reference", ["", " ", "$$"])
async def test_an_empty_reference_is_an_error(reference: str) -> None:
    with pytest.raises(GradingError, match="empty"):
        await grade(task(reference), r"\boxed{2}")
