"""A LangGraph app: a solver with a tool hands over to a writer, whose words are streamed.

Nothing in it knows of Tacit but the type of `solve`, by which the app can be run again. Recorded by
its base URL: `tacit record --to https://api.openai.com/v1`, then `http://127.0.0.1:8300/v1` here.
Needs `pip install langchain-openai langgraph`.
"""

import os
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from pydantic import SecretStr

from tacit import Task

SOLVE = "You are the solver. Use your tool for sums, then say the result."
WRITE = "You are the writer. Say the result in one friendly sentence."


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def build(base_url: str) -> Any:
    key = SecretStr(os.environ.get("OPENAI_API_KEY", "any"))
    model = ChatOpenAI(model="gpt-5.4-mini", base_url=base_url, api_key=key)  # the one line

    def solver(state: MessagesState) -> Command[str]:
        said = model.bind_tools([add]).invoke([SystemMessage(SOLVE), *state["messages"]])
        return Command(goto="tools" if said.tool_calls else "writer", update={"messages": [said]})

    def writer(state: MessagesState) -> dict[str, Any]:
        told = [SystemMessage(WRITE), HumanMessage(state["messages"][-1].text)]
        pieces = [piece.text for piece in model.stream(told)]
        return {"messages": [HumanMessage("".join(pieces))]}

    graph = StateGraph(MessagesState)
    graph.add_node("solver", solver, destinations=("tools", "writer"))
    graph.add_node("tools", ToolNode([add]))
    graph.add_node("writer", writer)
    graph.add_edge(START, "solver")
    graph.add_edge("tools", "solver")
    graph.add_edge("writer", END)
    return graph.compile()


def solve(base_url: str, task: Task) -> str:
    state = build(base_url).invoke({"messages": [HumanMessage(task.question)]})
    return str(state["messages"][-1].text)
