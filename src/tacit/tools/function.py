"""A tool from a function: what a model is told of it, and how code from outside is run.

Code from outside runs in a process of its own, one for each module, since it may do what no thread
survives: hold up all threads (a runaway regular expression), crash the interpreter, or end it.
"""

import asyncio
import atexit
import contextlib
import inspect
import itertools
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, create_model
from pydantic.json_schema import GenerateJsonSchema

from tacit.errors import ConfigError
from tacit.team.tools import Tool, ToolContext, readable, words
from tacit.types import ToolSpec

START_S = 120.0
"""A process may take this long to import its module, which no call's time is charged for."""
STUCK_S = 30.0
"""The kernel ends a process that stands still this much longer than a call may take, also one that
nobody waits for any more."""
DAY_S = 86_400.0  # an agent's timeout may be infinite, a timer's may not
PROGRAM = """
import sys
sys.path[:] = {!r}
from tacit.tools.function import serve
serve({!r}, {})
"""


class Untitled(GenerateJsonSchema):
    """Pydantic titles every field, which models would only have to read."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def tool_of(function: Callable[..., Any], place: str = "") -> Tool:
    """A tool from a function: its name, docstring and annotations are what a model is told.

    A parameter annotated with `ToolContext` is given the caller's and not shown to the model. With
    a `place`, `module:name`, the function runs in its module's process. Without one it is ours: an
    async function that keeps to the context's timeout, and is awaited.
    """
    module, _, attribute = place.partition(":")
    try:
        if module == "__main__":
            raise TypeError("it must be in a module that another process can import")
        model, hidden = _parameters(function)
        schema = model.model_json_schema(schema_generator=Untitled)
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        said = str(error).partition("\n")[0]
        raise ConfigError(f"tool `{function.__name__}`: {said}") from None

    async def call(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        if not place:
            return await function(**_given(function, arguments, context))
        process = await _process_of(module)
        question = pickle.dumps((attribute, dict(arguments), context if hidden else None))
        try:
            return await process.ask(question, context.timeout)
        except TimeoutError:
            said = f"`{function.__name__}` did not answer within {context.timeout:g} s"
            raise ValueError(said) from None

    described = " ".join((inspect.getdoc(function) or function.__name__).split("\n\n")[0].split())
    schema.pop("title", None)
    schema.pop("description", None)
    spec = ToolSpec(name=function.__name__, description=described, parameters=schema)
    return Tool(spec=spec, call=call, keeps_time=True)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[type[BaseModel], list[str]]:
    """What a model gives, and the names of those that are given the context."""
    hints = get_type_hints(function, include_extras=True)
    hidden = [name for name, hint in hints.items() if ToolContext in (hint, *get_args(hint))]
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
    function: Callable[..., Any], arguments: Mapping[str, Any], context: ToolContext | None
) -> dict[str, Any]:
    model, hidden = _parameters(function)
    values = model.model_validate(arguments)
    given = {name: getattr(values, name) for name in model.model_fields}
    return given | dict.fromkeys(hidden, context)


class _Process:
    """A module's process. Its calls run side by side, so that the module keeps what it holds.

    Once a call took too long or was given up, no others begin here, and the process ends when none
    is waited for: the call may be holding up the others, or go on for ever.
    """

    def __init__(self, module: str) -> None:
        self._pipe, theirs = Pipe()
        path = [folder for folder in sys.path if isinstance(folder, str)]
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM.format(path, module, theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,  # standard output is for results
            start_new_session=True,  # Ctrl-C is for us; and what it starts ends with it
        )
        theirs.close()
        self.retired = False
        self.started: Future[str] = _future()
        self._waiting = {0: self.started}
        self._numbers = itertools.count(1)
        self._questions: SimpleQueue[tuple[int, float, bytes] | None] = SimpleQueue()
        self._lock = threading.Lock()
        atexit.register(self._close)
        for work in (self._send, self._listen):
            threading.Thread(target=work, name="tool", daemon=True).start()

    async def ask(self, question: bytes, timeout: float) -> str:
        answer = _future()
        with self._lock:
            number = next(self._numbers)
            if self._process.poll() is None:
                self._waiting[number] = answer
            else:
                answer.set_exception(ValueError("the process of the tool has ended"))
        self._questions.put((number, min(timeout, DAY_S), question))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(answer)
        finally:
            with self._lock:
                self._waiting.pop(number, None)
                self.retired |= not answer.done()
                if self.retired and not self._waiting:
                    self.end()

    def end(self) -> None:
        if self._process.poll() is None:  # else `_listen` does it
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _close(self) -> None:
        self._kill()
        self._process.wait()

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # it ended, which `_listen` tells those who wait
            while question := self._questions.get():
                self._pipe.send(question)

    def _listen(self) -> None:
        with contextlib.suppress(Exception):  # of a pipe that closed or that a tool wrote to
            # a program that a tool left behind may hold the other end open
            while self._pipe.poll(0.5) or self._process.poll() is None:
                if self._pipe.poll():
                    number, failed, said = self._pipe.recv()
                    answer = self._waiting.pop(number, _future())
                    answer.set_exception(ValueError(said)) if failed else answer.set_result(said)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._kill()  # also what it started
        said = f"the process of the tool ended with status {self._process.wait()}"
        with self._lock:
            self.retired = True
            for answer in self._waiting.values():
                answer.set_exception(ValueError(said))
            self._waiting.clear()
        self._questions.put(None)
        atexit.unregister(self._close)


_PROCESSES: dict[str, _Process] = {}
_STARTING = threading.Lock()
_STARTED: set[str] = set()


async def _process_of(module: str) -> _Process:
    """A module's process. That it cannot start is a ConfigError, unless it once did."""
    with _STARTING:
        if module not in _PROCESSES or _PROCESSES[module].retired:
            _PROCESSES[module] = _Process(module)
        process = _PROCESSES[module]
    try:
        async with asyncio.timeout(START_S):
            await asyncio.wrap_future(process.started)
    except (TimeoutError, ValueError) as error:
        process.retired = True
        process.end()
        said = f"cannot import `{module}` in a process of its own: {words(error)}"
        raise (ValueError if module in _STARTED else ConfigError)(said) from None
    _STARTED.add(module)
    return await _process_of(module) if process.retired else process  # while we waited


