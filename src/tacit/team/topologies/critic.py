"""Critic-actor (AgentPO, feedback): the Actor drafts, a critic comments, the Actor revises.

The draft is sampled fresh in every episode. A silent critic ends the refinement, which saves the
Actor's second call.
"""

from tacit.team.team import Team
from tacit.types import Message, Task


async def critic_actor(task: Task, team: Team, rounds: int = 1) -> Message:
    draft = await team.actor.ask(task.question)
    for number in range(1, rounds + 1):
        comment = await team.critic.ask(task.question, draft=draft, round=number)
        if comment.silent:
            break
        draft = await team.actor.ask(
            task.question,
            part="reviser",
            draft=draft,
            comment=comment,
            round=number,
            final=number == rounds,
        )
    return draft
