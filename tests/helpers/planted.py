"""A team whose four helpers are worth what was planted."""

import random

from tacit.config import TeamConfig
from tacit.engine.base import Request
from tacit.engine.scripted import ScriptedEngine
from tacit.team.roster import Roster, build_roster
from tacit.team.team import Team
from tacit.types import Message, Task

SHARES = {
    "useless": (0.03, 0.03),
    "harmful": (0.01, 0.25),
    "vital": (0.48, 0.02),
    "sometimes": (0.10, 0.02),
}
"""Of all tasks: how many each helper decides, first those it helps with, then those it harms."""
TRUE = {role: helps - harms for role, (helps, harms) in SHARES.items()}
ORDER = sorted(TRUE, key=lambda role: TRUE[role])


async def panel(task: Task, team: Team) -> Message:
    """Four helpers speak, then the actor answers with what they said."""
    said = [await getattr(team, role).ask(task.question) for role in SHARES]
    return await team.actor.ask(task.question, messages=said, final=True)


def answer(request: Request) -> str:
    """Right or wrong by a point of the unit interval that each task has.

    Where the point falls into a helper's share, all depends on whether that helper is heard. So
    what one is worth does not depend on the others.
    """
    asked = request.messages[-1].content
    luck = random.Random(int(asked.split()[1]))
    point, right, start = luck.random(), luck.random() < 0.5, 0.0
    for role, shares in SHARES.items():
        for share, helps in zip(shares, (True, False), strict=True):
            if start <= point < start + share:
                right = helps == (f'from="{role}"' in asked)
            start += share
    return "yes" if right else "no"


TEAM = TeamConfig.model_validate(
    {"topology": f"{__name__}:panel", "agents": {role: {} for role in (*SHARES, "actor")}}
)


def roster() -> Roster:
    engines = {role: ScriptedEngine({"": f"{role} speaks"}) for role in SHARES}
    return build_roster(TEAM, engines | {"actor": ScriptedEngine(answer)})


def tasks_of(seed: int, count: int) -> list[Task]:
    numbers = random.Random(seed).sample(range(10**9), count)
    return [
        Task(id=f"t/{n}", question=f"Question {n} ?", answer="yes", grader="span") for n in numbers
    ]
