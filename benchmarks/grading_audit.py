"""Audits the graders on whole benchmarks: references must be graded right, spoilt answers wrong.

    python benchmarks/grading_audit.py --data DIR [--only gsm8k --only math] [--json OUT]

References are fed as a model would give them: the benchmark's own solution where it states its
answer as a model must (a box, ####), else the answer in a box, else code in a block. Spoilt are:
the answer + 1, the next row's answer that is written differently, an empty function body, the
other choice, another legal move. Nothing is excused as "equal by chance": every spoilt answer
graded right is listed with what it was compared with. Two checks have no bar: "unboxed" (the answer
in a sentence) and "rewritten" (a fraction doubled above and below, a formula as sympy prints it),
which is where math-verify itself is tested: the references are the same text.
"by hand" is no benchmark but the answers that a grader has once got wrong.
Exit code 1 when a bar is missed.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tacit.errors import ConfigError, GradingError
from tacit.graders.number import read_number
from tacit.grading import grade
from tacit.tasks import find_benchmark, load_tasks
from tacit.tasks.source import Row, locate, read_rows
from tacit.types import Grade, Task

Texts = Callable[[Sequence[Task], Sequence[Row]], list[str]]
"""One text to grade for each task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One way to answer every task of a set, and how many may or must come out right."""

    name: str
    texts: Texts
    at_least: float = 0.0
    at_most: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a check went. Exceptions are the texts graded against the check's intent."""

    check: str
    rows: int
    right: int
    held: bool
    bar: str
    seconds: float
    exceptions: list[dict[str, str]] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    """Ids of answers graded wrong because their comparison hit its deadline."""


def solutions(tasks: Sequence[Task], rows: Sequence[Row]) -> list[str]:
    texts = (row.get("solution", row.get("answer")) for row in rows)
    return [
        text
        if isinstance(text, str) and (r"\boxed" in text or "####" in text)
        else boxed(task.answer)
        for task, text in zip(tasks, texts, strict=True)
    ]


def boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"


