"""Rows of a file: .json or .jsonl, plain or .gz. Every row comes with its place, for errors.

Knows nothing of what the rows mean.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import DataError

Row = Mapping[str, Any]
PlacedRow = tuple[str, Row]
"""A row and its place: the file, and the line or the row's number."""
MOST_NESTED = 200
"""Levels of lists and objects in a row; Python's own functions give up at about a thousand."""
_LINE = re.compile(r"\S[^\n]*")
"""A line that is not empty. Unlike `splitlines`, does not break at U+2028, which JSON allows."""


def locate(folder: Path, file: str) -> Path:
    """The file or its `.gz` in the folder."""
    plain = folder / file
    for path in (plain, plain.with_name(f"{plain.name}.gz")):
        if path.is_file():
            return path
    raise DataError(
        f"no file {plain} (nor {plain.name}.gz): put the benchmark's original file there, "
        "name its folder (`folder`, or TACIT_DATA), or download it with `hub: true`"
    )


def read_rows(path: Path) -> list[PlacedRow]:
    """Every row of a file: lines of a .jsonl, else a JSON list or a BIG-bench `examples` list."""
    text = _read_text(path)
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return list(_read_lines(path, text))
    content = _parse(f"{path}", text)
    rows = content.get("examples") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise DataError(f"{path}: expected a JSON list, or an object with a list `examples`")
    return [_placed(f"{path}, row {index}", row) for index, row in enumerate(rows)]


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"no file {path}: check the path") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read {path} ({error}): fetch or save it again, as UTF-8"
        ) from error


def _read_lines(path: Path, text: str) -> Iterator[PlacedRow]:
    number, counted = 1, 0
    for line in _LINE.finditer(text):
        number += text.count("\n", counted, line.start())
        counted, place = line.start(), f"{path}:{number}"
        yield _placed(place, _parse(place, line[0]))


def _parse(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON ({error}): mend it") from None


def _placed(place: str, row: Any) -> PlacedRow:
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected a JSON object, got {type(row).__name__}")
    try:
        _check(row)
    except ValueError as error:
        raise DataError(f"{place}: {error}: mend it") from None
    return place, row


def _check(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a value that could not be written to a run folder again."""
    if depth > MOST_NESTED:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        value.encode()  # refuses half a surrogate pair
    elif isinstance(value, dict):
        for pair in value.items():
            _check(pair, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            _check(one, depth + 1)
