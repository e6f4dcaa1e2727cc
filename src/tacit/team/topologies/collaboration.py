"""Topologies in which one agent answers, alone or after others have spoken."""

from tacit.team.team import Team
from tacit.types import Message, Task


async def solo(task: Task, team: Team) -> Message:
    """One agent answers alone; chain of thought is in the task's instruction."""
    return await team.actor.ask(task.question, final=True)


async def hint_actor(task: Task, team: Team) -> Message:
    """AgentPO's feed-forward setting: a Collaborator may hint before the Actor answers."""
    hint = await team.hinter.ask(task.question)
    return await team.actor.ask(task.question, hint=hint, round=1, final=True)


async def critic_actor(task: Task, team: Team, rounds: int = 1) -> Message:
    """AgentPO's feedback setting: the Actor drafts, a critic comments, the Actor revises.

    The draft is sampled anew in every episode. A silent critic ends the refinement, which saves the
    Actor's next call.
    """
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


async def role_assignment(task: Task, team: Team) -> Message:
    """One call names the expert the question needs, and the Actor answers as that expert.

    A `collaborator`, if the team has one, gives the expert a hint.
    """
    expert = await team.picker.ask(task.question)
    hint = await team.collaborator.ask(task.question) if team.has("collaborator") else None
    return await team.actor.ask(task.question, expert=expert, hint=hint, round=1, final=True)


async def dialogue(task: Task, team: Team, rounds: int = 2) -> Message:
    """Our Agent-GSPO setting: agents speak in turn, see the transcript and may be silent.

    It ends after `rounds`, or after a round in which nobody spoke. Then the first agent answers.
    """
    agents = team.all("agent")
    transcript: list[Message] = []
    for number in range(rounds):
        before = len(transcript)
        for agent in agents:
            message = await agent.ask(task.question, messages=transcript, round=number)
            if not message.silent:
                transcript.append(message)
        if len(transcript) == before:
            break
    return await agents[0].ask(
        task.question,
        part="answerer",
        messages=transcript,
        silent=False,
        round=rounds,
        final=True,
    )
