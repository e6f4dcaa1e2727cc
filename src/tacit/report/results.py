"""Evaluated teams and checkpoints as points with intervals."""

import re
from dataclasses import asdict
from typing import Any

from tacit.evaluation.statistics import wilson
from tacit.report.episodes import Source
from tacit.report.tolerant import number, numbers_at, tree_at, trees_at


def step_of(name: str) -> int | None:
    """The step of a held-out evaluation in training; None for a team, or for training itself."""
    found = re.fullmatch(r"eval-(\d+)", name)
    return int(found[1]) if found else None


def kind_of(name: str) -> str:
    return "train" if name == "train" else "team" if step_of(name) is None else "checkpoint"


def point_of(name: str, tree: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a team's or checkpoint's summary; whatever else it holds is left out."""
    return {
        "name": name,
        "kind": kind_of(name),
        "step": step_of(name),
        "accuracy": estimate(tree.get("accuracy")),
        "tokens": estimate(tree.get("generated")),
        "levels": {lv: estimate(e) for lv, e in tree_at(tree, "accuracy_by_level").items()},
        "agents": _agents(tree),
        "silence": _silence(tree),
        "changed": tree_at(tree, "changed") or None,
        "talk": _talk(tree_at(tree, "talk")),
        **numbers_at(tree, "tasks", "read", "generated_per_solved", "path_tokens", "money"),
    }


def counted(source: Source, confidence: float) -> dict[str, Any]:
    """A team without a summary, from the episodes that it has played so far."""
    graded = [right for right in source.columns["right"] if right is not None]
    accuracy = asdict(wilson(sum(graded), len(graded), confidence)) if graded else None
    said = {"mean": sum(tokens or 0 for tokens in source.columns["tokens"]) / len(source)}
    silence, tasks = source.flow.silence, len(graded)
    tree = {"accuracy": accuracy, "generated": said, "silence": silence, "tasks": tasks}
    return point_of(source.name, tree)


def search_of(tree: dict[str, Any]) -> dict[str, Any] | None:
    """The candidates of a search, what each did and why it was dropped; None if there was none."""
    entries = [
        {
            **{key: str(one.get(key) or "") for key in ("name", "parent", "edit", "dropped")},
            **numbers_at(one, "rung", "tasks", "cost", "generated", "read"),
            "accuracy": estimate(one.get("accuracy")),
        }
        for one in map(tree_at, tree_at(tree, "entries").values())
    ]
    if not entries:
        return None
    spend = _numbers(tree_at(tree, "spend"))
    words = {key: str(tree.get(key) or "") for key in ("unit", "stage", "stopped", "winner")}
    return {"entries": entries, "budget": number(tree.get("budget")), "spend": spend, **words}


def _agents(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Those with the numbers that the page relies on."""
    agents = trees_at(tree, "agents")
    return [a for a in agents if None not in (number(a.get("calls")), number(a.get("silence")))]


def _talk(tree: dict[str, Any]) -> dict[str, Any] | None:
    """Other plays of the tasks, and how the choice to speak agrees with who was needed."""
    plays = {
        name: {
            **numbers_at(tree_at(play), "messages", "generated", "read"),
            "above": estimate(tree_at(play).get("above")),
        }
        for name, play in tree_at(tree, "plays").items()
    }
    by_agent = tree_at(tree, "choosing_by_agent")
    told = {
        "plays": plays,
        "choosing": _choosing(tree_at(tree, "choosing")),
        "by_agent": {agent: _choosing(tree_at(by_agent, agent)) for agent in by_agent},
        "kept": number(tree.get("kept")),
        "missing": {name: str(why) for name, why in tree_at(tree, "missing").items()},
    }
    return told if plays else None


def _choosing(tree: dict[str, Any]) -> dict[str, Any]:
    return {**_numbers(tree), "by": str(tree.get("by"))}


def _numbers(tree: dict[str, Any]) -> dict[str, float | None]:
    return {name: number(value) for name, value in tree.items()}


def _silence(tree: dict[str, Any]) -> float | None:
    """Of the calls that could have been silent, the share that was.

    Older summaries do not count those calls. There, an agent that was ever silent always could be.
    """
    if "silence" in tree:
        return number(tree["silence"])
    agents = [agent for agent in _agents(tree) if agent["silence"]]
    calls = sum(agent["calls"] for agent in agents)
    return sum(agent["silence"] * agent["calls"] for agent in agents) / calls if calls else None


def estimate(value: Any) -> dict[str, float] | None:
    """A mean with its interval; without one, the mean stands for both ends."""
    mean, low, high = (number(tree_at(value).get(name)) for name in ("mean", "low", "high"))
    if mean is None:
        return None
    return {
        "mean": mean,
        "low": mean if low is None else low,
        "high": mean if high is None else high,
    }
