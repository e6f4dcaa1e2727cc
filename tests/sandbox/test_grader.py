"""Right code passes, wrong code fails, and a solution that attacks its grader fails too."""

import ast
import asyncio
import json
import re
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tacit.errors import GradingError, SandboxError
from tacit.sandbox.grader import extract, grade
from tacit.sandbox.inside.wire import decode, encode
from tacit.sandbox.probe import chosen
from tacit.sandbox.rules import Limits, Method
from tacit.tasks import load_tasks
from tacit.types import Grade, Task
from tests.tasks.made_up import write_files

QUICK = Limits(cpu_seconds=1, wall_seconds=20)


@pytest.fixture(scope="module", autouse=True)
def any_sandbox() -> None:
    try:
        asyncio.run(chosen())
    except SandboxError as error:
        pytest.skip(str(error))


def code_task(tests: str, entry_point: str = "", prompt: str = "") -> Task:
    data = {"tests": tests, "entry_point": entry_point, "prompt": prompt}
    return Task(id="code/1", question="?", answer="", grader="code", data=data)


DOUBLE = code_task("assert double(2) == 4\nassert double(-3) == -6\n", "double")
HEADER = '''import math


def area(radius):
    return math.pi * radius**2


def ring(inner, outer):
    """The area between two circles."""
'''
RING = code_task(
    "def check(candidate):\n    assert abs(candidate(1, 2) - area(2) + area(1)) < 1e-9\n"
    "    assert candidate(3, 3) == 0\n\ncheck(ring)\n",
    "ring",
    HEADER,
)


async def verdict(task: Task, text: str, **options: Any) -> Grade:
    return await grade(task, text, **{"limits": QUICK} | options)


# --- reading the answer ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("first\n```python\na\n```\nthen\n```py\nb\n```\n", "b\n"),
        ("```python\na\n```\n```bash\nrun\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("1. like so:\n   ```python\n   a\n   b\n   ```", "a\nb\n"),
        ("```python\ncut off", "cut off"),
        ("no fence", "no fence"),
        ("```python\ndef f(): 1\n```\nUse it:\n```python\nf()\n```", "def f(): 1\n"),
        ("```python\nf = max\n```\nUse it:\n```python\nprint(f())\n```", "f = max\n"),
    ],
)
def test_the_code_is_taken_out_of_the_text(text: str, code: str) -> None:
    assert extract(text, "f") == code


