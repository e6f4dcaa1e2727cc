"""Tools of MCP servers, by the official SDK (extra `mcp`): a program over stdio, or HTTP.

One connection for each server and event loop, opened at first use and closed when the loop ends.
A server that cannot be reached at first, or lacks an allowed tool, is a ConfigError. Later errors,
a server that died among them, are observations; the next call connects anew.
"""

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, TextIO
from weakref import WeakKeyDictionary

from tacit.config import McpConfig
from tacit.errors import ConfigError
from tacit.registry import check_name
from tacit.team.tools import Tool, ToolContext
from tacit.types import ToolSpec

MOST_PAGES = 100
"""Of a list of tools: a server that never ends one is cut off."""


async def open_tools(name: str, config: McpConfig, only: Sequence[str] = ()) -> list[Tool]:
    """The allowed tools of a server in the order they are allowed, or `only` some of them."""
    for one in only:
        check_name(f"tool of the MCP server `{name}`", one, config.allow)
    server = _server(name, config)
    offered = await server.offered()
    for one in config.allow:
        check_name(f"tool of the MCP server `{name}`", one, offered)
    return [
        Tool(
            spec=ToolSpec(
                name=re.sub(r"[^\w-]", "_", one, flags=re.ASCII)[:64],
                description=" ".join((offered[one].description or one).split()),
                parameters=offered[one].input_schema,
            ),
            call=partial(server.call, one),
        )
        for one in config.allow
        if not only or one in only
    ]


class Server:
    """A connection that is kept open by a task of its own, as the SDK demands."""

    def __init__(self, name: str, config: McpConfig) -> None:
        self._name = name
        self._config = config
        self._turn = asyncio.Lock()
        self._client: Any = None
        self._keeper: asyncio.Task[None] | None = None
        self._offered: dict[str, Any] = {}

    async def offered(self) -> Mapping[str, Any]:
        """The server's tools by name, asked for once."""
        if not self._offered:
            try:
                self._offered = await self._list(await self._connected())
            except Exception as error:
                raise ConfigError(f"the MCP server `{self._name}`: {_reason(error)}") from error
        return self._offered

    async def call(self, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> str:
        from mcp import MCPError

        client = await self._connected()
        try:
            result = await client.call_tool(tool, dict(arguments))
        except MCPError as error:
            self._drop(client, gone=error.code == -32000)  # CONNECTION_CLOSED
            raise
        except Exception:
            self._drop(client, gone=True)
            raise
        text = "\n".join(map(_text, result.content))
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

    async def _connected(self) -> Any:
        async with self._turn:
            if self._client is None:
                ready = asyncio.get_running_loop().create_future()
                self._keeper = asyncio.create_task(self._keep(ready))
                self._client = await ready
            return self._client

    async def _keep(self, ready: asyncio.Future[Any]) -> None:
        """Holds the connection open until it is dropped or the event loop ends."""
        client = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._config.timeout):
                    client = await stack.enter_async_context(self._opened())
                if ready.done():  # nobody waits any more
                    return
                ready.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
        finally:
            self._drop(client, gone=True)
            if not ready.done():
                ready.cancel()

    def _drop(self, client: Any, *, gone: bool) -> None:
        if gone and client is self._client:
            self._client = None
            if self._keeper and self._keeper is not asyncio.current_task():
                self._keeper.cancel()

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
                    passed = {name: os.environ[name] for name in config.env if name in os.environ}
                    started = StdioServerParameters(command=program, args=arguments, env=passed)
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
    text = getattr(block, "text", None)
    return text if isinstance(text, str) else f"[{getattr(block, 'type', 'unknown')}, not shown]"


def _reason(error: BaseException) -> str:
    """The first plain error of the groups that the SDK's tasks end in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


def _last_line(errors: TextIO) -> str:
    """What a program last wrote to standard error."""
    errors.seek(0)
    lines = errors.read()[-2000:].strip().splitlines()
    return f" ({lines[-1]})" if lines else ""
