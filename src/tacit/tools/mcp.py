"""Tools of MCP servers, by the official SDK (extra `mcp`): a program over stdio, or HTTP.

One connection for each server and event loop, opened at first use and closed when the loop ends.
A server that cannot be reached at first, or lacks an allowed tool, is a ConfigError. Later errors,
a server that died or hangs among them, are observations; the next call connects anew.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TextIO
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from tacit.config import McpConfig
from tacit.errors import ConfigError, first_error
from tacit.registry import check_name, did_you_mean
from tacit.team.tools import Tool, ToolContext, clipped, readable, words
from tacit.types import ToolSpec

MOST_PAGES = 100
"""Of a list of tools: a server that never ends one is cut off."""
DESCRIBED = 2000
"""Most characters of a tool's description, which is in every prompt."""
MOST_SAID = 500
"""Of why a server cannot be used."""
logging.getLogger("mcp").addHandler(logging.NullHandler())
"""Else the SDK prints a traceback for every line of a program's that is no message."""


async def open_tools(name: str, config: McpConfig, only: Sequence[str] = ()) -> list[Tool]:
    """The allowed tools of a server in the order they are allowed, or `only` some of them."""
    for one in only:
        check_name(f"tool of the MCP server `{name}`", one, config.allow)
    server = _server(name, config)
    offered = await server.offered()
    if missing := [one for one in config.allow if one not in offered]:
        told = ", ".join(f"`{one}` ({did_you_mean(one, offered)})" for one in missing)
        raise ConfigError(f"the MCP server `{name}` has no tool {told}")
    return [
        Tool(
            spec=ToolSpec(
                name=re.sub(r"[^\w-]", "_", one, flags=re.ASCII)[:64],
                description=clipped(" ".join((offered[one].description or one).split()), DESCRIBED),
                parameters=offered[one].input_schema,
            ),
            call=partial(server.call, one),
        )
        for one in config.allow
        if not only or one in only
    ]


class Connection:
    """A client that a task of its own keeps open, as the SDK demands."""

    def __init__(self, keep: Callable[["Connection"], Coroutine[Any, Any, None]]) -> None:
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.users = 0
        self.unused = asyncio.Event()
        self.keeper = asyncio.create_task(keep(self))

    async def close(self) -> None:
        """Not by a cancellation: a second one, when the event loop ends, would stop the SDK from
        killing a program that is stuck. So the caller waits, and the loop does not end."""
        self.unused.set()
        await asyncio.wait([self.keeper], timeout=10)


class Server:
    """A server's tools by one connection, and by another when that is lost or stuck."""

    def __init__(self, name: str, config: McpConfig) -> None:
        self._name, self._config = name, config
        self._connection: Connection | None = None
        self._offered: dict[str, Any] = {}

    async def offered(self) -> Mapping[str, Any]:
        """The server's tools by name, asked for once."""
        if not self._offered:
            try:
                async with self._client() as client:
                    self._offered = await self._list(client)
            except Exception as error:
                raise ConfigError(f"the MCP server `{self._name}`: {_reason(error)}") from error
        return self._offered

    async def call(self, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> str:
        # Half a character cannot be sent, and would close the connection for all agents.
        sent = json.dumps(dict(arguments), ensure_ascii=False).encode(errors="replace")
        async with self._client() as client:
            result = await client.call_tool(tool, json.loads(sent))
        text = "\n".join(map(_text, result.content)) or readable(result.structured_content)
        return f"Error: {text}" if result.is_error else text

    async def _list(self, client: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor = None
        async with asyncio.timeout(self._config.timeout):
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found |= {tool.name: tool for tool in page.tools}
                cursor = page.next_cursor
                if cursor is None:
                    break
        return found

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        """The connection's client. After a failure nobody new uses it; the last user closes it."""
        connection = self._connection = self._connection or Connection(self._keep)
        client = await asyncio.shield(connection.ready)  # goes on connecting if our time is up
        connection.users += 1
        try:
            yield client
        except BaseException as error:
            if self._is_lost(error):
                self._forget(connection)
            raise
        finally:
            connection.users -= 1
            if connection is not self._connection and not connection.users:
                await connection.close()

    def _is_lost(self, error: BaseException) -> bool:
        """A call that takes too long is cancelled. The program may be stuck in it for good."""
        from mcp import MCPError

        if isinstance(error, MCPError):  # closed, or a session that its server forgot
            return error.code == -32000 or "session" in str(error).lower()
        return not (isinstance(error, asyncio.CancelledError) and self._config.url)

    async def _keep(self, connection: Connection) -> None:
        """Holds the connection open until nobody needs it or the event loop ends."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._config.timeout):
                    client = await stack.enter_async_context(self._opened())
                connection.ready.set_result(client)
                await connection.unused.wait()
        except Exception as error:
            if not connection.ready.done():
                connection.ready.set_exception(ConnectionError(_reason(error)))
        finally:
            self._forget(connection)
            connection.ready.cancel()

    def _forget(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Any]:
        try:
            from mcp import Client, StdioServerParameters
            from mcp.client.stdio import stdio_client
            from mcp.client.streamable_http import streamable_http_client
            from mcp.shared._httpx_utils import create_mcp_http_client
        except ImportError as error:
            raise ConfigError("MCP servers need the SDK: pip install 'tacit[mcp]'") from error
        config = self._config
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            async with contextlib.AsyncExitStack() as stack:
                if config.url:
                    web = create_mcp_http_client(headers=_headers(config))
                    await stack.enter_async_context(web)
                    transport = streamable_http_client(config.url, http_client=web)
                else:
                    program, *arguments = config.command
                    if unset := [name for name in config.env if name not in os.environ]:
                        raise ConfigError(f"its `env` names {', '.join(unset)}: set it")
                    passed = {name: os.environ[name] for name in config.env}
                    started = StdioServerParameters(command=program, args=arguments, env=passed)
                    started.encoding_error_handler = "replace"
                    transport = stdio_client(started, errlog=errors)
                try:
                    client = await stack.enter_async_context(Client(transport, cache=None))
                except Exception as error:
                    raise ConnectionError(f"{_reason(error)}{_last_line(errors)}") from error
                yield client


_SERVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Server]] = WeakKeyDictionary()


def _server(name: str, config: McpConfig) -> Server:
    """The event loop's one connection to a server."""
    mine = _SERVERS.setdefault(asyncio.get_running_loop(), {})
    return mine.setdefault(config.model_dump_json(), Server(name, config))


def _headers(config: McpConfig) -> dict[str, str]:
    if config.api_key_env is None:
        return {}
    key = os.environ.get(config.api_key_env)
    if not key:
        raise ConfigError(f"no key for {config.url}: set the variable {config.api_key_env}")
    return {"Authorization": f"Bearer {key}"}


def _text(block: Any) -> str:
    """A part of a result; what is not text is only named."""
    text = getattr(getattr(block, "resource", block), "text", None)
    return text if isinstance(text, str) else f"[{getattr(block, 'type', 'unknown')}, not shown]"


def _reason(error: BaseException) -> str:
    """The first plain error of the groups that the SDK's tasks end in."""
    error = first_error(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    said = words(error) if isinstance(error, ValidationError) else str(error)
    return clipped(" ".join(said.split()), MOST_SAID) or type(error).__name__


def _last_line(errors: TextIO) -> str:
    """What a program last wrote to standard error."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - MOST_SAID))
    lines = errors.read().strip().splitlines()
    return f" ({lines[-1]})" if lines else ""
