"""Reading files that may be missing, torn or still growing: what is there, and what is not.

Nothing here raises for what a file holds; what could not be read is said in `notes`.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

_TAIL = 256
"""Bytes remembered of the last line, to notice that a file was cut and written anew."""


def parse(text: bytes) -> Any:
    """JSON, quickly; the slower parser takes what the strict one refuses (half a character)."""
    try:
        return from_json(text, cache_strings="keys")
    except ValueError:
        return json.loads(text)


def read_json(path: Path, notes: list[str]) -> dict[str, Any]:
    """A file's object. Empty if there is none; a file that is damaged adds a note."""
    try:
        return tree_at(parse(path.read_bytes()))
    except FileNotFoundError:
        pass
    except (ValueError, RecursionError) as error:
        notes.append(f"{path.name} is damaged and left out ({error}).")
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}.")
    return {}


def tree_at(value: Any, *path: str) -> dict[str, Any]:
    """The object under these keys; empty if something else is there."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def trees_at(value: Any, key: str) -> list[dict[str, Any]]:
    """The objects of the list under a key; whatever else it holds is left out."""
    found = tree_at(value).get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def numbers_at(tree: dict[str, Any], *names: str) -> dict[str, float | None]:
    """What the tree has in numbers under these names."""
    return {name: number(tree.get(name)) for name in names}


class Tail:
    """A JSONL file as it grows. `epoch` counts how often it was cut and begun anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch = 0
        self._restart()

    def _restart(self) -> None:
        self.offset = 0
        self.unreadable = 0
        self.torn = False
        self._last = b""
        self.forget()

    def forget(self) -> None:
        """For subclasses: what was taken from the file no longer counts."""

    def new(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Objects of the whole lines since the last look, each with its place and length."""
        try:
            file = self.path.open("rb")
        except OSError:
            if self.offset:
                self._begin_anew()
            return
        with file:
            file.seek(self.offset - len(self._last))
            if file.read(len(self._last)) != self._last:
                self._begin_anew()
            file.seek(self.offset)
            self.torn = False
            for line in file:
                if not line.endswith(b"\n"):
                    self.torn = True
                    return
                place = self.offset
                self.offset += len(line)
                self._last = line[-_TAIL:]
                try:
                    tree = parse(line)
                except (ValueError, RecursionError):
                    tree = None
                if isinstance(tree, dict):
                    yield place, len(line), tree
                else:
                    self.unreadable += bool(line.strip())

    def _begin_anew(self) -> None:
        self.epoch += 1
        self._restart()

    def notes(self) -> list[str]:
        said = []
        if self.torn:
            said.append(f"{self.path.name}: the last line is torn and left out.")
        if self.unreadable:
            count = f"{self.unreadable} line{'s' if self.unreadable > 1 else ''}"
            said.append(f"{self.path.name}: {count} could not be read and are left out.")
        return said


class Columns(Tail):
    """A metrics file as columns. If a step was replayed, its last numbers count."""

    def forget(self) -> None:
        self._rows: dict[float, dict[str, float]] = {}

    @property
    def steps(self) -> list[float]:
        return list(self._rows)

    def refresh(self) -> bool:
        """Take in what is new; True if anything changed."""
        before, lines = self.epoch, 0
        for _, _, tree in self.new():
            lines += 1
            step = number(tree.pop("step", None))
            if step is not None:
                row = self._rows.setdefault(step, {})
                for name, value in tree.items():
                    if (kept := number(value)) is not None:
                        row[name] = kept if isinstance(kept, int) else float(f"{kept:.6g}")
        return lines > 0 or self.epoch != before

    def to_json(self) -> dict[str, Any]:
        steps = sorted(self._rows)
        names = dict.fromkeys(name for step in steps for name in self._rows[step])
        columns = {name: [self._rows[step].get(name) for step in steps] for name in names}
        return {"steps": steps, "columns": columns}
