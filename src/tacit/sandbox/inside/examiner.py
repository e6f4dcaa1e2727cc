"""The trusted side of code grading: runs the benchmark's tests against a solution elsewhere.

The solution runs in another sandbox. Here its functions are stand-ins that send their arguments
there and return the plain value that comes back. So every comparison is made in this process on
plain values, and the verdict is written here. An object of the solution's own class stays a
stand-in: it can be called, read, set and iterated, but it is equal to nothing except itself.

The verdict is one JSON line on standard output: `passed`, `failed` (the tests say no), `ended` (the
solution's process is gone) or `broken` (the tests themselves cannot be run here).
"""

import ast
import builtins
import contextlib
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tacit.sandbox.inside.wire import Channel, Closed, Json, decode, encode

MUTABLE = (list, dict, set)


class CannotCross(BaseException):
    """The tests pass something that is not plain data. Not an Exception: no test may swallow it."""

    status = "broken"


class SolutionError(Exception):
    """The solution raised something that is no built-in exception."""


class Line:
    """Asks the solution's process. Remembers a failure even if the tests swallow the error."""

    def __init__(self, fd: int) -> None:
        self.channel = Channel(fd)
        self.trouble: tuple[str, str] | None = None
        self.known: dict[int, Remote] = {}

    def ask(self, operation: str, *values: Any) -> Any:
        try:
            self.channel.send([operation, *(encode(value, self.stand_in) for value in values)])
            return self.answer(values)
        except (Closed, CannotCross) as error:
            self.trouble = self.trouble or (error.status, str(error))
            raise

    def answer(self, values: tuple[Any, ...] = ()) -> Any:
        reply = self.channel.receive()
        try:
            kind, first, second = reply
            if kind == "raise":
                raised = rebuild(str(first), str(second))
            else:
                value = decode(first, self.remote)
                self.write_back(second, values)
                return value
        except Exception as error:
            raise Closed(f"the answer is no value: {type(error).__name__}") from None
        raise raised

    def write_back(self, changed: dict[str, Json], values: tuple[Any, ...]) -> None:
        """Do to the tests' own lists, dicts and sets what the call did to their copies."""
        for index, data in changed.items():
            mine, theirs = values[1][int(index)], decode(data, self.remote)
            if type(mine) is not type(theirs) or not isinstance(mine, MUTABLE):
                continue
            mine.clear()
            mine.extend(theirs) if isinstance(mine, list) else mine.update(theirs)

    def stand_in(self, value: Any) -> Json:
        if isinstance(value, Remote):
            return ["object", value.__dict__["number"]]
        raise CannotCross(f"the tests pass a {type(value).__name__}, which is not plain data")

    def remote(self, number: int) -> "Remote":
        return self.known.setdefault(number, Remote(self, number))


def asks(operation: str) -> Any:
    """A method that is carried out in the solution's process."""
    return lambda self, *values: self.line.ask(operation, self, *values)


class Remote:
    """A stand-in for an object in the solution's process."""

    line: Line

    def __init__(self, line: Line, number: int) -> None:
        self.__dict__.update(line=line, number=number)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.line.ask("call", self, list(arguments), keywords)

    def __bool__(self) -> bool:
        return True

    __getattr__, __setattr__ = asks("get"), asks("set")
    __getitem__, __len__, __str__ = asks("item"), asks("len"), asks("str")
    __iter__, __next__ = asks("iter"), asks("next")


def rebuild(name: str, message: str) -> Exception:
    """The built-in exception of that name; SystemExit and its like must not end this process."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # UnicodeDecodeError and its like want five arguments
            return kind(message)
    return SolutionError(f"{name}: {message}")


def helpers(prompt: str, entry_point: str) -> dict[str, Any]:
    """What the benchmark's prompt defines before the function to be written."""
    space: dict[str, Any] = {}
    for source in (prompt, f"{prompt}\n    pass\n"):
        try:
            code = compile(source, "<prompt>", "exec")
        except SyntaxError:
            continue
        exec(code, space)
        break
    return {k: v for k, v in space.items() if k != entry_point and k != "__builtins__"}


def borrowed_names(tests: ast.Module, space: dict[str, Any], entry_point: str) -> set[str]:
    """The names the tests use without defining them. Built-ins are never the solution's."""
    used: set[str] = set()
    bound = {*space, *dir(builtins)}
    for node in ast.walk(tests):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    return (used - bound) | ({entry_point} - {""})


def modules_used(tests: ast.Module) -> set[str]:
    """Standard modules the tests use as `math.…`: a solution may not hand in its own `math`."""
    nodes = (node.value for node in ast.walk(tests) if isinstance(node, ast.Attribute))
    return {node.id for node in nodes if isinstance(node, ast.Name)} & sys.stdlib_module_names


def examine(job: dict[str, Any]) -> tuple[str, str]:
    line = Line(job["fd"])
    try:
        tree = ast.parse(job["tests"])
        space = helpers(job["prompt"], job["entry_point"])
    except Exception as error:
        return "broken", f"{type(error).__name__}: {error}"
    status, note = "passed", ""
    try:
        fill(space, tree, line.answer(), job["entry_point"])
        if "random" in job["tests"]:
            importlib.import_module("random").seed(0)  # the same answer, the same grade
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            exec(compile(tree, "<tests>", "exec"), space)
    except (Closed, CannotCross) as error:
        status, note = error.status, str(error)
    except SystemExit:  # never the solution's: see `rebuild`
        status, note = "broken", "they exit instead of raising an error"
    except BaseException as error:
        status, note = "failed", explain(error, job["tests"])
    return line.trouble or (status, note)


def fill(space: dict[str, Any], tests: ast.Module, solution: Any, entry_point: str) -> None:
    space["__name__"] = "tests"
    for name in borrowed_names(tests, space, entry_point):
        if name != entry_point and name in modules_used(tests):
            space[name] = importlib.import_module(name)
        else:
            with contextlib.suppress(AttributeError):  # using it is then a NameError
                space[name] = getattr(solution, name)


def explain(error: BaseException, tests: str) -> str:
    lines = tests.splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    numbers = [frame.lineno for frame in frames if frame.filename == "<tests>" and frame.lineno]
    where = f" at `{lines[numbers[-1] - 1].strip()[:200]}`" if numbers else ""
    if isinstance(error, AssertionError) and numbers and frames[-1].filename == "<tests>":
        return f"wrong answer{where}"
    name = "" if isinstance(error, SolutionError) else f"{type(error).__name__}: "
    message = "?"
    # The message may be an object of the solution's, whose process can end when asked for its text.
    with contextlib.suppress(Exception, Closed):
        message = str(error)[:300]
    return f"{name}{message}{where}"


if __name__ == "__main__":
    status, note = examine(json.loads(sys.argv[1]))
    print(json.dumps({"status": status, "note": note}), flush=True)
