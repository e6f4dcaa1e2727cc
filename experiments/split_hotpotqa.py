"""HotpotQA's paragraphs dealt to holders, as in `split-hotpotqa`: which tasks can be solved at all.

Nothing here knows which paragraphs are needed: an asker that is told all of them either finds the
answer or does not.
"""

from dataclasses import replace

from experiments.solvable import only_solvable
from tacit import Message, Role, Task, Team, Topology, load_tasks


def tasks(split: str = "train", solved: bool = False, dealt: bool = True) -> list[Task]:
    """`solved` keeps the solvable ones; if not `dealt`, nobody holds the paragraphs."""
    every = load_tasks("split_hotpotqa", split=split)
    if not dealt:
        every = [
            replace(task, views={}, data={"aliases": task.data["aliases"], "told": task.views})
            for task in every
        ]
    return only_solvable("split-hotpotqa", every) if solved else every


async def _told(task: Task, team: Team) -> Message:
    told = [Message(name, paragraphs) for name, paragraphs in task.data["told"].items()]
    return await team.asker.ask(task.question, messages=told, final=True)


oracle = Topology(
    play=_told,
    roles={"asker": Role(part="solver")},
    summary="the asker is told every paragraph, for nothing",
)
