"""What a benchmark is: files, splits, and how a row becomes a task. Knows none by name."""

import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.benchmarks import hub as hub_copy
from tacit.errors import ConfigError, DataError
from tacit.registry import check_name
from tacit.tasks.filters import drop_leaks
from tacit.tasks.instructions import instruction
from tacit.tasks.source import PlacedRow, Row, locate, read_rows
from tacit.types import Task

Fields = dict[str, Any]
"""A task's question and answer; its level, subject, views and data if the row has them."""
Reader = Callable[[str], list[PlacedRow]]
"""Gives the rows of an original file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of a benchmark: which file, and which of its rows."""

    file: str
    """The original file, relative to the data folder and without `.gz`."""
    rows: int
    keys: Container[Any] | None = None
    """Only the rows whose key, or number in the file if they have none, is one of these."""
    without: str = ""
    """Another split, whose questions are left out of this one."""
    canaried: bool = False
    """Its authors ask that it stay out of training data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One named set of tasks, read from files."""

    name: str
    grader: str
    description: str
    licence: str
    splits: Mapping[str, Split]
    parse: Callable[[Row], Fields]
    key: str = ""
    """The field that names a row in ids; without one, ids count the rows of the file."""
    choices: tuple[str, ...] = ()
    remake: Callable[[str, list[Task]], list[Task]] | None = None
    """Makes other tasks of a split's own, if one row is not enough to make a task."""
    reserved: str = "is BIG-bench data, whose authors ask that it stay out of training"
    """Why canaried splits are not for training."""

    @property
    def instruction(self) -> str:
        return instruction(self.grader, self.choices)

    @property
    def evaluation_only(self) -> bool:
        return all(split.canaried for split in self.splits.values())

    def check_trainable(self, split: str) -> None:
        """Refuse to train on a split whose authors ask for evaluation only."""
        for part in split.split("+"):
            if part in self.splits and self.splits[part].canaried:
                raise ConfigError(
                    f"{self.name}/{part} {self.reserved}: "
                    "train on something else, or insist with `allow_canaried: true`"
                )

    def load(self, split: str, folder: str | Path | None, hub: bool) -> list[Task]:
        """The tasks of a split, or of several joined with `+`."""
        return self._load(split, _reader(self.name, folder, hub))

    def _load(self, split: str, read: Reader) -> list[Task]:
        return [task for part in split.split("+") for task in self._load_one(part, read)]

    def _load_one(self, name: str, read: Reader) -> list[Task]:
        check_name(f"split of {self.name}", name, self.splits)
        split = self.splits[name]
        tasks = [
            self._task(name, index, placed)
            for index, placed in enumerate(read(split.file))
            if split.keys is None or placed[1].get(self.key, index) in split.keys
        ]
        if self.remake:
            tasks = self.remake(name, tasks)
        return drop_leaks(tasks, self._load(split.without, read))[0] if split.without else tasks

    def _task(self, split: str, index: int, placed: PlacedRow) -> Task:
        place, row = placed
        key = str(row.get(self.key, index)).removeprefix(f"{split}/")
        name = f"{self.name}/{split}/{key}"
        try:
            task: Fields = {"id": name, "grader": self.grader, "instruction": self.instruction}
            return Task(**task, **self.parse(row))
        except KeyError as error:
            problem = f"no field {error}"
        except (ValueError, TypeError, AttributeError) as error:
            problem = str(error)
        raise DataError(f"{place}: {problem}: is this the original {self.name} file?")


def listed(lines: Iterable[str]) -> str:
    """Lines that begin with a dash."""
    return "\n".join(f"- {line}" for line in lines)


def _reader(name: str, folder: str | Path | None, hub: bool) -> Reader:
    """Reads from the data folder, or else from the copy on the Hub."""
    named = folder or os.environ.get("TACIT_DATA")
    if not named and hub:
        return hub_copy.read_rows
    if not named:
        raise DataError(
            f"{name}: its files are needed: name the folder that holds them with `folder` or "
            "TACIT_DATA, or download them with `hub: true`"
        )
    if not Path(named).is_dir():
        origin = "`folder`" if folder else "TACIT_DATA"
        raise DataError(f"{name}: {named} is not a folder: mend {origin}")
    return lambda file: read_rows(locate(Path(named), file))
