"""Tools that agents may call, and how one call becomes one observation, whatever the tool does.

A tool is an object `Tool`, or any function with annotated parameters and a docstring. Those that
come with Tacit lie outside the core (`tacit.tools`) and are found by name. What a tool says is
data: bounded, cleaned and escaped, so that it can close no quotation. Not covered: how a model
writes a call (`engine.tool_syntax`), and the conversation around it (`Seat`).
"""

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import ValidationError

from tacit.config import AgentConfig, McpConfig
from tacit.engine.tool_syntax import typed
from tacit.errors import ConfigError, TacitError
from tacit.registry import check_name, did_you_mean, lookup
from tacit.team.prompts import escaped
from tacit.types import ChatMessage, Task, ToolCall, ToolSpec

TOOLS: Mapping[str, str] = {
    "python": "tacit.tools.python:python",
    "run_tests": "tacit.tools.run_tests:run_tests",
    "lookup": "tacit.tools.lookup:lookup",
}
"""The shipped tools, imported when an agent has them."""
MCP = "tacit.tools.mcp:open_tools"
"""Opens the tools of an MCP server: `mcp/SERVER`, or one of them, `mcp/SERVER/TOOL`."""
FUNCTION = "tacit.tools.function:tool_of"
"""Makes a tool of a function."""
OUT_OF_CALLS = "(You have no tool calls left. Do not call a tool again. Answer in words now.)"
SEARCHED = "(documents that only the tool `lookup` shows you)"
"""Shown in the prompt instead of a view that the agent can search."""
SHOWN = ("visible", "prompt", "entry_point")
"""The parts of a task's data that tools are given: what it takes to run its visible tests."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal may obey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The caller as a tool sees it: with its own view, and no other agent's."""

    task: Task
    """Its id, question, instruction and visible tests; no reference and no views."""
    agent: str
    view: str = ""
    timeout: float = 20.0
    """Seconds after which the call is given up."""


def shown(task: Task) -> Task:
    """The task as tools see it. A level such as `needed` would give away who should speak."""
    data = {name: deepcopy(task.data[name]) for name in SHOWN if name in task.data}
    return replace(task, answer="", level="", subject="", views={}, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    spec: ToolSpec
    call: Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]
    """Given the arguments, which it checks itself; what it raises is told to the model."""
    keeps_time: bool = False
    """True if it keeps to the context's timeout by itself, not counting the wait for its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools of one agent."""

    config: AgentConfig
    servers: Mapping[str, McpConfig]

    async def open(self) -> dict[str, Tool]:
        """The tools by the name that the model knows them by; servers are asked what they have."""
        found: list[Tool] = []
        for name in self.config.tools:
            if not name.startswith("mcp/"):
                found.append(find_tool(name))
                continue
            _, server, *only = name.split("/", 2)
            found += await lookup("tool", MCP, {})(server, self.servers[server], only)
        tools = {tool.spec.name: tool for tool in found}
        if len(tools) < len(found):
            raise ConfigError(f"tools: two of {', '.join(self.config.tools)} have the same name")
        return tools

    async def observe(
        self, tools: Mapping[str, Tool], call: ToolCall, context: ToolContext
    ) -> ChatMessage:
        """Run one call; errors, crashes and timeouts are results too."""
        try:
            said = readable(await self._run(tools, call, context))
        except TacitError:
            raise
        except Exception as error:
            said = f"Error: {words(error)}"
        return observation(call, clipped(said, self.config.max_observation))

    async def _run(self, tools: Mapping[str, Tool], call: ToolCall, context: ToolContext) -> Any:
        try:
            arguments = json.loads(call.arguments or "{}", strict=False)
        except ValueError as error:
            said = "the arguments are" if call.name else "the call is"
            raise ValueError(f"{said} not JSON: {error}") from None
        if call.name not in tools:
            named = f"there is no tool `{call.name}`" if call.name else "that is not a tool call"
            raise ValueError(f"{named}; {did_you_mean(call.name, tools)}")
        if not isinstance(arguments, dict):
            raise ValueError("the arguments must be a JSON object")
        tool = tools[call.name]
        limit = asyncio.timeout(None if tool.keeps_time else context.timeout)
        try:
            async with limit:
                return await tool.call(typed(arguments, tool.spec.parameters), context)
        except TimeoutError:
            if not limit.expired():  # but the tool's own
                raise
            said = f"`{call.name}` did not answer within {context.timeout:g} s"
            raise ValueError(said) from None


def open_toolbox(config: AgentConfig, servers: Mapping[str, McpConfig], place: str) -> Toolbox:
    """An agent's toolbox; a ConfigError for unknown names."""
    for name in config.tools:
        try:
            if name.startswith("mcp/"):
                check_name("MCP server", name.split("/")[1], servers)
            else:
                find_tool(name)
        except ConfigError as error:
            raise ConfigError(f"{place}.tools: {error}") from None
    return Toolbox(config=config, servers=servers)


@cache
def find_tool(name: str) -> Tool:
    """A shipped tool by its name, or `module:name` of a `Tool` or a function."""
    check_name("tool", name, TOOLS, outside=True)
    found = lookup("tool", TOOLS.get(name, name), {})
    if isinstance(found, Tool):
        return found
    if not (inspect.isroutine(found) and hasattr(found, "__name__")):  # a `partial` has none
        raise ConfigError(f"tool `{name}` must be a function or a Tool")
    tool: Tool = lookup("tool", FUNCTION, {})(found, "" if name in TOOLS else name)
    return tool


def observation(call: ToolCall, said: str) -> ChatMessage:
    """A tool's result, as quoted data in the caller's prompt."""
    return ChatMessage("tool", escaped(said), (call,))


def readable(said: Any) -> str:
    """A tool's result as text."""
    if isinstance(said, bytes | bytearray):
        said = said.decode(errors="replace")
    elif said is not None and not isinstance(said, str):
        said = json.dumps(said, ensure_ascii=False, default=str)
    return str.__str__(said or "(no output)")  # not of a class of its own


def clipped(text: str, longest: int) -> str:
    """The beginning and the end of a long text, without control and broken characters."""
    if len(text) > longest:
        head, tail = longest * 2 // 3, longest // 3
        left_out = f"\n[… {len(text) - head - tail:,} characters left out …]\n"
        text = f"{text[:head]}{left_out}{text[len(text) - tail :]}"
    text = text.encode(errors="replace").decode()
    return CONTROL.sub("\ufffd", text.replace("\r", ""))


def words(error: BaseException) -> str:
    """An error in one line, for a model that may correct its call."""
    if isinstance(error, ValidationError):
        wrong = error.errors(include_url=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in wrong)
    try:
        said = str(error)
    except BaseException:  # code from outside, too
        said = ""
    named = "" if said and type(error) is ValueError else type(error).__name__
    return ": ".join(filter(None, (named, said)))
