"""What the endpoints of this ring share: a port of this machine, and whom a request is for."""

import asyncio
from urllib.parse import unquote

from starlette.types import ASGIApp

from tacit.serve.http_server import Served, bind, serve

EPISODE, ROLE = "x-tacit-episode", "x-tacit-role"
"""Headers by which a client names its episode and the agent that it asks."""


def split_path(path: str) -> tuple[str, str | None]:
    """The episode and the rest of `/EPISODE/v1/…`; the rest is None without a `/v1/`."""
    if path.startswith("/v1/"):
        return "", path.removeprefix("/v1/")
    name, found, rest = path.removeprefix("/").partition("/v1/")
    return (unquote(name), rest) if found else ("", None)


class Loopback:
    """An application on a free port of this machine, from now until it is closed."""

    def __init__(self, service: Served, app: ASGIApp) -> None:
        self._asked = asyncio.Semaphore(0)
        self._socket = bind("127.0.0.1", 0)
        self._socket.listen(1024)  # from now on whoever connects is served, if a little later
        self._serving = asyncio.create_task(serve(service, app, self._socket, 0.0, self._asked))

    def url(self, episode: str) -> str:
        """The base URL of one episode."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/{episode}/v1"

    async def close(self) -> None:
        self._asked.release()
        await self._serving
