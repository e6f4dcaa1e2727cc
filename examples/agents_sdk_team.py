"""A team of the OpenAI Agents SDK whose critic is trained, by pointing its client at Tacit.

The Actor drafts, a critic may comment, the Actor revises. Each agent's model name is a role of the
team, so Tacit knows who speaks, keeps the tokens and their probabilities, and trains the critic.
Needs `pip install 'tacit[serve]' openai-agents`.

    python examples/agents_sdk_team.py           # 30 steps on the pocket model, in minutes

A config can name it too, from the folder in which the file lies:

    team:
      topology: tacit.external:app
      options: {program: "agents_sdk_team:solve"}
"""

import sys

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner
from openai import AsyncOpenAI

from tacit import Config, Task, parse_config, train

CRITICISE = "Check your teammate's solution to this question. Name any error in one short remark."
REVISE = "Improve your solution where the comment shows an error."


async def solve(base_url: str, task: Task) -> str:
    """What Tacit calls for each episode: the SDK's own loop, its client at another URL."""
    async with AsyncOpenAI(base_url=base_url, api_key="any") as client:

        async def ask(name: str, instructions: str, said: str) -> str:
            model = OpenAIChatCompletionsModel(model=name, openai_client=client)
            agent = Agent(name=name, instructions=instructions, model=model)
            result = await Runner.run(agent, said, run_config=RunConfig(tracing_disabled=True))
            return str(result.final_output)

        draft = await ask("actor", task.instruction, task.question)
        shown = f"{task.question}\n\nSolution so far:\n<draft>\n{draft}\n</draft>"
        comment = await ask("critic", CRITICISE, shown)
        if not comment:  # the critic was silent
            return draft
        heard = f"{shown}\n\nA teammate's comment:\n<comment>\n{comment}\n</comment>"
        return await ask("actor", f"{task.instruction} {REVISE}", heard)


def config(steps: int) -> Config:
    return parse_config(
        {
            "name": "agents-sdk",
            "train_tasks": {"name": "arithmetic", "split": "train", "limit": 2000},
            "tasks": {"name": "arithmetic", "split": "test", "limit": 40},
            "team": {
                "topology": "tacit.external:app",
                "options": {"program": "agents_sdk_team:solve"},
                "agents": {
                    "actor": {"max_tokens": 16},
                    "critic": {"trained": True, "silent": True, "max_tokens": 80},
                },
            },
            "budget": {"tokens": 20},
            "policy": {"kind": "full"},
            "optimizer": {"learning_rate": 2e-4},
            "train": {
                "steps": steps,
                "tasks_per_step": 8,
                "group": 8,
                "evaluate_every": 10,
                "concurrency": 16,  # each episode is a thread with clients of its own
            },
            "evaluation": {"concurrency": 16},
        }
    )


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    summary = train(config(number), out=f"runs/agents-sdk-{number}")
    for name, team in summary["teams"].items():
        solved, tokens = team["accuracy"]["mean"], team["generated"]["mean"]
        print(f"{name:<10} {solved:.0%} solved, {tokens:.1f} tokens an episode")
