"""Dialogue, our Agent-GSPO setting: agents in fixed order, each sees the transcript, may be silent.

It ends after so many rounds or a round in which nobody spoke; then the first agent answers, and may
not be silent.
"""

from tacit.team.team import Team
from tacit.types import Message, Task


async def dialogue(task: Task, team: Team, rounds: int = 2) -> Message:
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