def _future() -> Future[str]:
    future: Future[str] = Future()
    future.set_running_or_notify_cancel()  # who waits for it may go, and it goes on
    return future


def serve(module: str, fileno: int) -> None:
    """Answer calls, each in a thread, until the other end of the pipe is closed."""
    pipe, lock, longest, ours = Connection(fileno), threading.Lock(), 0.0, os.getpid()
    os.set_inheritable(fileno, False)
    signal.setitimer(signal.ITIMER_REAL, START_S + STUCK_S)
    import_module(module)

    def answer(number: int, question: bytes) -> None:
        failed = False
        try:
            said = _run(module, *pickle.loads(question))
        except BaseException as raised:  # SystemExit is the tool's too
            failed, said = True, words(raised)
        if os.getpid() != ours:  # the tool forked, and this is the child
            os._exit(0)
        with lock:
            pipe.send((number, failed, said))

    pipe.send((0, False, ""))
    with contextlib.suppress(EOFError, OSError):
        while True:
            signal.setitimer(signal.ITIMER_REAL, longest + STUCK_S)
            if pipe.poll(1):
                number, timeout, question = pipe.recv()
                longest = max(longest, timeout)
                threading.Thread(target=answer, args=(number, question), daemon=True).start()
    os.killpg(0, signal.SIGKILL)


def _run(module: str, name: str, arguments: Mapping[str, Any], context: ToolContext | None) -> str:
    """The result as text, since turning an object into text is outside code as well."""
    function = pkgutil.resolve_name(f"{module}:{name}")
    result = function(**_given(function, arguments, context))
    return readable(asyncio.run(result) if inspect.iscoroutine(result) else result)
