"""Other rosters for the same tasks, which a team's talk is measured against."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import Any

from tacit.engine.base import Engine, Request, Sampling, derive_seed
from tacit.team.roster import Roster, find_topology
from tacit.team.seat import Seat
from tacit.team.setting import Setting
from tacit.team.team import Team
from tacit.types import Call, ChatMessage, Message, Task

REWORD = (
    "Say the following in other words. Keep every fact and every number, and add nothing. "
    "Reply with the new wording only.\n\n"
)


def trained_alone(roster: Roster, speakers: Collection[str]) -> Roster | None:
    """The one agent that answers, alone and with the speakers' trained weights.

    It keeps its prompt and view. None if no speaker is trained, or not on that agent's model.
    """
    rest = [agent for agent in roster.agents if agent.role not in speakers]
    engines = [agent.engine for agent in roster.agents if agent.role in speakers]
    trained = next((engine for engine in engines if engine.policy), None)
    if len(rest) != 1 or trained is None or trained.model != rest[0].engine.model:
        return None
    solo = find_topology("solo")
    agent = replace(rest[0], role="actor", engine=trained, part=solo.roles["actor"].part)
    return Roster(agents=(agent,), topology=solo, remote=roster.remote)


def reworded(roster: Roster, speakers: Collection[str]) -> Roster | None:
    """The same team, but a frozen agent's model rewords what speakers say; None if none is frozen.

    The calls are recorded in the original wording. Not for external programs, which ask by HTTP.
    """
    others = [agent.engine for agent in roster.agents if agent.role not in speakers]
    frozen = next((engine for engine in others if not engine.policy), None)
    if frozen is None:
        return None
    same = {one.name: getattr(roster, one.name) for one in fields(roster)}
    return _Rewording(**same, by=frozen, of=speakers)


@dataclass(frozen=True, kw_only=True)
class _Rewording(Roster):
    by: Engine
    of: Collection[str]

    def seat(
        self, task: Task, setting: Setting, on_call: Callable[[Call], None] | None = None
    ) -> Team:
        team = Roster.seat(self, task, setting, on_call)
        team.seats = [
            _RewordedSeat(seat.agent, team, self.by) if seat.agent.role in self.of else seat
            for seat in team.seats
        ]
        return team


@dataclass(frozen=True)
class _RewordedSeat(Seat):
    by: Engine

    async def ask(self, *args: Any, **how: Any) -> Message:
        said = await Seat.ask(self, *args, **how)
        if not said.text:
            return said
        messages = (ChatMessage("user", f"{REWORD}{said.text}"),)
        done = await self.by.generate(
            Request(
                messages=messages,
                prompt_ids=self.by.encode(messages),
                sampling=Sampling(max_tokens=2 * self.agent.config.max_tokens),
                seed=derive_seed(self.team.setting.seed, self.team.task.id, said.text),
            )
        )
        return replace(said, text=done.text)
