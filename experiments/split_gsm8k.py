"""GSM8K with private notes: a helper may hold a sentence that the Actor lacks.

Half of the tasks ("needed") lose one sentence with a number, which stands among the helper's four
notes; on the other half ("free") the question is whole and every note is of another problem. So
speaking is worth much on one half and nothing on the other, and what to say is one note of four.

Whether to speak can be learned only where the Actor gets the answer right if it knows everything,
on about half of the tasks. Training may keep to those: play `split-gsm8k-told.yaml` once, then
`python -m experiments.split_gsm8k runs/split-gsm8k-told` writes down which they are.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from tacit import Message, Role, TacitError, Task, Team, Topology, load_tasks
from tacit.run.folder import RunFolder

_ROLES = {"hinter": Role(part="hinter", may_be_silent=True), "actor": Role(part="solver")}
SOLVED = Path(__file__).parent / "results" / "solved" / "split-gsm8k.json"
"""Ids of the training tasks that the Actor solves if it is told what it lacks."""


def tasks(split: str = "test", solved: bool = False) -> list[Task]:
    """The tasks of `split_gsm8k`, with the ids of recorded runs; `solved` keeps those in SOLVED.

    The order of the original is kept, so that `offset` and `limit` count what is left.
    """
    known = _solved() if solved else None
    seeing, blind = (load_tasks(f"split_gsm8k{kind}", split=split) for kind in ("", "_blind"))
    every = [
        replace(
            task,
            id=task.id.replace("split_gsm8k", "jigsaw"),  # the shuffle goes by ids
            views={},
            data={
                "notes": task.views["hinter"],
                "asked": other.question,
                **task.data,
            },
        )
        for task, other in zip(seeing, blind, strict=True)
    ]
    return every if known is None else [task for task in every if task.id in known]


def _solved() -> frozenset[str]:
    if not SOLVED.exists():
        raise TacitError(f"{SOLVED} is missing: split-gsm8k-told.yaml says how it is made")
    return frozenset(json.loads(SOLVED.read_text()))


def _listed(task: Task) -> str:
    return f"Your private notes:\n{task.data['notes']}"


async def _seeing(task: Task, team: Team) -> Message:
    shown = f"The question that your teammate sees:\n{task.question}\n\n{_listed(task)}"
    hint = await team.hinter.ask(shown)
    return await team.actor.ask(task.question, hint=hint, final=True)


async def _blind(task: Task, team: Team) -> Message:
    """The helper cannot solve the question: it sees what is asked, and its notes."""
    shown = f"Your teammate is asked: {task.data['asked']}\n\n{_listed(task)}"
    hint = await team.hinter.ask(shown)
    return await team.actor.ask(task.question, hint=hint, final=True)


async def _told(task: Task, team: Team) -> Message:
    return await team.actor.ask(task.question, hint=task.data["fact"] or None, final=True)


seeing = Topology(play=_seeing, roles=_ROLES, summary="a helper with private notes")
blind = Topology(
    play=_blind, roles=_ROLES, summary="a helper with private notes who does not see the question"
)
oracle = Topology(
    play=_told,
    roles={"actor": Role(part="solver")},
    summary="the Actor is told what it lacks, for nothing",
)


if __name__ == "__main__":
    (played,) = sys.argv[1:]
    right = sorted(one.task_id for one in RunFolder(Path(played)).episodes("team") if one.right)
    SOLVED.parent.mkdir(exist_ok=True)
    SOLVED.write_text(json.dumps(right, indent=0) + "\n")
    print(f"{len(right)} tasks in {SOLVED}")
