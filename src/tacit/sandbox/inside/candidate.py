"""The untrusted side of code grading: loads the solution and does with it what the tests ask.

This process knows neither the tests nor the expected values, and only what its functions return is
used: a solution that patches everything here, exits, or prints a verdict spoils its own answers.
"""

import ast
import contextlib
import json
import operator
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

from tacit.sandbox.inside.wire import Channel, Json, decode, encode

PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__index__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (str, str.__str__),
    *((kind, kind) for kind in (bytes, list, tuple, dict, set, frozenset)),
)
"""How an instance of a subclass becomes one of the plain type."""


class Desk:
    """Keeps the objects that cannot be sent, and answers requests about them."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}

    def put(self, value: Any) -> Json:
        """A value that is not plain: as the plain type under it, or as a number to ask about."""
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            return encode(value.item(), self.put)
        for kind, plain in PLAIN:
            if isinstance(value, kind):
                return encode(plain(value), self.put)
        self.kept[id(value)] = value
        return ["object", id(value)]

    def take(self, data: Json) -> Any:
        return decode(data, self.kept.__getitem__)

    def answer(self, operation: str, *data: Json) -> Json:
        if operation == "call":
            return self.call(*data)
        arguments = [self.take(item) for item in data]
        return ["value", encode(OPERATIONS[operation](*arguments), self.put), {}]

    def call(self, target: Json, positional: Json, named: Json) -> Json:
        arguments, keywords = self.take(positional), self.take(named)
        value = encode(self.take(target)(*arguments, **keywords), self.put)
        after = [encode(item, self.put) for item in arguments]
        # What was changed in place is sent back, so that the tests see it on their side too.
        changed = {i: new for i, new in enumerate(after) if new != positional[i + 1]}
        return ["value", value, changed]


OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
}


def assemble(prompt: str, answer: str, entry_point: str) -> str:
    """The whole program: the answer may be a complete module or only the prompt's continuation."""
    if not prompt:
        return answer
    if defines(answer, entry_point):
        # The prompt goes before it for its imports and helpers; the answer's definitions win.
        stub = next((p for p in (prompt, f"{prompt}\n    pass\n") if parses(p)), "")
        return f"{stub}\n\n{answer}"
    body = textwrap.dedent(answer)
    attempts = (answer, f"    {answer.lstrip()}", textwrap.indent(body, "    "))
    return next((prompt + a for a in attempts if parses(prompt + a)), prompt + answer)


def parses(source: str) -> bool:
    try:
        compile(source, "<solution>", "exec")  # unlike ast.parse it minds a stray `return`
    except (SyntaxError, ValueError):
        return False
    return True


def defines(source: str, name: str) -> bool:
    if not parses(source):
        return False
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(
        (isinstance(node, functions) and node.name == name)
        or (isinstance(node, ast.Assign) and any(name == ast.unparse(t) for t in node.targets))
        for node in ast.parse(source).body
    )


def load(prompt: str, answer: str, entry_point: str) -> types.ModuleType:
    if "random" in answer:
        import random

        random.seed(0)  # the same answer must get the same grade every time
    module = sys.modules["solution"] = types.ModuleType("solution")
    source = assemble(prompt, answer, entry_point)
    exec(compile(source, "<solution>", "exec", dont_inherit=True), module.__dict__)
    return module


def describe(error: BaseException) -> Json:
    message = "?"
    with contextlib.suppress(Exception):
        message = str(error)
    return ["raise", type(error).__name__, message[:300]]


def main() -> None:
    job = json.loads(sys.argv[1])
    channel, desk = Channel(job["fd"]), Desk()
    try:
        module = load(job["prompt"], job["answer"], job["entry_point"])
    except BaseException as error:
        return channel.send(describe(error))
    channel.send(["value", desk.put(module), {}])
    while True:
        request = channel.receive()
        try:
            reply = desk.answer(*request)
        except BaseException as error:
            reply = describe(error)
        channel.send(reply)


if __name__ == "__main__":
    main()
