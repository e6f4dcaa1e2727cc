"""A team of your own in a few lines of Python: a topology is an async function of task and team.

Here the Actor answers several times, and a helper is asked for a hint only where the answers
differ. Plays forty sums with the pocket model in seconds, beside the same Actor alone:

    python examples/custom_topology.py

A config can name it too, from the folder in which the file lies:

    tacit init
    tacit eval tacit.yaml team.topology=custom_topology:hint_when_unsure team.options.tries=3 \\
        team.agents.actor.temperature=0.7
"""

import asyncio

from tacit import (
    AgentConfig,
    Engine,
    Episode,
    Job,
    Message,
    ModelConfig,
    Setting,
    Task,
    Team,
    TeamConfig,
    build_roster,
    load_tasks,
    open_engine,
    play_all,
    read_answer,
)


async def hint_when_unsure(task: Task, team: Team, tries: int = 2) -> Message:
    answers = await team.together(*(team.actor.ask(task.question) for _ in range(tries)))
    if len({read_answer(task, answer.text) for answer in answers}) == 1:
        return answers[0]
    hint = await team.hinter.ask(task.question, round=1)
    return await team.actor.ask(task.question, hint=hint, round=2)


OWN = TeamConfig(
    topology=f"{__name__}:hint_when_unsure",
    agents={
        "actor": AgentConfig(max_tokens=24, temperature=0.7),
        "hinter": AgentConfig(max_tokens=96, silent=True),
    },
    options={"tries": 3},
)
ALONE = TeamConfig(topology="solo", agents={"actor": AgentConfig(max_tokens=24)})


async def play(team: TeamConfig, engine: Engine) -> list[Episode]:
    roster = build_roster(team, dict.fromkeys(team.agents, engine))
    tasks = load_tasks("arithmetic", split="test", limit=40)
    return await play_all(roster, [Job(task, Setting()) for task in tasks])


async def main() -> None:
    engine = open_engine("pocket", ModelConfig())
    try:
        own, alone = await play(OWN, engine), await play(ALONE, engine)
    finally:
        await engine.close()
    for name, episodes in (("alone", alone), ("hint when unsure", own)):
        right = sum(episode.grade.right for episode in episodes if episode.grade)
        tokens = sum(episode.usage.generated for episode in episodes) / len(episodes)
        print(f"{name:<17} {right:>2} of {len(episodes)} right, {tokens:4.1f} tokens an episode")
    unsure = [episode for episode in own if any(call.agent == "hinter" for call in episode.calls)]
    print(f"\nasked for a hint in {len(unsure)} of {len(own)} episodes; one of them:")
    for call in unsure[0].calls:
        print(f"  {call.agent:<7} {'(silent)' if call.silent else call.text}")


if __name__ == "__main__":
    asyncio.run(main())