def references(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    return [boxed(task.answer) for task in tasks]


def unboxed(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    bare = (" ".join(re.sub(r"(?<!\\)\$", "", task.answer).split()) for task in tasks)
    return [f"The answer is ${answer}$." for answer in bare]


def rewritten(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    return [boxed(_rewritten(task.answer)) for task in tasks]


def _rewritten(answer: str) -> str:
    import sympy

    from tacit.graders.symbolic import parse

    if number := read_number(answer):
        top, bottom = number.value.as_integer_ratio()
        return rf"\frac{{{2 * top}}}{{{2 * bottom}}}" + (r"\%" if number.percent else "")
    parsed = parse(answer)
    return answer if parsed is None else sympy.latex(parsed)


def plus_one(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    return [boxed(_plus_one(task.answer)) for task in tasks]


def _plus_one(answer: str) -> str:
    number = read_number(answer)
    if number is None:
        return f"{answer} + 1"
    value = number.value + 1
    sign = r"\%" if number.percent else ""
    return f"{_decimal(value)}{sign}"


def _decimal(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def next_answer(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    answers = [task.answer for task in tasks]
    return [boxed(_next_different(answers, index)) for index in range(len(answers))]


def _next_different(answers: Sequence[str], index: int) -> str:
    own = "".join(answers[index].split())
    for step in range(1, len(answers)):
        other = answers[(index + step) % len(answers)]
        if "".join(other.split()) != own:
            return other
    raise ValueError("all answers are written alike")


def code_block(code: str) -> str:
    return f"```python\n{code}\n```"


def reference_code(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    return [code_block(task.answer) for task in tasks]


def empty_body(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    return [code_block(_empty(task)) for task in tasks]


def _empty(task: Task) -> str:
    if task.data["prompt"]:
        return f"{task.data['prompt']}    pass\n"
    return f"def {task.data['entry_point']}(*args, **kwargs):\n    pass\n"


def other_choice(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    return [boxed("no" if task.answer == "yes" else "yes") for task in tasks]


def other_move(tasks: Sequence[Task], _: Sequence[Row]) -> list[str]:
    return [boxed(_other_move(task, index)) for index, task in enumerate(tasks)]


def _other_move(task: Task, index: int) -> str:
    from tacit.benchmarks.checkmate import position, read_move

    board = position(task)
    wanted = read_move(board, task.answer.rstrip("#+"))
    others = sorted(board.san(move) for move in board.legal_moves if move != wanted)
    return others[index % len(others)]


def maths(bar: float, *, spoilt: float = 0.005) -> tuple[Check, ...]:
    return (
        Check(name="reference", texts=solutions, at_least=bar),
        Check(name="unboxed", texts=unboxed),
        Check(name="rewritten", texts=rewritten),
        Check(name="answer + 1", texts=plus_one, at_most=spoilt),
        Check(name="another row's", texts=next_answer, at_most=spoilt),
    )


CODE = (
    Check(name="reference", texts=reference_code, at_least=1.0),
    Check(name="empty body", texts=empty_body, at_most=0.0),
)
CHOICE = (
    Check(name="reference", texts=references, at_least=1.0),
    Check(name="other choice", texts=other_choice, at_most=0.0),
)
CHESS = (
    Check(name="reference", texts=references, at_least=1.0),
    Check(name="another move", texts=other_move, at_most=0.0),
)
BY_HAND = "by hand"
MATE = {"moves": "1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4."}
DIES = "import os\nclass X:\n  def __str__(s): os._exit(0)\ndef f(): return X()"
HAND_MADE: dict[bool, dict[str, list[tuple[str, str]]]] = {
    True: {
        "math": [
            ("3/2", "1 1/2"),
            ("-3/2", "-1 1/2"),
            ("1000", r"1\,000"),
            ("x=5", "5"),
            (r"\{1,2\}", "2, 1"),
            ("(1,234)", "(1, 234)"),
            ("1/3", r"0.\overline{3}"),
            ("1/3", "0.333333"),
            (r"(-\infty,1)\cup(2,\infty)", "x<1 or x>2"),
            ("0.001", "10^-3"),
            ("8", "2**3"),
            ("1", r"\tan 45^\circ"),
            (r"\sqrt{0.5}", r"\frac{\sqrt2}{2}"),
        ],
        "choice": [("A", "The answer is A because B is wrong"), ("yes", "Yes, no doubt about it")],
        "chess": [("Qxf7#", "Qxf7# (not Bxf7+)")],
    },
    False: {
        "math": [
            ("11/2", "1 1/2"),
            ("12", "1 2"),
            ("3", "1 2"),
            ("x=5", "y=5"),
            ("(1,2)", r"\{1,2\}"),
            ("(1,234)", "1,234"),
            ("12", "\\boxed{12"),
            (r"\pi", "3.14159265"),
            (r"\sqrt{2}", "1.41421356"),
            ("e", "2.718281828"),
            (r"\ln 2", "0.693147181"),
        ],
        "choice": [
            ("yes", "neither yes nor no"),
            ("no", "neither yes nor no"),
            ("no", "Yes and no"),
            ("B", "A or B"),
        ],
        "chess": [("Qxf7#", "Bxf7+ (not Qxf7#)"), ("Qxf7#", "Bxf7+ or Qxf7#")],
        "code": [("", DIES)],
    },
}
"""Whether they are right, their grader, and reference and answer of each."""


def hand_made(right: bool) -> tuple[list[Task], list[str]]:
    data: dict[str, dict[str, str]] = {
        "chess": MATE,
        "code": {"entry_point": "f", "tests": "x = f()\nif x != 1: raise ValueError(x)"},
    }
    tasks, texts = [], []
    for grader, cases in HAND_MADE[right].items():
        for number, (reference, text) in enumerate(cases):
            name = f"{BY_HAND}/{grader}/{number}"
            given = data.get(grader, {})
            tasks.append(Task(id=name, question="?", answer=reference, grader=grader, data=given))
            texts.append(boxed(text) if grader == "math" and "boxed" not in text else text)
    return tasks, texts


AUDITS: dict[str, tuple[str, int, tuple[Check, ...]]] = {
    "gsm8k": ("test", 1319, maths(1.0, spoilt=0.0)),
    "math": ("test", 5000, maths(0.995)),
    "math500": ("test", 500, maths(0.99)),
    "aime24": ("test", 30, maths(0.99)),
    "amc23": ("test", 40, maths(0.99)),
    "minerva_math": ("test", 272, maths(0.99)),
    "olympiadbench": ("test", 675, maths(0.99)),
    "humaneval": ("test", 164, CODE),
    "mbpp": ("all", 974, CODE),
    "mbpp_sanitized": ("all", 427, CODE),
    "strategyqa": ("bigbench", 2290, CHOICE),
    "sports_understanding": ("bigbench", 1000, CHOICE),
    "checkmate_in_one": ("test", 3500, CHESS),
}
"""The split audited, its number of rows, and its checks."""
SETS = [*AUDITS, BY_HAND]


async def audit(name: str, folder: Path, progress: Progress) -> list[Outcome]:
    """All checks of one benchmark."""
    split, count, checks = AUDITS[name]
    tasks = load_tasks(name, split=split, folder=folder)
    rows = [row for _, row in read_rows(locate(folder, find_benchmark(name).splits[split].file))]
    if not len(tasks) == len(rows) == count:
        raise ConfigError(f"{name}/{split}: {len(tasks)} tasks, expected {count}: check the file")
    bar = progress.add_task(name, total=count * len(checks))
    return [await run_check(check, tasks, rows, lambda: progress.advance(bar)) for check in checks]


async def audit_by_hand() -> list[Outcome]:
    """The right answers must be graded right, the wrong ones wrong."""
    outcomes = []
    for right, name in ((True, "right"), (False, "wrong")):
        tasks, texts = hand_made(right)
        bar = {"at_least": 1.0} if right else {"at_most": 0.0}
        check = Check(name=name, texts=lambda *_, texts=texts: texts, **bar)
        outcomes.append(await run_check(check, tasks, (), lambda: None))
    return outcomes


async def run_check(
    check: Check, tasks: Sequence[Task], rows: Sequence[Row], advance: Callable[[], None]
) -> Outcome:
    started = time.perf_counter()
    gate = asyncio.Semaphore(2 * (os.cpu_count() or 1))

    async def one(task: Task, text: str) -> Grade | str:
        async with gate:
            try:
                return await grade(task, text)
            except GradingError as error:
                return str(error)
            finally:
                advance()

    texts = check.texts(tasks, rows)
    results = await asyncio.gather(*map(one, tasks, texts))
    return _outcome(check, tasks, texts, results, time.perf_counter() - started)


def _outcome(
    check: Check,
    tasks: Sequence[Task],
    texts: Sequence[str],
    results: Sequence[Grade | str],
    seconds: float,
) -> Outcome:
    grades = list(zip(tasks, texts, results, strict=True))
    right = sum(isinstance(result, Grade) and result.right for result in results)
    errors = [{"id": task.id, "error": r} for task, _, r in grades if isinstance(r, str)]
    wants_right = check.at_most == 1.0
    return Outcome(
        check=check.name,
        rows=len(tasks),
        right=right,
        held=check.at_least <= right / len(tasks) <= check.at_most and not errors,
        bar=_bar(check),
        seconds=round(seconds, 1),
        exceptions=[
            {"id": task.id, "reference": task.answer[:200], "given": text[-200:]}
            for task, text, result in grades
            if isinstance(result, Grade) and result.right is not wants_right
        ],
        errors=errors,
        undecided=[
            task.id
            for task, _, result in grades
            if isinstance(result, Grade) and result.note.startswith("undecided")
        ],
    )


def _bar(check: Check) -> str:
    if check.at_least:
        return f"≥ {100 * check.at_least:g} %"
    return f"≤ {100 * check.at_most:g} %" if check.at_most < 1.0 else ""


def show(results: dict[str, list[Outcome]], console: Console) -> None:
    table = Table(title="Grading audit", box=box.SIMPLE_HEAD)
    for column in ("benchmark", "answers fed", "graded right", "bar", ""):
        table.add_column(column, justify="right" if "right" in column else "left", no_wrap=True)
    for name, outcomes in results.items():
        for index, outcome in enumerate(outcomes):
            table.add_row(
                name if index == 0 else "",
                outcome.check,
                f"{outcome.right}/{outcome.rows}",
                outcome.bar,
                _verdict(outcome),
                end_section=index == len(outcomes) - 1,
            )
    console.print(table)
    for name, outcomes in results.items():
        for outcome in outcomes:
            _show_exceptions(name, outcome, console)


def _verdict(outcome: Outcome) -> str:
    if not outcome.held:
        return "[red]MISSED[/]"
    return "[green]held[/]" if outcome.bar else ""


def _show_exceptions(name: str, outcome: Outcome, console: Console) -> None:
    if outcome.undecided:
        console.print(
            f"\n{name}, {outcome.check}: {len(outcome.undecided)} hit the deadline (wrong)"
        )
    if not outcome.exceptions and not outcome.errors:
        return
    console.print(f"\n[bold]{name}, {outcome.check}[/]: exceptions")
    for item in outcome.exceptions:
        shown = " ".join(item["given"].split())[-90:]
        console.print(
            f"  {item['id']}: {item['reference']!r} against {shown!r}", markup=False, soft_wrap=True
        )
    for item in outcome.errors:
        console.print(f"  {item['id']}: ERROR {item['error']}", markup=False, soft_wrap=True)


async def run(names: Sequence[str], folder: Path, console: Console) -> dict[str, list[Outcome]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        return {
            name: await (audit_by_hand() if name == BY_HAND else audit(name, folder, progress))
            for name in names
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the original files")
    parser.add_argument("--only", action="append", choices=SETS, help="may be repeated")
    parser.add_argument("--json", type=Path, help="write the outcome here as well")
    options = parser.parse_args()
    try:
        results = asyncio.run(run(options.only or SETS, options.data, Console(stderr=True)))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    show(results, Console())
    if options.json:
        content: dict[str, Any] = {
            name: [asdict(o) for o in found] for name, found in results.items()
        }
        options.json.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return 0 if all(outcome.held for found in results.values() for outcome in found) else 1


if __name__ == "__main__":
    sys.exit(main())
