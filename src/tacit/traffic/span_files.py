"""Files of OpenTelemetry spans: OTLP/JSON, and spans as the Python SDK prints them.

A file is any row of JSON values: one object, a list, one value on each line, or values one after
another. Not covered: protobuf, and what JavaScript's console exporter prints, which is no JSON.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit.report.tolerant import tree_at, trees_at

MALFORMED = (KeyError, TypeError, ValueError, OverflowError, OSError, RecursionError)
"""What reading a span of the wrong shape can raise; a year out of range is an OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    trace: str
    id: str
    parent: str
    """Empty for a root."""
    name: str
    start: float
    """Seconds since 1970, as is `end`."""
    end: float
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    """Names and attributes."""
    service: str


def read_spans(path: str | Path) -> list[Span]:
    """Every span of a file. Whatever is malformed is named with its line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"spans: `{path}` cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"spans: `{path}` is not UTF-8 text (byte {error.start})") from None
    spans = []
    for line, value in _values(text, path):
        where = f"spans: `{path}`, line {line}"
        try:
            spans += [_span(tree, service) for tree, service in _trees(value, where)]
        except DataError:
            raise
        except MALFORMED as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise DataError(
                f"{where}: a span needs its ids, its start and its end ({said})"
            ) from None
    return spans


def _values(text: str, path: str | Path) -> Iterator[tuple[int, Any]]:
    """The JSON values of a text, each with the line it begins on."""
    decoder, at, line = json.JSONDecoder(), 0, 1
    while True:
        begin = at
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        line += text.count("\n", begin, at)
        if at == len(text):
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            raise DataError(f"spans: `{path}`, {place}: not JSON ({error.msg})") from None
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, or depth
            raise DataError(f"spans: `{path}`, line {line}: {error}") from None
        yield line, value
        line += text.count("\n", at, end)
        at = end


def _trees(value: Any, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The spans in a value, each with the name of its service."""
    if isinstance(value, list):
        for one in value:
            yield from _trees(one, where)
    elif isinstance(value, dict) and isinstance(value.get("resourceSpans"), list):
        for resource in trees_at(value, "resourceSpans"):
            for scope in trees_at(resource, "scopeSpans"):
                for tree in trees_at(scope, "spans"):
                    yield tree, _service(resource)
    elif isinstance(value, dict) and ("context" in value or "traceId" in value):
        yield value, _service(value)
    else:
        raise DataError(f"{where}: neither a span nor an object with `resourceSpans`")


def _service(tree: dict[str, Any]) -> str:
    return str(_attributes(tree_at(tree, "resource").get("attributes")).get("service.name", ""))


def _span(tree: dict[str, Any], service: str) -> Span:
    if "traceId" in tree:
        trace, own, parent = tree["traceId"], tree["spanId"], tree.get("parentSpanId")
        start, end = (int(tree[f"{key}TimeUnixNano"]) / 1e9 for key in ("start", "end"))
    else:
        trace, own = tree["context"]["trace_id"], tree["context"]["span_id"]
        parent = tree.get("parent_id")
        times = (datetime.fromisoformat(tree[f"{key}_time"]) for key in ("start", "end"))
        start, end = (time.timestamp() for time in times)
    return Span(
        trace=str(trace),
        id=str(own),
        parent=str(parent or ""),
        name=str(tree.get("name", "")),
        start=start,
        end=end,
        attributes=_attributes(tree.get("attributes")),
        events=tuple(
            (str(one.get("name", "")), _attributes(one.get("attributes")))
            for one in trees_at(tree, "events")
        ),
        service=service,
    )


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes as a plain object; OTLP/JSON lists keys with typed values."""
    if isinstance(value, dict):
        return value
    rows = value if isinstance(value, list) else []
    return {str(row["key"]): _plain(row.get("value")) for row in rows}


def _plain(value: Any) -> Any:
    tree = tree_at(value)
    for key in ("stringValue", "boolValue", "doubleValue"):
        if key in tree:
            return tree[key]
    if "intValue" in tree:  # a string, as JSON has no integers of 64 bits
        return int(tree["intValue"])
    if "arrayValue" in tree:
        return [_plain(one) for one in trees_at(tree["arrayValue"], "values")]
    return _attributes(tree_at(tree, "kvlistValue").get("values")) if tree else None
