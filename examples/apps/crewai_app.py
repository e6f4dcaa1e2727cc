"""A CrewAI app: a solver with a tool, then a writer who is given its result.

Nothing in it knows of Tacit but the type of `solve`, by which the app can be run again. Recorded by
its base URL: `tacit record --to https://api.openai.com/v1`, then `http://127.0.0.1:8300/v1` here.
Needs `pip install crewai`, in an environment of its own: it asks for an older `openai` than Tacit's
other examples.
"""

import os

from crewai import LLM, Agent, Crew, Process, Task as Work
from crewai.tools import tool

from tacit import Task


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def solve(base_url: str, task: Task) -> str:
    key = os.environ.get("OPENAI_API_KEY", "any")
    model = LLM(model="openai/gpt-5.4-mini", base_url=base_url, api_key=key)  # the one line
    solver = Agent(
        role="Solver",
        goal="Find the result",
        backstory="You like sums.",
        llm=model,
        tools=[tool("add")(add)],
    )
    writer = Agent(role="Writer", goal="Say it well", backstory="You like words.", llm=model)
    solving = Work(description=task.question, expected_output="The result.", agent=solver)
    writing = Work(
        description="Say the result in one friendly sentence.",
        expected_output="One sentence.",
        agent=writer,
        context=[solving],
    )
    crew = Crew(agents=[solver, writer], tasks=[solving, writing], process=Process.sequential)
    return str(crew.kickoff().raw)
