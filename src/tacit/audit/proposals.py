"""Smaller teams that an audit speaks for: without what did not help, or with a rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.config import Config, Cut, TeamConfig
from tacit.team.prompts import HELPING_PARTS
from tacit.team.roster import has_role
from tacit.types import Episode

MOST = 6
"""Proposals by the audit; each more makes every check stricter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to change of a team."""

    name: str
    without: frozenset[Cut] = frozenset()
    stop: str | None = None

    def team(self, team: TeamConfig) -> TeamConfig:
        cuts = dict.fromkeys([*team.without, *sorted(self.without, key=str)])
        return team.model_copy(update={"without": list(cuts), "stop": self.stop or team.stop})

    def config(self, config: Config) -> Config:
        assert config.team is not None
        changed = {"name": f"{config.name}-pruned", "team": self.team(config.team)}
        return config.model_copy(update=changed)


def proposals_of(
    parts: Sequence[Mapping[str, Any]], team: TeamConfig, base: Sequence[Episode] = ()
) -> list[Proposal]:
    """Teams without the part that is worth least, without the two worst, and so on.

    Parts that help for certain stay, and so does the last agent of each role. Several answers of
    one team may also end the talk where they agree, alone and beside the smallest cut; `base` are
    plays, which tell whether several agents answer.
    """
    worst = sorted((part for part in parts if part["verdict"] != "helps"), key=_mean)
    cuts: list[Cut] = []
    found: list[Proposal] = []
    for part in worst:
        cut = cut_of(part)
        if _covered(cut, cuts) or not _leaves_one(cut, cuts, team):
            continue
        cuts = [one for one in cuts if not _covered(one, [cut])] + [cut]
        found.append(named(frozenset(cuts)))
        if len(found) == MOST - 2:
            break
    rules = [Proposal(name="stop where answers agree", stop="agreed")]
    if found:
        rules.append(
            Proposal(
                name=f"{found[0].name}, stop where answers agree",
                without=found[0].without,
                stop="agreed",
            )
        )
    return found + (rules if team.stop is None and _several_answer(base) else [])


def cut_of(part: Mapping[str, Any]) -> Cut:
    """The cut behind an audit's row, by its name."""
    if part["kind"] == "round":
        return Cut(round=int(part["name"].removeprefix("round ")))
    agent, _, reader = part["name"].partition(" to ")
    return Cut(agent=agent, reader=reader or None)


def named(cuts: frozenset[Cut]) -> Proposal:
    return Proposal(name="without " + ", ".join(sorted(map(str, cuts))), without=cuts)


def _mean(part: Mapping[str, Any]) -> float:
    return float(part["value"]["mean"])


def _covered(cut: Cut, cuts: Sequence[Cut]) -> bool:
    """True if one of the cuts leaves nothing for this one to leave out."""
    gone = {one.agent for one in cuts if one.reader is None and one.round is None}
    return cut.agent in gone or cut.reader in gone


def _leaves_one(cut: Cut, cuts: Sequence[Cut], team: TeamConfig) -> bool:
    """True if a role of several agents keeps one of them."""
    if cut.agent is None or cut.reader is not None:
        return True
    every = [*team.without, *cuts, cut]
    gone = {one.agent for one in every if one.reader is None and one.round is None}
    for role, agent in team.agents.items():
        if agent.count > 1 and sum(has_role(str(name), role) for name in gone) >= agent.count:
            return False
    return True


def _several_answer(base: Sequence[Episode]) -> bool:
    parts = ((call.agent, call.part) for episode in base for call in episode.calls)
    return len({agent for agent, part in parts if part not in HELPING_PARTS}) > 1
