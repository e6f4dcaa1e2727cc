"""Who is asked what in an episode, found by playing the team once with made-up words.

The topology is played for real, on the scripted engine, so every topology is covered, one's own
too. A word stands for a token. Nobody is silent. Not covered: what tools say.
"""

import asyncio
from dataclasses import dataclass

from tacit.config import TeamConfig
from tacit.engine.base import Request
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import ConfigError, TacitError
from tacit.team.roster import build_roster
from tacit.team.setting import Setting
from tacit.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One call of an agent."""

    role: str
    model: str
    """Its name under `models`."""
    prompt: float
    """Tokens read."""
    new: float
    """Tokens said."""
    cap: int
    """Most tokens that it may say."""
    trained: bool
    first: bool
    """True if nobody was heard before, so that a group's prompts are the same."""


def turns_of(team: TeamConfig, question: int, fill: float) -> list[Turn]:
    """The calls of one episode, each saying `fill` of what it may say."""

    def reply(request: Request) -> str:
        return " ".join(["word"] * max(1, round(fill * request.sampling.max_tokens)))

    plain = {role: agent.model_copy(update={"tools": []}) for role, agent in team.agents.items()}
    team = team.model_copy(update={"agents": plain})
    roster = build_roster(team, {role: ScriptedEngine(reply, model=role) for role in team.agents})
    words = " ".join(["word"] * question)
    seated = roster.seat(Task(id="made up", question=words, answer="1", grader="exact"), Setting())
    try:
        asyncio.run(roster.play(seated))
    except ConfigError:
        raise
    except TacitError as error:
        raise ConfigError(
            f"`{team.topology}` cannot be played with made-up words: {error}"
        ) from None
    calls = seated.whole.calls
    begun = calls[0].model, calls[0].usage.prompt
    return [
        Turn(
            role=call.model,
            model=team.agents[call.model].model,
            prompt=call.usage.prompt,
            new=call.usage.generated,
            cap=team.agents[call.model].max_tokens,
            trained=team.agents[call.model].trained,
            first=(call.model, call.usage.prompt) == begun,
        )
        for call in calls
    ]
