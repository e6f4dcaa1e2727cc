"""HumanEval+ and MBPP+: many more inputs for each task, where the reference says what is right.

The tests run the reference beside the solution, on the tests' side of the sandbox. Answers may
differ by the file's `atol`, or by 1e-6 if they are floats. Contracts are not used: every input
keeps them. `data["visible"]` lists asserts that an agent may run and that do not count: examples of
the docstring (HumanEval+), or the one assert that the question shows (MBPP+).
"""

import ast
import doctest
import re
from collections.abc import Sequence
from typing import Any

from tacit.benchmarks.benchmark import Benchmark, Fields, Split
from tacit.tasks.source import Row

_QUOTES = re.compile(r'"""|\'\'\'')
_ANY_ORDER = ("common_in_nested_lists", "extract_singly", "larg_nnum")
"""Functions of MBPP whose reference answers in the order of a set."""
_COMPLEX = ("angle_complex", "convert")
"""Functions of MBPP whose arguments are complex numbers, stored as text."""
_LARGEST = {
    "string_sequence": 100_000,
    "tri": 100_000,
    "special_factorial": 250,
    "combinations_colors": 50,
    "get_max_sum": 50_000,
}
"""The last argument: with a larger one even the reference breaks the sandbox's limits."""
_WRONG = ("HumanEval/47", "HumanEval/116")
"""Tasks with an example in the docstring that the reference contradicts."""
_RULES = {
    "find_zero": "abs(sum(c * got**power for power, c in enumerate(arguments[0]))) <= {atol}",
    **dict.fromkeys(_ANY_ORDER, "set(got) == set(want)"),
}
_RULE = "close(got, want, {atol})"
_TESTS = """\
import copy, math

reference = {{}}
exec({reference!r}, reference)

def close(got, want, atol):
    if got == want:
        return True
    floats = want if isinstance(want, (list, tuple)) else [want]
    if not atol and floats and all(isinstance(one, float) for one in floats):
        atol = 1e-6
    if not atol or type(got) is not type(want):
        return False
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(close(*pair, atol) for pair in zip(got, want))
    numbers = isinstance(want, (int, float))
    return numbers and (abs(got - want) <= atol + 1e-7 * abs(want) or got != got and want != want)

for arguments in eval({inputs!r}, {{"inf": math.inf, "nan": math.nan}}):
    want = reference[{entry_point!r}](*copy.deepcopy(arguments))
    got = {entry_point}(*arguments)
    assert {rule}
"""


def _humaneval(row: Row) -> Fields:
    prompt, inputs = row["prompt"], row["base_input"] + row["plus_input"]
    visible = [] if row["task_id"] in _WRONG else examples(prompt)
    return {
        "question": f"Complete this Python function:\n\n```python\n{prompt.strip()}\n```",
        **_graded(row, prompt, inputs, visible),
    }


def examples(prompt: str) -> list[str]:
    """The doctests of a prompt whose answer is a plain value, as asserts."""
    found = []
    for example in doctest.DocTestParser().get_examples(_QUOTES.sub("\n", prompt)):
        source, want = example.source.strip(), example.want.strip()
        try:
            ast.literal_eval(want or "None")
            asked = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError):
            continue
        if want or isinstance(asked, ast.Compare):  # ">>> double(2) == 4" has no line of its own
            found.append(f"assert {source} == {want}" if want else f"assert {source}")
    return found


def _mbpp(row: Row) -> Fields:
    text, shown = row["prompt"].strip().strip('"').strip().rsplit("\n", 1)
    entry, inputs = row["entry_point"], row["base_input"] + row["plus_input"]
    if entry in _COMPLEX:
        inputs = [[complex(value) for value in arguments] for arguments in inputs]
    else:
        like = [*zip(*_calls(row["assertion"], entry), strict=True)]
        inputs = [[typed(*pair) for pair in zip(one, like, strict=True)] for one in inputs]
    return {
        "question": f"{text}\n\nYour code must pass this test:\n\n```python\n{shown}\n```",
        **_graded(row, "", inputs, [f"import math\n{shown}" if "math." in shown else shown]),
    }


def _calls(source: str, function: str) -> list[list[Any]]:
    """The arguments of every call of the function."""
    return [
        [ast.literal_eval(argument) for argument in node.args]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function
    ]


def typed(value: Any, like: Sequence[Any]) -> Any:
    """The value with tuples and sets where the asserts have them, which JSON does not know.

    Example: typed([[1, 2]], [[(3, 4)], [(5,)]]) == [(1, 2)]
    """
    if isinstance(value, list):
        kind = next((type(one) for one in like if isinstance(one, tuple | set)), list)
        inside = [item for one in like if isinstance(one, list | tuple | set) for item in one]
        return kind(typed(item, inside) for item in value)
    if isinstance(value, dict):
        inside = [item for one in like if isinstance(one, dict) for item in one.values()]
        return {key: typed(item, inside) for key, item in value.items()}
    return value


def _graded(row: Row, prompt: str, inputs: list[Any], visible: list[str]) -> Fields:
    entry, answer = row["entry_point"], prompt + row["canonical_solution"]
    seen = [arguments for one in visible for arguments in _calls(one, entry)]
    inputs = [arguments for arguments in inputs if arguments not in seen]
    if most := _LARGEST.get(entry):
        inputs = [arguments for arguments in inputs if arguments[-1] <= most]
    rule = _RULES.get(entry, _RULE).format(atol=row["atol"])
    tests = _TESTS.format(reference=answer, inputs=repr(inputs), entry_point=entry, rule=rule)
    data = {"prompt": prompt, "tests": tests, "entry_point": entry, "visible": visible}
    return {"answer": answer, "data": data}


HUMANEVAL_PLUS = Benchmark(
    name="humaneval_plus",
    grader="code",
    description="HumanEval with 80 times as many tests; docstring examples are visible",
    licence="Apache-2.0",
    splits={"test": Split(file="humaneval_plus/HumanEvalPlus.jsonl", rows=164)},
    parse=_humaneval,
)
MBPP_PLUS = Benchmark(
    name="mbpp_plus",
    grader="code",
    description="part of MBPP's test with 35 times as many tests; one assert is visible",
    licence="Apache-2.0",
    splits={
        "test": Split(
            file="mbpp_plus/MbppPlus.jsonl",
            rows=224,
            keys=frozenset(f"Mbpp/{number}" for number in range(11, 511)),
        )
    },
    parse=_mbpp,
    key="task_id",
)
