"""Smaller teams that an audit speaks for: without what did not help, or with a rule."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.audit.auditing import BASE
from tacit.audit.targets import targets_of
from tacit.config import AuditConfig, Config, Cut, TeamConfig
from tacit.team.prompts import HELPING_PARTS
from tacit.team.roster import has_role
from tacit.types import Episode

MOST = 6
"""Proposals by the audit; each more makes every check stricter."""
AGREED = "stop where answers agree"


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
    parts: Sequence[Mapping[str, Any]],
    team: TeamConfig,
    plays: Callable[[str], Sequence[Episode]],
) -> list[Proposal]:
    """Teams without the part that is worth least, without the two worst, and so on.

    Then without one agent or round alone. Parts that help for certain stay, and so does the last
    agent of each role. `plays` gives the audit's plays by name: what plays without a part no longer
    have need not be cut besides. Several answers of one team may also end the talk where they
    agree, alone and beside the smallest cut.
    """
    rest = [part for part in parts if part["verdict"] != "helps"]
    worst = sorted(rest, key=lambda part: float(part["value"]["mean"]))
    left = {str(part["name"]) for part in worst}
    cuts: dict[str, Cut] = {}
    found: list[Proposal] = []
    for part in worst:
        name, cut = part["name"], cut_of(part)
        if name in left and _leaves_one(cut, cuts.values(), team):
            still = {one.name for one in targets_of(plays(f"without {name}"), AuditConfig())}
            left &= still
            cuts = {other: one for other, one in cuts.items() if other in still} | {name: cut}
            found.append(named(frozenset(cuts.values())))
    larger = [part for part in worst if part["kind"] != "edge"]
    cuttable = (cut for cut in map(cut_of, larger) if _leaves_one(cut, (), team))
    alone = [named(frozenset({cut})) for cut in cuttable]
    chosen = list(dict.fromkeys([*found, *alone]))[: MOST - 2]
    rules = [Proposal(name=AGREED, stop="agreed")]
    if chosen:
        smallest = chosen[0]
        name = f"{smallest.name}, {AGREED}"
        rules.append(Proposal(name=name, without=smallest.without, stop="agreed"))
    return chosen + (rules if team.stop is None and _several_answer(plays(BASE)) else [])


def cut_of(part: Mapping[str, Any]) -> Cut:
    """The cut behind an audit's row, by its name."""
    if part["kind"] == "round":
        return Cut(round=int(part["name"].removeprefix("round ")))
    agent, _, reader = part["name"].partition(" to ")
    return Cut(agent=agent, reader=reader or None)


def named(cuts: frozenset[Cut]) -> Proposal:
    return Proposal(name="without " + ", ".join(sorted(map(str, cuts))), without=cuts)


def _leaves_one(cut: Cut, cuts: Iterable[Cut], team: TeamConfig) -> bool:
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
