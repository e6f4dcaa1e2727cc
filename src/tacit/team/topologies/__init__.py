"""The topologies that ship. To add one, write a function in a file here and list it below."""

from tacit.config import TeamConfig
from tacit.team.roster import Role, Topology
from tacit.team.topologies.baselines import (
    evo_agent,
    quality_diversity,
    self_consistency,
    self_refine,
    step_back,
)
from tacit.team.topologies.collaboration import (
    critic_actor,
    dialogue,
    hint_actor,
    role_assignment,
    solo,
)
from tacit.team.topologies.debate import debate
from tacit.team.topologies.private import holders, no_search, tester

_ACTOR = {"actor": Role(part="solver")}
_SAMPLER = {"actor": Role(part="solver", temperature=0.7)}


def _in_rounds(team: TeamConfig) -> bool:
    return bool(team.options.get("rounds", 1) != 1)


TOPOLOGIES: dict[str, Topology] = {
    "solo": Topology(play=solo, roles=_ACTOR, summary="one agent answers alone"),
    "hint_actor": Topology(
        play=hint_actor,
        roles={"hinter": Role(part="hinter", may_be_silent=True), **_ACTOR},
        summary="a hinter may give the Actor a hint",
    ),
    "critic_actor": Topology(
        play=critic_actor,
        roles={**_ACTOR, "critic": Role(part="critic", may_be_silent=True)},
        summary="the Actor drafts; a critic may comment; the Actor revises",
        repeats=_in_rounds,
    ),
    "debate": Topology(
        play=debate,
        roles={
            "debater": Role(part="debater", many=True, least=2),
            "collaborator": Role(part="guide", may_be_silent=True, optional=True),
        },
        summary="agents answer, read each other, answer again, then vote",
    ),
    "role_assignment": Topology(
        play=role_assignment,
        roles={
            "picker": Role(part="role_picker"),
            "actor": Role(part="expert"),
            "collaborator": Role(part="hinter", may_be_silent=True, optional=True),
        },
        summary="one agent names an expert; the Actor answers as that expert",
    ),
    "dialogue": Topology(
        play=dialogue,
        roles={"agent": Role(part="speaker", many=True, least=2, may_be_silent=True)},
        summary="agents take turns and may be silent; then the first one answers",
        repeats=lambda team: True,
    ),
    "holders": Topology(
        play=holders,
        roles={
            "holder": Role(part="holder", many=True, may_be_silent=True),
            "asker": Role(part="solver"),
            "inquirer": Role(part="inquirer", may_be_silent=True, optional=True),
        },
        summary="holders of private documents may tell the asker, who answers",
        repeats=lambda team: "inquirer" in team.agents,
        check=no_search,
    ),
    "tester": Topology(
        play=tester,
        roles={**_ACTOR, "tester": Role(part="tester", may_be_silent=True)},
        summary="the Actor writes code; a tester runs the visible tests and may report",
        repeats=_in_rounds,
        finds_needed=True,
    ),
    "self_consistency": Topology(
        play=self_consistency, roles=_SAMPLER, summary="a majority of n answers of one agent"
    ),
    "self_refine": Topology(
        play=self_refine,
        roles=_ACTOR,
        summary="one agent refines its own answer until it finds no error",
    ),
    "step_back": Topology(
        play=step_back, roles=_ACTOR, summary="one agent states principles, then answers"
    ),
    "quality_diversity": Topology(
        play=quality_diversity,
        roles=_SAMPLER,
        summary="one agent writes several solutions, then picks one",
    ),
    "evo_agent": Topology(
        play=evo_agent, roles=_SAMPLER, summary="experts bred over generations improve the answer"
    ),
}
