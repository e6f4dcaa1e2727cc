"""A tool from a function: what a model is told of it, and how code from outside is run.

Code from outside runs in a process of its own, since it may do what no thread survives: hold up all
threads (a runaway regular expression), crash the interpreter, or end it.

`python -m tacit.tools.function module:function PIPE` is such a process.
"""

import asyncio
import atexit
import contextlib
import inspect
import itertools
import os
import pkgutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, create_model
from pydantic.json_schema import GenerateJsonSchema

from tacit.errors import ConfigError
from tacit.team.tools import Tool, ToolContext, readable, words
from tacit.types import ToolSpec

START_S = 120.0
"""A process may take this long to import a function, which no call's time is charged for."""
GRACE_S = 10.0
"""A process that says nothing for this long after a call took too long is held up, and ended."""


class Untitled(GenerateJsonSchema):
    """Pydantic titles every field, which models would only have to read."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def tool_of(function: Callable[..., Any], place: str = "") -> Tool:
    """A tool from a function: its name, docstring and annotations are what a model is told.

    A parameter annotated with `ToolContext` is given the caller's and not shown to the model. With
    a `place`, `module:function`, it is imported from there by a process of its own, and runs there.
    """
    try:
        if place.startswith("__main__:"):
            raise TypeError("it must be in a module that another process can import")
        model, _ = parameters = _parameters(function)
        schema = model.model_json_schema(schema_generator=Untitled)
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        said = str(error).partition("\n")[0]
        raise ConfigError(f"tool `{function.__name__}`: {said}") from None

    async def call(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        if place:
            return await _ask(place, arguments, context)
        return await function(**_given(parameters, arguments, context))

    described = " ".join((inspect.getdoc(function) or function.__name__).split("\n\n")[0].split())
    schema.pop("title", None)
    schema.pop("description", None)
    spec = ToolSpec(name=function.__name__, description=described, parameters=schema)
    return Tool(spec=spec, call=call, keeps_time=True)


Parameters = tuple[type[BaseModel], list[str]]
"""What a model gives, and the names of those that are given the context."""


def _parameters(function: Callable[..., Any]) -> Parameters:
    hints = get_type_hints(function)
    hidden = [name for name, hint in hints.items() if hint is ToolContext]
    fields: dict[str, Any] = {}
    for name, one in inspect.signature(function).parameters.items():
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) or name.startswith("_"):
            said = str(one).partition(":")[0]
            raise TypeError(f"`{said}` cannot be given by name, as models must: rewrite it")
        if name not in hidden:
            fields[name] = hints.get(name, Any), ... if one.default is one.empty else one.default
    config = ConfigDict(extra="forbid")
    return create_model(function.__name__, __config__=config, **fields), hidden


def _given(
    parameters: Parameters, arguments: Mapping[str, Any], context: ToolContext
) -> dict[str, Any]:
    model, hidden = parameters
    values = model.model_validate(arguments)
    given = {name: getattr(values, name) for name in model.model_fields}
    return given | dict.fromkeys(hidden, context)


async def _ask(place: str, arguments: Mapping[str, Any], context: ToolContext) -> str:
    """One call in a function's process, which is started if there is none."""
    process = _PROCESSES.get(place)
    if process is None or process.ended:
        process = _PROCESSES[place] = _Process(place)
    await asyncio.wait_for(asyncio.wrap_future(process.started), START_S)
    try:
        async with asyncio.timeout(context.timeout):
            asked = await asyncio.to_thread(process.ask, arguments, context)
            return await asyncio.wrap_future(asked)
    except TimeoutError:
        threading.Thread(target=process.end_if_held_up, daemon=True).start()
        name = place.rpartition(":")[2]
        raise ValueError(f"`{name}` did not answer within {context.timeout:g} s") from None


class _Process:
    """A function's process. Its calls run side by side, so that its module keeps what it holds.

    A call that takes too long is left behind there; if it holds up the others, all end with it.
    """

    def __init__(self, place: str) -> None:
        self._pipe, theirs = Pipe()
        pipe = theirs.fileno()
        path = os.pathsep.join(folder or os.curdir for folder in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, place, str(pipe)],
            pass_fds=[pipe],
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,  # standard output is for results
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        self.started: Future[str] = _future()
        self.ended = False
        self._waiting = {0: self.started}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="tool", daemon=True).start()
        atexit.register(self.end)

    def ask(self, *question: Any) -> Future[str]:
        answer = _future()
        with self._lock:
            if self.ended:
                answer.set_exception(ValueError("the process of the tool has ended"))
                return answer
            number = next(self._numbers)
            self._waiting[number] = answer
            with contextlib.suppress(OSError):  # it ended, which is told to all who wait
                self._pipe.send((number, *question))
        return answer

    def end_if_held_up(self) -> None:
        try:
            self.ask().result(GRACE_S)
        except (TimeoutError, ValueError):
            self.end()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        atexit.unregister(self.end)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                number, failed, said = self._pipe.recv()
                answer = self._waiting.pop(number)
                answer.set_exception(ValueError(said)) if failed else answer.set_result(said)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self.end()
        with self._lock:
            self.ended = True
        said = f"the process of the tool ended with status {self._process.returncode}"
        for answer in self._waiting.values():
            answer.set_exception(ValueError(said))


_PROCESSES: dict[str, _Process] = {}


def _future() -> Future[str]:
    future: Future[str] = Future()
    future.set_running_or_notify_cancel()  # who waits for it may go, and it goes on
    return future


def _serve(place: str, pipe: Connection) -> None:
    """Answer calls, each in a thread, until the other end is closed. Ctrl-C is for that one.

    A result is made text in its thread too, since turning an object into text is outside code.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    function = pkgutil.resolve_name(place)
    parameters = _parameters(function)
    lock = threading.Lock()

    def run(arguments: Mapping[str, Any], context: ToolContext) -> str:
        result = function(**_given(parameters, arguments, context))
        return readable(asyncio.run(result) if inspect.iscoroutine(result) else result)

    def answer(number: int, *question: Any) -> None:
        failed = False
        try:
            said = run(*question) if question else ""
        except BaseException as raised:  # SystemExit is the tool's too
            failed, said = True, words(raised)
        with lock:
            pipe.send((number, failed, said))

    answer(0)
    with contextlib.suppress(EOFError):
        while True:
            number, *question = pipe.recv()
            threading.Thread(target=answer, args=(number, *question), daemon=True).start()
    os._exit(0)  # whatever still runs


if __name__ == "__main__":
    _serve(sys.argv[1], Connection(int(sys.argv[2])))
