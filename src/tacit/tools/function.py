"""A tool from a function: what a model is told of it, and how code from outside is run."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, create_model
from pydantic.json_schema import GenerateJsonSchema

from tacit.errors import ConfigError
from tacit.team.tools import Tool, ToolContext, readable, words
from tacit.types import ToolSpec


class Untitled(GenerateJsonSchema):
    """Pydantic titles every field, which models would only have to read."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def tool_of(function: Callable[..., Any], *, trusted: bool = False) -> Tool:
    """A tool from a function: its name, docstring and annotations are what a model is told.

    A parameter annotated with `ToolContext` is given the caller's and not shown to the model. One
    that is not `trusted` runs in a thread of its own, so that it cannot stop the rest.
    """
    try:
        model, hidden = _parameters(function)
        schema = model.model_json_schema(schema_generator=Untitled)
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        said = str(error).partition("\n")[0]
        raise ConfigError(f"tool `{function.__name__}`: {said}") from None

    async def call(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        values = model.model_validate(arguments)
        given = {name: getattr(values, name) for name in model.model_fields}
        work = partial(function, **given, **dict.fromkeys(hidden, context))
        if not trusted:
            return await _in_thread(work)
        return await work()

    described = " ".join((inspect.getdoc(function) or function.__name__).split("\n\n")[0].split())
    schema.pop("title", None)
    schema.pop("description", None)
    return Tool(
        spec=ToolSpec(name=function.__name__, description=described, parameters=schema),
        call=call,
        keeps_time=trusted,
    )


def _parameters(function: Callable[..., Any]) -> tuple[type[BaseModel], list[str]]:
    """What a model gives, and the names of those that are given the context."""
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


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Run outside code in a daemon thread: what hangs there ends with this process.

    Its result is made text there too, since turning an object into text is outside code as well.
    """
    done: Future[Any] = Future()
    done.set_running_or_notify_cancel()  # who waits for it may go, and it goes on

    def run() -> None:
        try:
            result = work()
            result = asyncio.run(result) if inspect.iscoroutine(result) else result
            done.set_result(readable(result))
        except BaseException as raised:  # SystemExit and our own errors are the tool's too
            done.set_exception(ValueError(words(raised)))

    threading.Thread(target=run, name="tool", daemon=True).start()
    return await asyncio.wrap_future(done)
