"""`python`: runs a program in the sandbox and says what it printed, or how it failed."""

from tacit.sandbox.grader import extract
from tacit.sandbox.process import Outcome
from tacit.team.tools import ToolContext
from tacit.tools.running import ending, limits_of, run_code

PROGRAM = """
import ast, sys
tree = ast.parse(sys.argv[1])
last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
space = {"__name__": "__main__"}
exec(compile(tree, "<code>", "exec"), space)
if last is not None:
    value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)
    if value is not None:
        print(repr(value))
"""
"""Shows the value of a last expression, as an interactive Python does."""


async def python(code: str, context: ToolContext) -> str:
    """Runs a Python program and returns what it prints. Nothing is kept between calls."""
    limits = limits_of(context.timeout)
    result = await run_code(PROGRAM, extract(code), limits)
    why = ending(result, limits)
    if not why and result.outcome is Outcome.ERROR:
        why = (result.stderr.strip().splitlines() or [f"exit code {result.code}"])[-1]
    return "\n".join(filter(None, [result.stdout.rstrip(), f"Error: {why}" if why else ""]))
