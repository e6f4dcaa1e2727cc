"""A LangGraph graph whose hinter is trained: the graph stays as it is, its client's URL changes.

The graph asks a hinter for a hint, which may be silence, and then an Actor for the answer. Each
model name is a role of the team, so Tacit knows who speaks, keeps the tokens and their
probabilities, and trains the hinter. Needs `pip install 'tacit[serve]' langchain-openai langgraph`.

    python examples/langgraph_team.py            # 30 steps on the pocket model, in minutes

A config can name it too, from the folder in which the file lies:

    team:
      topology: tacit.external:app
      options: {program: "langgraph_team:solve"}
"""

import sys
from typing import Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import SecretStr

from tacit import Config, Task, parse_config, train

KEY = SecretStr("any")  # the endpoint is on this machine and asks for none


class State(TypedDict, total=False):
    question: str
    instruction: str
    hint: str
    answer: str


def build_graph(base_url: str) -> Any:
    """The graph as it was before Tacit, except for `base_url` and the models' names."""
    hinter = ChatOpenAI(model="hinter", base_url=base_url, api_key=KEY)
    actor = ChatOpenAI(model="actor", base_url=base_url, api_key=KEY)

    def give_hint(state: State) -> State:
        told = "Give your teammate one short hint for this question. Do not answer it for them."
        said = hinter.invoke([SystemMessage(told), HumanMessage(state["question"])])
        return {"hint": said.text}

    def give_answer(state: State) -> State:
        heard = f"\n\nA teammate's hint:\n<hint>\n{state['hint']}\n</hint>" if state["hint"] else ""
        asked = HumanMessage(state["question"] + heard)
        return {"answer": actor.invoke([SystemMessage(state["instruction"]), asked]).text}

    graph = StateGraph(State)
    graph.add_node("give_hint", give_hint)
    graph.add_node("give_answer", give_answer)
    graph.add_edge(START, "give_hint")
    graph.add_edge("give_hint", "give_answer")
    graph.add_edge("give_answer", END)
    return graph.compile()


def solve(base_url: str, task: Task) -> str:
    """What Tacit calls for each episode."""
    asked: State = {"question": task.question, "instruction": task.instruction}
    answer: str = build_graph(base_url).invoke(asked)["answer"]
    return answer


def config(steps: int) -> Config:
    return parse_config(
        {
            "name": "langgraph",
            "train_tasks": {"name": "arithmetic", "split": "train", "limit": 2000},
            "tasks": {"name": "arithmetic", "split": "test", "limit": 40},
            "team": {
                "topology": "tacit.external:app",
                "options": {"program": "langgraph_team:solve"},
                "agents": {
                    "hinter": {"trained": True, "silent": True, "max_tokens": 80},
                    "actor": {"max_tokens": 16},
                },
            },
            "budget": {"tokens": 14},
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
    summary = train(config(number), out=f"runs/langgraph-{number}")
    for name, team in summary["teams"].items():
        solved, tokens = team["accuracy"]["mean"], team["generated"]["mean"]
        print(f"{name:<10} {solved:.0%} solved, {tokens:.1f} tokens an episode")
