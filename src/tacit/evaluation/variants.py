"""Other rosters for the same tasks, which a team's talk is measured against."""

from collections.abc import Collection

from tacit.config import TeamConfig
from tacit.team.roster import Roster, build_roster


def trained_alone(roster: Roster, speakers: Collection[str]) -> Roster | None:
    """The speakers' trained weights in the Actor's place, with its prompt and view, and no help.

    None if no speaker is trained, or not on the Actor's model.
    """
    rest = [agent for agent in roster.agents if agent.role not in speakers]
    engines = [agent.engine for agent in roster.agents if agent.role in speakers]
    trained = next((engine for engine in engines if engine.policy), None)
    if [agent.role for agent in rest] != ["actor"] or trained is None:
        return None
    (actor,) = rest
    if trained.model != actor.engine.model:
        return None
    team = TeamConfig.model_validate(
        {"topology": "solo", "agents": {"actor": actor.config}, "prompts": actor.form}
    )
    return build_roster(team, {"actor": trained})
