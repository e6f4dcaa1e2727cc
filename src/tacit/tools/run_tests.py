"""`run_tests`: runs code against the tests that its task shows. They do not decide the grade.

Code and tests share one sandbox process, so code can cheat here, and only itself.
"""

import json

from tacit.errors import GradingError
from tacit.sandbox.grader import extract
from tacit.sandbox.inside.candidate import assemble
from tacit.sandbox.process import Outcome
from tacit.team.tools import ToolContext
from tacit.tools.running import ending, limits_of, run_code
from tacit.types import Task

SECONDS = 20.0
SHOWN = 5
"""Failed tests that are told of one by one."""

PROGRAM = """
import ast, contextlib, io, json, sys

def short(text):
    return text if len(text) <= 200 else text[:200] + "..."

def words(error):
    return short(f"{type(error).__name__}: {error}".strip().rstrip(":"))

def check(test, space):
    try:
        exec(compile(test, "<test>", "exec"), space)
    except AssertionError as error:
        last = ast.parse(test).body[-1]
        if isinstance(last, ast.Assert) and isinstance(last.test, ast.Compare):
            value = eval(compile(ast.Expression(last.test.left), "<test>", "eval"), space)
            return f"{short(ast.unparse(last.test.left))} gave {short(repr(value))}"
        return words(error)

def attempt(work, *given):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return work(*given)
        except BaseException as error:
            return words(error)

def load(code, space):
    exec(compile(code, "<code>", "exec"), space)

job = json.loads(sys.argv[1])
space = {"__name__": "solution"}
broken = attempt(load, job["code"], space)
failed = [] if broken else [(t, e) for t in job["tests"] if (e := attempt(check, t, space))]
print(json.dumps({"broken": broken, "failed": failed}))
"""


async def run_tests(code: str, context: ToolContext) -> str:
    """Runs Python code against the task's visible tests and says which fail."""
    if not context.task.data.get("visible"):
        return "This task has no visible tests."
    failed = await run_visible(context.task, code, seconds=context.timeout)
    return failed or "All visible tests pass."


async def run_visible(task: Task, text: str, seconds: float = SECONDS) -> str:
    """Which of the visible tests fail and how, for an answer's code; empty if none does."""
    tests = task.data.get("visible") or []
    if not (isinstance(tests, list) and all(isinstance(test, str) for test in tests)):
        raise GradingError(f"data.visible must be a list of Python asserts, not {tests!r:.80}")
    if not tests:
        return ""
    entry = str(task.data.get("entry_point", ""))
    code = assemble(str(task.data.get("prompt", "")), extract(text, entry), entry)
    limits = limits_of(seconds)
    result = await run_code(PROGRAM, json.dumps({"code": code, "tests": tests}), limits)
    if why := ending(result, limits):
        return f"The code was {why}."
    try:
        said = json.loads(result.stdout)
        broken, failed = said["broken"], [(str(test), str(how)) for test, how in said["failed"]]
    except (ValueError, KeyError, TypeError):
        code_ended = "ended the process" if result.outcome is not Outcome.OK else "broke the tests"
        return f"The code {code_ended} before the tests were done."
    if broken:
        return f"The code cannot be loaded: {broken}"
    lines = [f"- {test}\n  {how}" for test, how in failed[:SHOWN]]
    if more := len(failed) - SHOWN:
        lines += [f"- and {more} more"] * (more > 0)
    return "\n".join([f"{len(failed)} of {len(tests)} tests fail:", *lines]) if failed else ""
