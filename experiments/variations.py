"""GSM8K's problems with other numbers in them, for Actors that have met the originals.

GSM8K's solutions carry their calculations, `<<48/2=24>>`. A number that stands once in the question
and can only mean itself there is replaced, and the calculations are done again. Where that is not
certain, or where nothing whole comes out, the problem is left out.
"""

import ast
import gzip
import json
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from random import Random

from tacit import Task, load_tasks

TRIES = 200
"""Draws of new numbers before a problem is given up."""
_STEP = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
_NUMBER = re.compile(r"(?<![\w.,/:-])\d+(?!\w|[%/:-]|[.,]\d)")
_UNTOLD = re.compile(r"=\s*[$€£]?\s*(\d[\d,]*(?:\.\d+)?)")
"""A result in the solution's prose, `= $155`, whose calculation may not be told."""
_DATE = re.compile(
    r"\b(?:(?:Jan|Febr)uary|March|April|May|June|July|August|(?:Sept|Nov|Dec)ember|October) \d"
)
_LITERAL = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_YEARS = range(1900, 2101)
_WORDS = {
    1: "one|once|single|each other",
    2: "two|twice|half|halves|double|couple|pairs?|both|second",
    3: "three|thrice|triple|thirds?",
    4: "four|fourths?|quarters?|quadruple",
    5: "five|fifths?|nickels?|weekdays?",
    6: "six|sixths?",
    7: "seven|weeks?|weekly",
    8: "eight|eighths?",
    9: "nine",
    10: "ten|tenths?|dimes?",
    11: "eleven",
    12: "twelve|dozens?|years?|months?|inch|inches|foot|feet",
    24: "days?|hours?",
    30: "months?|days?",
    52: "years?|weeks?",
    60: "hours?|minutes?|seconds?",
    100: "percent|cents?|meters?",
}
"""What may stand for a number without being one."""
_OPERATORS: Mapping[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True)
class Sum:
    """One calculation: `{0}/{1}` and what the holes are filled with."""

    form: str
    parts: tuple[Fraction | int | str, ...]
    """A constant, the place of an earlier calculation, or a number as the question has it."""
    value: Fraction


@dataclass(frozen=True, slots=True)
class Problem:
    question: str
    sums: tuple[Sum, ...]
    numbers: tuple[str, ...]
    """What can be replaced."""
    answer: Fraction


def understand(question: str, solution: str) -> Problem | None:
    """A problem whose numbers can be replaced; None where that is not certain."""
    body, _, answer = solution.rpartition("####")
    if _DATE.search(question):
        return None
    untold = {_fraction(found) for found in _UNTOLD.findall(_STEP.sub("", body))}
    asked = [number for number in _NUMBER.findall(question) if int(number) not in _YEARS]
    sums: list[Sum] = []
    try:
        for expression, stated in _STEP.findall(body):
            sums.append(_understood(expression, _fraction(stated), sums, asked))
        final = _fraction(answer)
    except (ValueError, SyntaxError, ZeroDivisionError):
        return None
    used = {part for one in sums for part in one.parts if isinstance(part, str)}
    given = {part for one in sums for part in one.parts if isinstance(part, Fraction)}
    if given & untold or any(len(one.parts) == 1 for one in sums):
        return None
    if not used or not sums or sums[-1].value != final:
        return None
    if any(_may_mean_more(number, question) for number in used):
        return None
    return Problem(question, tuple(sums), tuple(n for n in asked if n in used), final)


def _may_mean_more(number: str, question: str) -> bool:
    """Whether a calculation's number might come from elsewhere in the question."""
    everywhere = [Fraction(found) for found in _LITERAL.findall(question.replace(",", ""))]
    words = _WORDS.get(int(number))
    said = words and re.search(rf"\b(?:{words})\b", question, re.IGNORECASE)
    return bool(said) or everywhere.count(Fraction(number)) > 1


