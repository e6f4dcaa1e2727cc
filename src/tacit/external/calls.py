"""`calls.jsonl`: one line for each request that was passed on, with what came back.

Only what was said is kept: no headers, no query, no API key. Of bodies that are not JSON, such as
audio, nothing is kept but that they were sent.
"""

import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.external.passing import OF_START, Exchange, KeyLabels
from tacit.external.wire_formats import assembled, parsed
from tacit.run.folder import RunFolder, read_lines

log = logging.getLogger(__name__)

CALLS = "calls.jsonl"
SECRET = 16
"""A key of so many characters is also taken out of bodies; shorter ones are words like `EMPTY`."""
HIDDEN = "[key]"
KEYED_TOOL = ("authorization", "headers")
"""Where a tool of type `mcp` holds the keys of somebody else's server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line."""

    start: float
    """Seconds since 1970, as is `end`."""
    end: float
    method: str
    path: str
    """Below `/v1/`."""
    status: int
    """What the client was told; 0 if it went away before that."""
    episode: str | None
    """As the client named it; None if it did not."""
    role: str | None
    key: str | None
    """A label for the API key: `key 1`, `key 2`, … in order of appearance; `key 1 of start 2`."""
    streamed: bool
    request: Any
    """The JSON of the body; None if it had none."""
    response: Any
    """The JSON of the reply; of a stream the reply that would have come whole."""
    error: str | None
    """Why there is no complete reply; None also for a server's refusal, which `status` tells."""

    @property
    def failed(self) -> bool:
        refused = isinstance(self.response, dict) and self.response.get("error")
        return bool(self.error or refused or not 200 <= self.status < 300)


def record_of(exchange: Exchange) -> Record:
    """What is kept of an exchange that is over."""
    streamed, error = "event-stream" in exchange.kind, exchange.error
    reply = _unpacked(exchange)
    if streamed:
        response, whole = assembled(exchange.path, reply)
        # a client that has heard the end may hang up before the server does
        error = None if whole else error or "the stream broke off"
    else:
        response = parsed(reply)
    return Record(
        start=exchange.start,
        end=exchange.end,
        method=exchange.method,
        path=exchange.path,
        status=exchange.status,
        episode=exchange.episode,
        role=exchange.role,
        key=exchange.key,
        streamed=streamed,
        request=without_keys(parsed(exchange.body)),
        response=response,
        error=error,
    )


def _unpacked(exchange: Exchange) -> bytes:
    if exchange.packing not in ("gzip", "deflate"):
        return bytes(exchange.reply)
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=47).decompress(exchange.reply)  # of either kind
    return b""


def line_of(record: Record, secrets: Sequence[str] = ()) -> bytes:
    """ASCII, since models may say half a character; `secrets` are taken out."""
    tree = {field.name: getattr(record, field.name) for field in fields(record)}
    line = json.dumps(tree, separators=(",", ":"))
    for secret in secrets:
        if len(secret) >= SECRET:
            line = line.replace(json.dumps(secret)[1:-1], HIDDEN)
    return line.encode()


def read_calls(folder: str | Path, name: str = CALLS) -> Iterator[Record]:
    """All complete lines, in the order in which calls ended."""
    path = Path(folder) / name
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield Record(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            raise ConfigError(f"{path} line {number} is no call: remove that line") from None


class CallLog:
    """Appends calls to a folder, line by line."""

    def __init__(self, run: RunFolder, name: str = CALLS, secrets: Sequence[str] = ()) -> None:
        """`secrets`: keys of our own, which the server might quote."""
        self._run, self._name, self._secrets = run, name, secrets
        run.mend(name)
        labels = [record.key for record in read_calls(run.path, name) if record.key]
        starts = [int(label.partition(OF_START)[2] or 1) for label in labels]
        self.keys = KeyLabels(1 + max(starts, default=0))
        self.kept = self.failed = self.lost = 0
        """Calls on disk, those of them that failed, and calls that could not be written."""

    def keep(self, exchange: Exchange) -> Record:
        record = record_of(exchange)
        self.append(record, exchange.secret)
        return record

    def append(self, record: Record, secret: str = "") -> None:
        """A disk that is full must not stop the app: what is lost is counted and said."""
        try:
            if self.lost:
                self._run.mend(self._name)  # half a line may have been written
            self._run.append(self._name, line_of(record, (secret, *self._secrets)))
        except OSError as error:
            self.lost += 1
            log.error("a call could not be kept: %s", error.strerror)
        else:
            self.kept += 1
            self.failed += record.failed


def without_keys(request: Any) -> Any:
    """The request without the keys that a remote tool server is shown."""
    tools = request.get("tools") if isinstance(request, dict) else None
    if not isinstance(tools, list):
        return request
    hidden = [
        {k: HIDDEN if k in KEYED_TOOL else v for k, v in tool.items()}
        if isinstance(tool, dict) and tool.get("type") == "mcp"
        else tool
        for tool in tools
    ]
    return request | {"tools": hidden}
