"""Which training tasks teach when to speak: those that the team solves if all is told.

On the others, about half, speaking is worth nothing either way. To write them down, play a recipe
in which the answering agent knows everything, then name what is kept and the run:

    tacit eval experiments/split-gsm8k-told.yaml --out runs/told
    python -m experiments.solvable split-gsm8k runs/told
"""

import json
import sys
from pathlib import Path

from tacit import TacitError, Task
from tacit.run.folder import RunFolder

FOLDER = Path(__file__).parent / "results" / "solvable"
ENOUGH = 0.5
"""The least reward of a solved task: a graded F1 is rarely 1."""


def only_solvable(name: str, tasks: list[Task]) -> list[Task]:
    """The order is kept, so that `offset` and `limit` count what is left."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        raise TacitError(f"{path} is missing: {name}-told.yaml says how it is made")
    known = frozenset(json.loads(path.read_text()))
    return [task for task in tasks if task.id in known]


def main() -> None:
    name, run = sys.argv[1:]
    folder = RunFolder.existing(Path(run))[0]
    (played,) = (Path(run) / "episodes").glob("*.jsonl")  # of its one team
    episodes = folder.episodes(played.stem)
    solved = sorted(one.task_id for one in episodes if one.grade and one.grade.reward >= ENOUGH)
    if not solved:
        sys.exit(f"error: no task of {played} is solved")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(solved, indent=0) + "\n")
    print(f"{len(solved)} tasks in {path}")


if __name__ == "__main__":
    main()