async def test_the_answer_of_a_grade_is_the_code() -> None:
    result = await verdict(DOUBLE, "So:\n```python\ndef double(x): return x + x\n```\nDone.")
    assert result == Grade(reward=1.0, right=True, answer="def double(x): return x + x\n")


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{HEADER}    return area(outer) - area(inner)\n```",
        "def ring(a, b):\n    return area(b) - area(a)",
        "from math import pi\ndef ring(a, b): return pi * (b - a) * (b + a)",
        "    return area(outer) - area(inner)\n",
        "return area(outer) - area(inner)",
        "```python\nsmall = area(inner)\nreturn area(outer) - small\n```",
        "small = area(inner)\n    return area(outer) - small",
        "ring = lambda a, b: area(b) - area(a)",
    ],
)
async def test_a_whole_function_or_its_body_alone_will_do(text: str) -> None:
    result = await verdict(RING, text)
    assert result.right, result.note


@pytest.mark.parametrize(
    "text", ["    pass", "", "I do not know.", HEADER, "def area(r): return 0"]
)
async def test_no_body_is_wrong(text: str) -> None:
    assert not (await verdict(RING, text)).right


# --- what the tests may do with a solution ---------------------------------------------------


@pytest.mark.parametrize(
    ("tests", "solution"),
    [
        ("assert f() == 2**100", "def f(): return 2**100"),
        ("assert f() == {(1, 'a'): {2.5, None}}", "def f(): return {(1, 'a'): {2.5, None}}"),
        ("assert f() is True", "def f(): return 1 < 2"),
        ("assert f() != f()", "def f(): return float('nan')"),
        ("assert f() == [1, 2]", "class L(list): pass\ndef f(): return L([1, 2])"),
        ("assert list(f(3)) == [0, 1, 2]", "def f(n): yield from range(n)"),
        ("assert f(b'ab') == 'ab'", "def f(x): return x.decode()"),
        ("x = [3, 1]\nf(x)\nassert x == [1, 3]", "def f(x): x.sort()"),
        ("assert f(1, str) is int", "def f(x, t): return type(x) if t is str else None"),
        ("assert f(x=1) == 1", "def f(*, x): return x"),
        (
            "s = C(2)\ns.add(3)\nassert s.total == 5",
            "class C:\n  def __init__(self, n): "
            "self.total = n\n  def add(self, n): self.total += n",
        ),
        (
            "n = Node(1)\nn.next = Node(2)\nassert f(n) == 3",
            "class Node:\n  next = None\n  "
            "def __init__(self, v): self.v = v\ndef f(n): return n.v + n.next.v",
        ),
        (
            "try:\n  f(0)\n  assert False, 'no error'\nexcept ValueError as error:\n"
            "  assert str(error) == 'zero'",
            "def f(x): raise ValueError('zero')",
        ),
        ("assert math.isclose(f(), math.pi)", "def f(): return 3.14159265358979"),
        (
            "assert f() == Counter('aab')",
            "from collections import Counter\ndef f(): return Counter('baa')",
        ),
    ],
)
async def test_values_cross_between_tests_and_solution(tests: str, solution: str) -> None:
    result = await verdict(code_task(tests, "f" if "f(" in tests else ""), solution)
    assert result.right, result.note


async def test_a_function_may_have_a_builtins_name() -> None:
    task = code_task("assert sum(10, 15) == 5", "sum")
    assert (await verdict(task, "import math\nsum = math.gcd")).right


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.dates(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_cross_unchanged(value: Any) -> None:
    sent = json.loads(json.dumps(encode(value, pytest.fail)))
    received = decode(sent, pytest.fail)
    assert received == value
    assert repr(received) == repr(value)


@pytest.mark.parametrize(
    "data",
    [{}, {"a": 1}, [], ["?"], ["int"], ["type", "eval"], ["type", "nothing"], ["set", ["list"]]],
)
def test_what_is_no_value_is_refused(data: Any) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        decode(data, pytest.fail)


def test_what_is_not_plain_is_handed_to_the_caller() -> None:
    assert encode([1, print], lambda value: ["object", 7]) == ["list", 1, ["object", 7]]
    assert decode(["tuple", ["object", 7]], lambda number: number * 2) == (14,)
    assert decode(encode(Fraction(1, 3), pytest.fail), pytest.fail) == Fraction(1, 3)


# --- wrong answers, reported as what they were -----------------------------------------------


@pytest.mark.parametrize(
    ("solution", "note"),
    [
        ("def double(x): return 4", "wrong answer at `assert double(-3) == -6`"),
        ("def double(x): return x / 0", "ZeroDivisionError: division by zero"),
        ("def double(x) return x", "SyntaxError"),
        ("def triple(x): return x", "NameError: name 'double' is not defined"),
        ("def double(x):\n  while True: pass", "timeout after 1 s"),
        ("def double(x): return bytearray(20 * 2**30)", "MemoryError"),
        ("def double(x):\n  while True: print('x' * 10**6)", "output: more than 1024 kB"),
        ("import os\ndef double(x):\n  while True: os.fork()", "PermissionError"),
        ("import socket\ndef double(x): socket.socket()", "PermissionError"),
        ("def double(x): open('/usr/x', 'w')", "Error: [Errno"),
        ("def double(x): return double(x)", "RecursionError"),
        (
            "import os\ndef double(x): os._exit(0)",
            "exit: the solution ended its process with code 0",
        ),
        ("import sys\ndef double(x): sys.exit(0)", "SystemExit"),
        ("import os\ndef double(x): os.kill(os.getpid(), 9)", "killed"),
        ("x = '\udc80\0'", "UnicodeEncodeError"),
        ("(" * 100_000, ""),
        ("-" * 100_000 + "1", ""),
    ],
)
async def test_a_failure_is_a_wrong_answer_with_its_reason(solution: str, note: str) -> None:
    result = await verdict(DOUBLE, f"```python\n{solution}\n```")
    assert not result.right
    assert result.reward == 0.0
    assert note.lower() in result.note.lower()
    assert result.note


async def test_evaluation_goes_on_while_solutions_misbehave() -> None:
    good, bad = "def double(x): return 2 * x", "import os\ndef double(x): os.kill(-1, 9)"
    grades = await asyncio.gather(*(verdict(DOUBLE, [good, bad][i % 2]) for i in range(12)))
    assert [g.right for g in grades] == [True, False] * 6


# --- attacks on the verdict ------------------------------------------------------------------

PASSED = '{"status": "passed", "note": ""}'
ATTACKS = {
    "exits at once": "import os; os._exit(0)",
    "exits politely": "import sys; sys.exit(0)",
    "exits at exit": "import atexit, os, sys\natexit.register(os._exit, 0)\nsys.exit(1)",
    "prints the verdict": f"print('{PASSED}', flush=True)\nimport os; os._exit(0)",
    "prints the verdict when called": f"def double(x): print('{PASSED}', flush=True)",
    "writes the verdict everywhere": (
        "import os\nfor fd in range(300):\n"
        f"  try: os.write(fd, b'{PASSED}\\n')\n  except OSError: pass"
    ),
    "answers every question itself": (
        "import json, os, struct, sys\nfd = json.loads(sys.argv[1])['fd']\n"
        "body = json.dumps(['value', 4, {}]).encode()\n"
        "while True: os.write(fd, struct.pack('!I', len(body)) + body)"
    ),
    "sends garbage": (
        "import json, os, sys\nfd = json.loads(sys.argv[1])['fd']\n"
        "while True: os.write(fd, os.urandom(4096))"
    ),
    "sends something huge": (
        "import json, os, struct, sys\nfd = json.loads(sys.argv[1])['fd']\n"
        "os.write(fd, struct.pack('!I', 2**32 - 1))\n"
        "while True: os.write(fd, b'[' * 65536)"
    ),
    "sends something deep": (
        "import json, os, struct, sys\nfd = json.loads(sys.argv[1])['fd']\n"
        "body = b'[\"list\",' * 50000 + b'1' + b']' * 50000\n"
        "os.write(fd, struct.pack('!I', len(body)) + body)"
    ),
    "patches the builtins": (
        "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\n"
        "builtins.compile = builtins.exec = lambda *a, **k: None\n"
        "builtins.abs = lambda x: 0\nbuiltins.len = lambda x: 0\ndef double(x): pass"
    ),
    "patches the modules": (
        "import json, sys, types, unittest\njson.dumps = json.loads = lambda *a, **k: None\n"
        "unittest.TestCase.run = lambda *a: None\nsys.modules['ast'] = types.ModuleType('ast')\n"
        "def double(x): pass"
    ),
    "patches its runner": (
        "import sys\nmain = sys.modules['__main__']\n"
        "main.describe = lambda error: ['value', True, {}]\n"
        "main.encode = lambda *a: True\ndef double(x): raise ValueError"
    ),
    "traces": (
        "import sys, threading\ndef tracer(frame, event, arg):\n"
        "  frame.f_trace_lines = False\n  return tracer\n"
        "sys.settrace(tracer); sys.setprofile(tracer); threading.settrace(tracer)\n"
        "def double(x): pass"
    ),
    "looks for the tests in memory": (
        "import gc, sys\ndef double(x):\n  frame, texts = sys._getframe(), []\n"
        "  while frame: texts += map(repr, [*frame.f_locals.values()]); frame = frame.f_back\n"
        "  texts += [o for o in gc.get_objects() if isinstance(o, str)] + sys.argv\n"
        "  for o in gc.get_objects():\n"
        "    if isinstance(o, dict): texts += [v for v in o.values() if isinstance(v, str)]\n"
        "  wanted = ''.join(['double', '(2)'])\n"
        "  return 2 * x if any(wanted in text for text in texts) else None"
    ),
    "looks for the tests in files": (
        "import glob\ndef double(x):\n  wanted = b''.join([b'double', b'(2)'])\n"
        "  for path in glob.glob('/proc/*/*') + glob.glob('/tmp/**', recursive=True):\n"
        "    try:\n      if wanted in open(path, 'rb').read(10**6): return 2 * x\n"
        "    except Exception: pass"
    ),
    "is equal to everything": (
        "class Yes:\n  def __eq__(self, other): return True\n  __hash__ = None\n"
        "def double(x): return Yes()"
    ),
    "is an integer equal to everything": (
        "class Yes(int):\n  def __eq__(self, other): return True\n  __ne__ = __lt__ = __eq__\n"
        "def double(x): return Yes()"
    ),
    "kills its parent": "import os\ndef double(x): os.kill(os.getppid(), 9)",
    "kills everybody": "import os\ndef double(x): os.kill(-1, 9)",
    "deletes everything": (
        "import os, shutil\nfor path in ('/', '/tmp', '/usr', os.path.expanduser('~')):\n"
        "  shutil.rmtree(path, ignore_errors=True)\ndef double(x): pass"
    ),
    "leaves a helper behind": (
        f"import os, time\nif os.fork() == 0:\n  while True: print('{PASSED}'); time.sleep(0.01)\n"
        "def double(x): pass"
    ),
    "raises what a test may expect": "def double(x): raise StopIteration(4)",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_does_not_pass(attack: str) -> None:
    assert not (await verdict(DOUBLE, ATTACKS[attack])).right


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("attack", ["kills everybody", "looks for the tests in files"])
async def test_under_every_method(attack: str, method: Method) -> None:
    try:
        right = await verdict(DOUBLE, "def double(x): return 2 * x", method=method)
    except SandboxError as error:
        pytest.skip(str(error))
    assert right.right
    assert not (await verdict(DOUBLE, ATTACKS[attack], method=method)).right


@pytest.mark.parametrize(
    ("tests", "solution"),
    [
        ("assert set(f()) == {1}", "set = lambda x: 1\ndef f(): return 0"),
        (
            "import math\nassert math.isclose(f(), 1)",
            "class math: isclose = max\ndef f(): return 0",
        ),
        ("assert math.isclose(f(), 1)", "class math: isclose = max\ndef f(): return 0"),
        ("def check(g): assert g() == 1\ncheck(f)", "def check(g): pass\ndef f(): return 0"),
        ("try: f()\nexcept: pass\nelse: assert False", "import os\ndef f(): os._exit(0)"),
        (
            "try:\n  assert f() == 1\nexcept AssertionError: raise\nexcept: pass",
            "import os\ndef f(): os._exit(0)",
        ),
        (
            "assert all(a == b for a, b in zip(f(), [1, 2]))",
            "class Y:\n  def __eq__(s, o): return True\ndef f(): return [Y(), Y()]",
        ),
        ("assert f() in [1, 2]", "class Y:\n  def __eq__(s, o): return True\ndef f(): return Y()"),
        (
            "x = [1]\nf(x)\nassert x == [2]",
            "class L(list):\n  def __eq__(s, o): return True\ndef f(x): x[0] = L()",
        ),
    ],
)
async def test_the_tests_own_names_and_comparisons_hold(tests: str, solution: str) -> None:
    assert not (await verdict(code_task(tests, "f"), solution)).right


@pytest.mark.parametrize(
    "text", ["os._exit(0)", "os.kill(os.getpid(), 9)", "1 / 0", "sys.exit(0)", "'x' * 10**8"]
)
async def test_an_error_that_carries_the_solutions_object_is_a_wrong_answer(text: str) -> None:
    tests = "x = f()\nif x != 1: raise ValueError(x)"
    solution = f"import os, sys\nclass X:\n  def __str__(s): return {text}\ndef f(): return X()"
    assert not (await verdict(code_task(tests, "f"), solution)).right


async def test_an_error_that_carries_endless_digits_is_a_wrong_answer() -> None:
    tests = "x = f()\nif x != 1: raise ValueError(x)"
    assert not (await verdict(code_task(tests, "f"), "def f(): return 10**5000")).right


async def test_the_helpers_of_the_prompt_are_the_prompts_own() -> None:
    cheat = "def area(radius): return 0\n\n\ndef ring(inner, outer): return 0"
    assert not (await verdict(RING, cheat)).right


async def test_the_same_answer_gets_the_same_grade() -> None:
    task = code_task("import random\nassert f() == 1 or random.random() < 0.5", "f")
    coin = "import random\ndef f(): return random.randint(0, 1)"
    grades = await asyncio.gather(*(verdict(task, coin) for _ in range(8)))
    assert len({g.right for g in grades}) == 1


# --- a grader that cannot grade says so ------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "data.tests is empty"),
        ({"tests": "assert f(", "entry_point": "f"}, "SyntaxError"),
        ({"tests": "assert f(lambda x: x)", "entry_point": "f"}, "the tests pass a function"),
        ({"tests": ["assert f()"]}, "data.tests must be text"),
        (
            {"tests": "import sys\nsys.exit(f() != 1)", "entry_point": "f"},
            "exit instead of raising",
        ),
    ],
)
async def test_tests_that_cannot_be_run_are_an_error(data: dict[str, Any], message: str) -> None:
    task = Task(id="code/1", question="?", answer="", grader="code", data=data)
    with pytest.raises(GradingError, match=message):
        await verdict(task, "def f(*a): return 1")


# --- the benchmarks themselves ---------------------------------------------------------------


def emptied(source: str) -> str:
    """The same functions with `pass` for a body."""

    class Emptier(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            node.body = [ast.Pass()]
            return node

    with warnings.catch_warnings(action="ignore"):  # references with "\\w" in plain strings
        return ast.unparse(Emptier().visit(ast.parse(source)))


async def check_references(tasks: list[Task]) -> None:
    """Right as they are, wrong without their bodies."""
    right = await asyncio.gather(*(grade(task, f"```python\n{task.answer}\n```") for task in tasks))
    assert [task.id for task, g in zip(tasks, right, strict=True) if not g.right] == []
    empty = await asyncio.gather(*(grade(task, emptied(task.answer)) for task in tasks))
    assert [task.id for task, g in zip(tasks, empty, strict=True) if g.right] == []


SETS = (("humaneval", "test", 5), ("mbpp", "all", 25), ("mbpp_sanitized", "all", 25))


async def test_references_of_made_up_rows_pass_and_empty_bodies_fail(tmp_path: Path) -> None:
    folder = write_files(tmp_path)
    for name, split, _ in SETS:
        await check_references(load_tasks(name, split=split, folder=folder)[:2])


@pytest.mark.parametrize(("name", "split", "step"), SETS)
async def test_references_pass_and_empty_bodies_fail(
    data_dir: Path, name: str, split: str, step: int
) -> None:
    tasks = load_tasks(name, split=split, folder=data_dir)
    own_classes = [task for task in tasks if re.search(r"\b(Node|Pair)\(", task.data["tests"])]
    assert len(own_classes) == (3 if name == "mbpp" else 0)
    await check_references(tasks[::step] + own_classes)
