"""Evaluated teams and checkpoints as points with intervals."""

import re
from typing import Any

from tacit.evaluation.statistics import wilson
from tacit.report.episodes import Source
from tacit.report.reading import number, tree_at

CHECKPOINT = re.compile(r"eval-(\d+)")
"""What a held-out evaluation in training is called, by its step."""


def point_of(name: str, kind: str, step: int | None, tree: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "tasks", "samples", "failed", "majority", "any_right", "read", "generated_per_solved",
        "path_tokens", "path_seconds", "silent_accuracy", "spoken_accuracy", "leaks", "money",
        "money_per_solved",
    )  # fmt: skip
    return {
        "name": name,
        "kind": kind,
        "step": step,
        "accuracy": _estimate(tree.get("accuracy")),
        "tokens": _estimate(tree.get("generated")),
        "levels": {lv: _estimate(e) for lv, e in tree_at(tree, "accuracy_by_level").items()},
        "agents": _agents(tree.get("agents")),
        "silence": _silence(tree),
        "changed": tree.get("changed") if isinstance(tree.get("changed"), dict) else None,
        **{name: number(tree.get(name)) for name in kept},
    }


def counted(source: Source) -> dict[str, Any]:
    """A team still being played: what its episodes say so far."""
    match = CHECKPOINT.fullmatch(source.name)
    graded = [right for right in source.columns["right"] if right is not None]
    tokens = [t or 0 for t in source.columns["tokens"]]
    accuracy = wilson(sum(graded), len(graded)) if graded else None
    mean = sum(tokens) / len(tokens)
    return {
        "name": source.name,
        "kind": "checkpoint" if match else "team",
        "step": int(match[1]) if match else None,
        "accuracy": accuracy
        and {"mean": accuracy.mean, "low": accuracy.low, "high": accuracy.high},
        "tokens": {"mean": mean, "low": mean, "high": mean},
        "levels": {},
        "agents": [],
        "silence": source.flow.silence,
        "tasks": len(graded),
        "failed": len(source) - len(graded),
    }


def _agents(value: Any) -> list[dict[str, Any]]:
    """Those with the numbers that are counted on."""
    agents = value if isinstance(value, list) else []
    needed = ("calls", "silence")
    return [one for one in agents if all(number(tree_at(one).get(n)) is not None for n in needed)]


def _silence(tree: dict[str, Any]) -> float | None:
    """Share of the calls that could have been silent in which nothing was said.

    Older summaries do not count those calls: whoever was ever silent could always have been.
    """
    if "silence" in tree:
        return number(tree["silence"])
    agents = [agent for agent in _agents(tree.get("agents")) if agent["silence"]]
    calls = sum(agent["calls"] for agent in agents)
    return sum(agent["silence"] * agent["calls"] for agent in agents) / calls if calls else None


def _estimate(value: Any) -> dict[str, float] | None:
    tree = tree_at(value)
    mean = number(tree.get("mean"))
    if mean is None:
        return None
    low, high = number(tree.get("low")), number(tree.get("high"))
    return {"mean": mean, "low": mean if low is None else low, "high": high or mean}
