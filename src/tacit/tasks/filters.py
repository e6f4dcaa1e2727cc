"""Selects tasks: by level and subject, in a shuffled order, without questions of the test set."""

import hashlib
from collections.abc import Iterable, Sequence

from tacit.errors import DataError
from tacit.types import Task


def keep_only(
    name: str,
    tasks: list[Task],
    level: Sequence[str | int] | None,
    subject: Sequence[str] | None,
) -> list[Task]:
    """The tasks of these levels and subjects; a DataError names one that no task has."""
    for field, wanted in (("level", level), ("subject", subject)):
        if wanted is None:
            continue
        names = {_plain(value) for value in ([wanted] if isinstance(wanted, str) else wanted)}
        present = {_plain(getattr(task, field)): getattr(task, field) for task in tasks}
        if unknown := names - present.keys():
            known = ", ".join(sorted(filter(None, present.values()))) or "none"
            raise DataError(f"{name} has no {field} {', '.join(sorted(unknown))}; it has: {known}")
        tasks = [task for task in tasks if _plain(getattr(task, field)) in names]
    return tasks


def _plain(value: str | int) -> str:
    """Level 5, "5" and 5 are the same, and so are number_theory and Number Theory."""
    return str(value).casefold().replace("_", " ").removeprefix("level ").strip()


def shuffle(tasks: list[Task], seed: int) -> list[Task]:
    """Order by a hash of seed and id: the same on every machine, and a subset keeps its order."""
    return sorted(tasks, key=lambda task: hashlib.sha256(f"{seed}/{task.id}".encode()).digest())


def drop_leaks(train: Sequence[Task], test: Iterable[Task]) -> tuple[list[Task], int]:
    """The training tasks that no evaluation task repeats, and how many were dropped.

    Tasks are the same if their question and views differ only in case or blanks.
    """
    held_out = {_joined(task) for task in test}
    kept = [task for task in train if _joined(task) not in held_out]
    return kept, len(train) - len(kept)


def _joined(task: Task) -> str:
    whole = (task.question, *(task.views[agent] for agent in sorted(task.views)))
    return "".join("\0".join(whole).casefold().split())
