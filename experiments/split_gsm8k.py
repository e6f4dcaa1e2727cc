"""GSM8K with private notes: a helper may hold a sentence that the Actor lacks.

Half of the tasks ("needed") lose one sentence with a number, which stands among the helper's four
notes; on the other half ("free") the question is whole and every note is of another problem. So
speaking is worth much on one half and nothing on the other, and what to say is one note of four.

Training may keep to the tasks that the Actor solves if it knows everything: see `solvable`.
"""

from dataclasses import replace

from experiments.solvable import only_solvable
from tacit import Message, Role, Task, Team, Topology, load_tasks

_ROLES = {"hinter": Role(part="hinter", may_be_silent=True), "actor": Role(part="solver")}


def tasks(split: str = "test", solved: bool = False) -> list[Task]:
    """Those of `split_gsm8k`, with the ids of recorded runs; `solved` keeps the solvable ones."""
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
    return only_solvable("split-gsm8k", every) if solved else every


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
