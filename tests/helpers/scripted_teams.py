"""Teams whose agents are scripted, for tests of what happens around the models."""

from collections.abc import Mapping
from typing import Any

from tacit.config import AgentConfig, TeamConfig
from tacit.engine.scripted import Script, ScriptedEngine
from tacit.rollout.play import Job, play_episode
from tacit.team.roster import Roster, build_roster
from tacit.team.setting import Setting
from tacit.types import Call, Episode, Task

SILENT = "<silent>"
TASK = Task(
    id="sum/1", question="What is 17 + 25?", answer="42", grader="math", instruction="Box it."
)


def scripted(
    topology: str,
    scripts: Mapping[str, Script],
    *,
    options: Mapping[str, Any] | None = None,
    prompts: str = "tagged",
    **agents: Mapping[str, Any],
) -> Roster:
    """A roster with one scripted engine per role; `agents` are the roles' settings."""
    config = TeamConfig.model_validate(
        {
            "topology": topology,
            "agents": {role: AgentConfig(**agents.get(role, {})) for role in scripts},
            "prompts": prompts,
            "options": options or {},
        }
    )
    engines = {role: ScriptedEngine(script, model=role) for role, script in scripts.items()}
    return build_roster(config, engines)


async def play(roster: Roster, task: Task = TASK, setting: Setting | None = None) -> Episode:
    return await play_episode(roster, Job(task, setting or Setting()))


def system(call: Call) -> str:
    return next((m.content for m in call.messages if m.role == "system"), "")


def user(call: Call) -> str:
    return call.messages[-1].content


def order(episode: Episode) -> list[tuple[str, str]]:
    """Who was asked to be what, in order."""
    return [(call.agent, call.part) for call in episode.calls]
