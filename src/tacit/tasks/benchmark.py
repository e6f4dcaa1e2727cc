"""What a benchmark is: files, splits and how a row becomes a task. Knows none by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tacit.errors import DataError
from tacit.registry import check_name
from tacit.tasks.source import PlacedRow, Row
from tacit.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A part of a benchmark: which file, and which of its rows."""

    file: str
    """The original file, relative to the data folder and without `.gz`."""
    rows: int
    keep: Callable[[Row], bool] | None = None
    without: str = ""
    """Another split, whose questions are left out of this one."""
    canaried: bool = False
    """Its authors ask that it stay out of training data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One named set of tasks, read from files."""

    name: str
    family: str
    """Also the name of the grader of its tasks."""
    description: str
    licence: str
    splits: Mapping[str, Split]
    parse: Callable[[Row, str], Task]
    """Makes the task of a row; the second argument is the task's id."""
    key: str = ""
    """The field that names a row in ids; its place in the file where there is none."""

    @property
    def evaluation_only(self) -> bool:
        return all(split.canaried for split in self.splits.values())

    def load(self, split: str, read: Callable[[str], list[PlacedRow]]) -> list[Task]:
        """The tasks of a split, or of several joined with `+`; `read` gives the rows of a file."""
        return [task for part in split.split("+") for task in self._load_one(part, read)]

    def _load_one(self, name: str, read: Callable[[str], list[PlacedRow]]) -> list[Task]:
        check_name(f"split of {self.name}", name, self.splits)
        split = self.splits[name]
        tasks = [
            self._task(name, index, placed)
            for index, placed in enumerate(read(split.file))
            if split.keep is None or split.keep(placed[1])
        ]
        return drop_leaks(tasks, self.load(split.without, read))[0] if split.without else tasks

    def _task(self, split: str, index: int, placed: PlacedRow) -> Task:
        place, row = placed
        key = str(row.get(self.key, index)).removeprefix(f"{split}/")
        try:
            return self.parse(row, f"{self.name}/{split}/{key}")
        except KeyError as error:
            problem = f"no field {error}"
        except (ValueError, TypeError, AttributeError) as error:
            problem = str(error)
        raise DataError(f"{place}: {problem}: is this the original {self.name} file?")


def drop_leaks(train: Sequence[Task], test: Iterable[Task]) -> tuple[list[Task], int]:
    """The training tasks whose question is not in the evaluation tasks, and how many were.

    Questions that differ only in case or blanks count as the same.
    """
    held_out = {_normalised(task.question) for task in test}
    kept = [task for task in train if _normalised(task.question) not in held_out]
    return kept, len(train) - len(kept)


def _normalised(question: str) -> str:
    return "".join(question.casefold().split())
