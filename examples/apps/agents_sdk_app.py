"""An OpenAI Agents SDK app: a triage agent hands off to a solver with a tool; all is streamed.

It speaks the Responses API. Nothing in it knows of Tacit but the type of `solve`, by which the app
can be run again. Recorded by its base URL: `tacit record --to https://api.openai.com/v1`, then
`http://127.0.0.1:8300/v1` here. Needs `pip install openai-agents`.
"""

import os

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from tacit import Task


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def solve(base_url: str, task: Task) -> str:
    key = os.environ.get("OPENAI_API_KEY", "any")
    async with AsyncOpenAI(base_url=base_url, api_key=key) as client:  # the one line
        model = OpenAIResponsesModel("gpt-5.4-mini", client)
        solver = Agent(
            name="Solver",
            instructions="You are the solver. Use your tool for sums, then say the result.",
            model=model,
            tools=[add],
        )
        triage = Agent(
            name="Triage",
            instructions="You are the triage agent. Hand off to whoever can answer.",
            model=model,
            handoffs=[solver],
        )
        config = RunConfig(tracing_disabled=True)
        running = Runner.run_streamed(triage, task.question, run_config=config)
        async for _ in running.stream_events():
            pass
        return str(running.final_output)
