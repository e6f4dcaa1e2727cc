"""Hint-actor (AgentPO, feed-forward): a Collaborator may hint before the Actor answers."""

from tacit.team.team import Team
from tacit.types import Message, Task


async def hint_actor(task: Task, team: Team) -> Message:
    hint = await team.hinter.ask(task.question)
    return await team.actor.ask(task.question, hint=hint, round=1, final=True)
