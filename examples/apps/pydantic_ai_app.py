"""A pydantic-ai app: a lead asks a solver, which has a tool, and answers in a form of its own.

Nothing in it knows of Tacit but the type of `solve`, by which the app can be run again. Recorded by
its base URL: `tacit record --to https://api.openai.com/v1`, then `http://127.0.0.1:8300/v1` here.
Needs `pip install 'pydantic-ai-slim[openai]'`.
"""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tacit import Task


async def solve(base_url: str, task: Task) -> str:
    key = os.environ.get("OPENAI_API_KEY", "any")
    provider = OpenAIProvider(base_url=base_url, api_key=key)  # the one line
    model = OpenAIChatModel("gpt-5.4-mini", provider=provider)
    told = "You are the solver. Use your tool for sums, then say the result."
    solver = Agent(model, instructions=told)

    @solver.tool_plain
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    lead = Agent(model, instructions="You are the lead. Ask the solver, then answer.")

    @lead.tool_plain
    async def ask_solver(question: str) -> str:
        """Ask the solver."""
        return (await solver.run(question)).output

    async with lead.run_stream(task.question) as reply:
        return await reply.get_output()
