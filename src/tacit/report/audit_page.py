"""An audit as the page needs it, from `audit.json`: worth, messages, and who was shown what.

An audit of a recording has traffic and no outcomes; then nothing has a worth.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tacit.report.results import estimate
from tacit.report.tolerant import number, numbers_at, tree_at, trees_at

_KINDS = ("agent", "round", "edge")
_MOST = 20_000
"""Characters of a message that are shown."""

Tree = dict[str, Any]


def audit_of(tree: Tree) -> Tree | None:
    """What the page shows of an audit; None if the file holds none."""
    traffic, parts = tree_at(tree, "traffic"), [_part(one) for one in trees_at(tree, "parts")]
    if not (traffic or parts):
        return None
    parts = sorted((one for one in parts if one["value"]), key=_rank)
    episodes = number(traffic.get("episodes")) or 0
    return {
        **numbers_at(tree, "reward", "tasks", "failed", "confidence", "spent"),
        "currency": _text(tree.get("currency") or traffic.get("currency")) or None,
        "ended": _text(tree.get("ended")),
        "weights": re.sub("^step-0*(?=.)", "step ", Path(_text(tree.get("checkpoint"))).name),
        "parts": parts,
        "messages": [_message(one) for one in trees_at(tree, "messages")],
        "episodes": episodes,
        "team": _spent(tree_at(traffic, "team")),
        "agents": _agents(traffic, parts, episodes),
        "edges": _edges(traffic, parts, episodes),
        "findings": [_finding(one) for one in trees_at(traffic, "findings")],
        "notes": [_text(one) for of in (tree, traffic) for one in _list(of.get("notes"))],
    }


def prune_of(tree: Tree) -> Tree | None:
    """The smaller teams of `prune.json`, as they were checked; None if it holds none."""
    rows = [
        numbers_at(one, "tasks", "reward", "generated", "read", "share", "failed")
        | {"name": _text(one.get("name")), "passed": one.get("passed") is True, "difference": by}
        for one in trees_at(tree, "proposals")
        if (by := estimate(one.get("difference")))
    ]
    return {"proposals": rows, **_texts_at(tree, "chosen", "config")} if rows else None


def is_play(source: str, *, audited: bool) -> bool:
    """True for the plays of an audit, which are no teams to set beside each other.

    Each part is played without on as many tasks as it took to judge that part.
    """
    return audited and (source == "audited" or source.startswith("without "))


def without_texts(audit: Tree) -> Tree:
    """The same without a word that agents or tasks said, for a page to pass on."""
    bare = [one | {"examples": []} for one in audit["findings"]]
    notes = [note.partition(": ")[0] for note in audit["notes"]]  # an error may quote an agent
    return audit | {"messages": [], "findings": bare, "notes": notes}


def _part(tree: Tree) -> Tree:
    return {
        **_texts_at(tree, "name", "kind", "verdict"),
        **numbers_at(tree, "helped", "harmed", "generated", "read", "money", "tasks", "failed"),
        "value": estimate(tree.get("value")),
    }


def _rank(part: Tree) -> tuple[int, float]:
    """By kind, the most worth first."""
    kind = part["kind"]
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS), -part["value"]["mean"]


def _message(tree: Tree) -> Tree:
    return {
        **_texts_at(tree, "task", "agent", "text", "answer", "without"),
        **numbers_at(tree, "round", "plays"),
        "value": number(tree.get("value")) or 0.0,
    }


def _spent(tree: Tree) -> Tree:
    """Means per episode."""
    each = tree_at(tree, "per_episode")
    names = {"calls": "calls", "read": "prompt", "said": "generated", "money": "money"}
    return {name: number(each.get(key)) for name, key in names.items()}


def _agents(traffic: Tree, parts: list[Tree], episodes: float) -> list[Tree]:
    """In the order of their first call, with what their prompts consist of."""
    worth = {one["name"]: one for one in parts if one["kind"] == "agent"}
    prompts = {_text(one.get("agent")): one for one in trees_at(traffic, "prompts")}
    found = []
    for one in trees_at(traffic, "agents"):
        name = _text(one.get("name"))
        prompt = prompts.get(name, {})
        pieces = {_text(p.get("name")): _sent(p, episodes) for p in trees_at(prompt, "parts")}
        known = {"name": name, "parts": pieces, "worth": worth.get(name)}
        found.append(known | _spent(one) | _sent(prompt, episodes))
    return found


def _sent(tree: Tree, episodes: float) -> Tree:
    """Tokens per episode, and those of them that were sent before."""
    return {
        name: (number(tree.get(name)) or 0.0) / max(1, episodes) for name in ("tokens", "before")
    }


def _edges(traffic: Tree, parts: list[Tree], episodes: float) -> list[Tree]:
    """Who was shown whose messages, most tokens first, with the worth of it.

    A sender with a single reader was left out as a whole, not for that reader; `whole` says so.
    """
    rows = [(_text(e.get("sender")), _text(e.get("reader")), e) for e in trees_at(traffic, "edges")]
    readers = Counter(sender for sender, reader, _ in rows if sender != reader)
    measured = {(one["kind"], one["name"]): one for one in parts}
    found = []
    for sender, reader, one in rows:
        worth = measured.get(("edge", f"{sender} to {reader}"))
        whole = worth is None and sender != reader and readers[sender] == 1
        worth = measured.get(("agent", sender)) if whole else worth
        edge = {"sender": sender, "reader": reader, "worth": worth, "whole": whole}
        counts = {name: number(one.get(name)) or 0 for name in ("messages", "readings")}
        found.append(edge | counts | _sent(one, episodes))
    return sorted(found, key=lambda edge: -edge["tokens"])


def _finding(tree: Tree) -> Tree:
    texts = {"agent": "agent", "task": "task_id", "text": "excerpt"}
    examples = [
        {name: _text(one.get(key)) for name, key in texts.items()}
        | numbers_at(one, "episode", "call")
        for one in trees_at(tree, "examples")
    ]
    return {"sentence": _text(tree.get("sentence")), "examples": examples}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts_at(tree: Tree, *names: str) -> dict[str, str]:
    return {name: _text(tree.get(name)) for name in names}


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    more = len(text) - _MOST
    return text if more <= 0 else f"{text[:_MOST]} … and {more:,} more characters"
