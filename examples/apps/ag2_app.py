"""An AG2 app (once AutoGen): a lead asks a solver, which has a tool, as a tool of its own.

Nothing in it knows of Tacit but the type of `solve`, by which the app can be run again. Recorded by
its base URL: `tacit record --to https://api.openai.com/v1`, then `http://127.0.0.1:8300/v1` here.
Needs `pip install 'ag2[openai]'`.
"""

import os

from ag2 import Agent, tool
from ag2.config import OpenAIConfig

from tacit import Task


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def solve(base_url: str, task: Task) -> str:
    key = os.environ.get("OPENAI_API_KEY", "any")
    config = OpenAIConfig("gpt-5.4-mini", api_key=key, base_url=base_url)  # the one line
    solver = Agent(
        "solver",
        prompt="You are the solver. Use your tool for sums, then say the result.",
        config=config,
        tools=[add],
    )
    lead = Agent(
        "lead",
        prompt="You are the lead. Ask the solver, then answer in one sentence.",
        config=config,
        tools=[solver.as_tool(name="ask_solver", description="Ask the solver.")],
    )
    reply = await lead.ask(task.question)
    return str(reply.body)
