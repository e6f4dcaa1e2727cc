"""`calls.jsonl`: one line for each request that was passed on, with what came back.

Only what was said is kept: no headers, no query, no API key. Of bodies that are not JSON, such as
audio, nothing is kept but that they were sent.
"""

import json
import logging
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.external.passing import OF_START, Exchange, KeyLabels
from tacit.external.wire_formats import assembled
from tacit.run.folder import RunFolder, read_lines
from tacit.serve.upstream import parsed

log = logging.getLogger(__name__)

CALLS = "calls.jsonl"
SECRET = 16
"""A key of so many characters is taken out of all that is kept; shorter ones are words: `EMPTY`."""
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


def line_of(record: Record) -> bytes:
    """ASCII, since models may say half a character."""
    tree = {field.name: getattr(record, field.name) for field in fields(record)}
    return json.dumps(tree, separators=(",", ":")).encode()


class KeylessFolder(RunFolder):
    """Takes API keys that this process has seen out of whatever is written, whoever quotes them."""

    def __init__(self, path: str | Path, *keys: str | None) -> None:
        super().__init__(path)
        self._keys: set[str] = set()
        self.hide(*keys)

    def hide(self, *keys: str | None) -> None:
        self._keys |= {key for key in keys if key and len(key) >= SECRET}

    def hidden(self, text: str) -> str:
        for key in sorted(self._keys, key=len, reverse=True):  # one may begin with another
            text = text.replace(json.dumps(key)[1:-1], HIDDEN)
        return text

    def append(self, name: str, line: bytes) -> None:
        super().append(name, self.hidden(line.decode()).encode())

    def write_json(self, name: str, value: Any) -> None:
        super().write_json(name, json.loads(self.hidden(json.dumps(value))))


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

    def __init__(self, run: KeylessFolder, name: str = CALLS) -> None:
        self._run, self._name = run, name
        run.mend(name)
        labels = [record.key for record in read_calls(run.path, name) if record.key]
        starts = [int(label.partition(OF_START)[2] or 1) for label in labels]
        self.keys = KeyLabels(1 + max(starts, default=0))
        self.kept = self.failed = self.lost = 0
        """Calls on disk, those of them that failed, and calls that could not be written."""

    def keep(self, exchange: Exchange) -> Record:
        record = record_of(exchange)
        self._run.hide(*exchange.secrets)
        self.append(record)
        return record

    def append(self, record: Record) -> None:
        """A disk that is full must not stop the app: what is lost is counted and said."""
        try:
            if self.lost:
                self._run.mend(self._name)  # half a line may have been written
            self._run.append(self._name, line_of(record))
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
