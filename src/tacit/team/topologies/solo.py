"""One agent answers alone; chain of thought is in the task's instruction."""

from tacit.team.team import Team
from tacit.types import Message, Task


async def solo(task: Task, team: Team) -> Message:
    return await team.actor.ask(task.question, final=True)
