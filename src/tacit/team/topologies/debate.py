"""Multi-agent debate (Du et al., 2023): all answer, see each other's answers, answer again, vote.

`shape` says who sees whom: full (everyone), sparse (the two neighbours on a ring), centralised
(the first sees all, the others see the first). A `collaborator`, if the team has one, gives every
debater the same advice in every round.
"""

from typing import Literal

from tacit.team.seat import Seat
from tacit.team.team import Team
from tacit.team.vote import majority
from tacit.types import Message, Task

Shape = Literal["full", "sparse", "centralised"]


async def debate(task: Task, team: Team, rounds: int = 2, shape: Shape = "full") -> Message:
    debaters = team.all("debater")
    advice = await team.collaborator.ask(task.question) if team.has("collaborator") else None
    said = await team.together(
        *(debater.ask(task.question, part="solver", advice=advice) for debater in debaters)
    )
    for number in range(1, rounds):
        said = await team.together(
            *(
                debater.ask(task.question, advice=advice, solutions=seen, round=number)
                for debater, seen in zip(debaters, _seen(debaters, said, shape), strict=True)
            )
        )
    return majority(task, said)


def _seen(debaters: list[Seat], said: list[Message], shape: Shape) -> list[list[Message]]:
    """The answers that each debater is shown: its own first, then its peers'."""
    n = len(debaters)
    peers: dict[str, list[list[int]]] = {
        "full": [[j for j in range(n) if j != i] for i in range(n)],
        "sparse": [sorted({(i - 1) % n, (i + 1) % n} - {i}) for i in range(n)],
        "centralised": [list(range(1, n)), *([0] for _ in range(1, n))],
    }
    return [[said[i], *(said[j] for j in peers[shape][i])] for i in range(n)]