def _understood(expression: str, stated: Fraction, before: Sequence[Sum], asked: list[str]) -> Sum:
    parts: list[Fraction | int | str] = []

    def hole(found: re.Match[str]) -> str:
        value = Fraction(found[0])
        earlier = [number for number, one in enumerate(before) if one.value == value]
        mine = [number for number in asked if Fraction(number) == value]
        if (earlier and mine) or len(earlier) > 1:
            raise ValueError("it may mean either")
        parts.append(earlier[0] if earlier else mine[0] if mine else value)
        return f"{{{len(parts) - 1}}}"

    form = _LITERAL.sub(hole, expression.replace("x", "*").replace(",", ""))
    one = Sum(form, tuple(parts), stated)
    if abs(_worked_out(one, before, {})) != abs(stated):
        raise ValueError("rounded, or not what it says")
    return one


def _fraction(text: str) -> Fraction:
    return Fraction(text.strip().lstrip("$").replace(",", ""))


def _worked_out(one: Sum, before: Sequence[Sum], new: Mapping[str, int]) -> Fraction:
    filled = [
        Fraction(new.get(part, part)) if isinstance(part, str)
        else before[part].value if isinstance(part, int)
        else part
        for part in one.parts
    ]  # fmt: skip
    tree = ast.parse(one.form.format(*(f"v[{n}]" for n in range(len(filled)))).strip(), mode="eval")
    return _value(tree.body, filled)


def _value(node: ast.expr, filled: Sequence[Fraction]) -> Fraction:
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, filled), _value(right, filled))
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, filled)
        case ast.Subscript(_, ast.Constant(int() as place)):
            return filled[place]
    raise ValueError("more than the four operations")


def varied(problem: Problem, dice: Random) -> tuple[str, str] | None:
    """The question with other numbers, and its answer; None where no draw comes out well."""
    for _ in range(TRIES):
        new = {number: _another(int(number), dice) for number in problem.numbers}
        done: list[Sum] = []
        for one in problem.sums:
            try:
                value = _worked_out(one, done, new)
            except ZeroDivisionError:
                break
            if not _like(value, one.value):
                break
            done.append(Sum(one.form, one.parts, value))
        else:
            return _with(problem.question, new), str(done[-1].value)
    return None


def _with(question: str, new: Mapping[str, int]) -> str:
    return _NUMBER.sub(lambda found: str(new.get(found[0], found[0])), question)


def _another(number: int, dice: Random) -> int:
    """Half to twice as much, as round as it was."""
    step = 10 if number % 10 == 0 else 5 if number % 5 == 0 and number > 5 else 1
    low, high = max(2, -(-number // 2)), max(2 * number, number + 3)
    choices = [n for n in range(-(-low // step) * step, high + 1, step) if n != number]
    return dice.choice(choices)


def _like(value: Fraction, before: Fraction) -> bool:
    """Whole where it was whole, of the same sign, and with no more than two places."""
    whole = before.denominator > 1 or value.denominator == 1
    return whole and (value > 0) == (before > 0) and 100 % value.denominator == 0


def gsm8k(*, split: str = "train", seed: int = 0) -> list[Task]:
    """The problems of a split that can be varied, under the originals' numbers."""
    found = []
    problems = load_tasks("gsm8k", split=split)
    for number, (task, solution) in enumerate(zip(problems, _solutions(split), strict=True)):
        problem = understand(task.question, solution)
        made = problem and varied(problem, Random(f"{seed}/{number}"))
        if made:
            new = f"gsm8k-varied/{split}/{number}"
            found.append(replace(task, id=new, question=made[0], answer=made[1]))
    return found


def _solutions(split: str) -> list[str]:
    """With their calculations, which a task does not hold."""
    path = Path(os.environ.get("TACIT_DATA", "")) / "gsm8k" / f"{split}.jsonl"
    zipped = path.with_name(f"{path.name}.gz")
    text = gzip.decompress(zipped.read_bytes()) if zipped.is_file() else path.read_bytes()
    return [json.loads(line)["answer"] for line in text.splitlines() if line.strip()]
