"""Role assignment: one call names the expert the question needs, the Actor answers as that expert.

A `collaborator`, where there is one, gives the expert a hint; the protocol is otherwise unchanged.
"""

from tacit.team.team import Team
from tacit.types import Message, Task


async def role_assignment(task: Task, team: Team) -> Message:
    expert = await team.picker.ask(task.question)
    hint = await team.collaborator.ask(task.question) if team.has("collaborator") else None
    return await team.actor.ask(task.question, expert=expert, hint=hint, round=1, final=True)
