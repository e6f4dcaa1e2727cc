"""What could be left out of a team: its agents, rounds, and who reads whom."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.config import AuditConfig, Cut
from tacit.team.prompts import HELPING_PARTS, escaped
from tacit.types import Call, Episode

Kind = Literal["agent", "round", "edge"]


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to leave out, and see what changes."""

    kind: Kind
    cut: Cut

    @property
    def name(self) -> str:
        if self.kind == "round":
            return f"round {self.cut.round}"
        return f"{self.cut.agent} to {self.cut.reader}" if self.cut.reader else str(self.cut.agent)

    def covers(self, call: Call) -> bool:
        """True for a call that is not made, or a message that is not read, without it."""
        return self.cut.agent in (None, call.agent) and self.cut.round in (None, call.round)


def targets_of(episodes: Sequence[Episode], settings: AuditConfig) -> list[Target]:
    """What these episodes of one team could have been played without.

    Left out are agents that give the answer alone, rounds if there is only one or in which one
    agent says all that it ever says, and the only reader of an agent that never answers: nobody
    hearing it is the same as it saying nothing.
    """
    agents = _agents(episodes)
    found = [Target("agent", Cut(agent=agent)) for agent in agents if not alone(agent, episodes)]
    spoken = {(call.agent, call.round) for episode in episodes for call in episode.calls}
    rounds = sorted({number for _, number in spoken})
    if settings.rounds and len(rounds) > 1:
        found += [Target("round", Cut(round=n)) for n in rounds if not _one_agents(n, spoken)]
    if settings.edges:
        for agent in agents:
            readers = sorted(_readers(agent, episodes))
            found += [
                Target("edge", Cut(agent=agent, reader=reader))
                for reader in readers
                if len(readers) > 1 or _answers(agent, episodes)
            ]
    return found


def _one_agents(number: int, spoken: Collection[tuple[str, int]]) -> bool:
    """True if one agent speaks in this round, and in no other."""
    agents = {agent for agent, at in spoken if at == number}
    return len(agents) == 1 and [agent for agent, _ in spoken if agent in agents] == [*agents]


def alone(agent: str, episodes: Iterable[Episode]) -> bool:
    """True if every answer is what the agent says last, after all others, and no other says it."""
    for episode in episodes:
        last = {call.agent: call.text for call in episode.calls if call.is_turn}
        after_all = [call.agent for call in episode.calls if call.is_turn][-1:] == [agent]
        authors = [name for name, text in last.items() if text == episode.answer]
        if not after_all or authors != [agent]:
            return False
    return True


def _agents(episodes: Iterable[Episode]) -> list[str]:
    return list(dict.fromkeys(call.agent for episode in episodes for call in episode.calls))


def _answers(agent: str, episodes: Iterable[Episode]) -> bool:
    calls = (call for episode in episodes for call in episode.calls if call.agent == agent)
    return any(call.part not in HELPING_PARTS for call in calls)


def _readers(agent: str, episodes: Iterable[Episode]) -> set[str]:
    """Agents in whose prompts a message of the agent stands."""
    found = set()
    for episode in episodes:
        said: list[str] = []
        for call in episode.calls:
            if call.agent == agent:
                text = escaped(call.delivered).strip()
                said += [text] if call.is_turn and text else []
            elif call.agent not in found:
                prompt = "\n".join(message.content for message in call.messages)
                found |= {call.agent for text in said if text in prompt}
    return found
