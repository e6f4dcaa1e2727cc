"""Run folders for the tests of the report, by hand: hostile, torn, or of an older layout."""

import json
from pathlib import Path
from typing import Any

from tests.helpers.training_runs import tree

HOSTILE = (
    "<script>globalThis.pwned = 1</script>",
    "</script><script>globalThis.pwned = 2</script>",
    "<img src=x onerror='globalThis.pwned = 3'>",
    "<!--<script>",
    '"><a href="javascript:globalThis.pwned=4">x</a>',
    "controls \x00\x07\x1b[31m\x7f\x85 end",
    "right to left \u202eoverride\u202c and \u2066isolate\u2069",
    "zero\u200bwidth\ufeff and \ud800 half",
    "wide " + "W" * 3000,
    "combining z" + "\u0301" * 300,
)

LONG = "A very long line. " * 60_000
"""One line of a megabyte."""


def call(agent: str, text: str, prompt: str = "What is 2 + 2?", **more: Any) -> dict[str, Any]:
    """One call as a run folder holds it, with token ids of the pocket model's tokenizer."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}]
    return {
        "agent": agent,
        "model": "pocket",
        "messages": messages,
        "text": text,
        "stop": "eos",
        "usage": {"prompt": 30, "generated": 7, "cached": 0, "reasoning": 0},
        "part": agent,
        "round": 0,
        **more,
    }


def episode(task: str, calls: list[dict[str, Any]], right: bool | None, **more: Any) -> bytes:
    grade = None if right is None else {"reward": float(right), "right": right, "answer": "4"}
    whole = {
        "task_id": task,
        "sample": 0,
        "level": "easy",
        "calls": calls,
        "answer": calls[-1]["text"] if calls else "",
        "grade": grade,
        "error": "the server went away" if right is None else None,
        **more,
    }
    return json.dumps(whole).encode() + b"\n"


def write(folder: Path, name: str, data: bytes | dict[str, Any]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(data).encode() if isinstance(data, dict) else data)


def hostile_run(folder: Path) -> Path:
    """Every text a model, a task or a user could choose is as unpleasant as can be."""
    config = tree(name=HOSTILE[1], teams={"solo": {"topology": "solo", "agents": {"actor": {}}}})
    write(folder, "config.json", config | {"note": HOSTILE[0]})
    lines = b"".join(
        episode(
            f"task/{text[:40]}",
            [call("hinter", text, text), call(text[:60], text, text, round=1)],
            number % 2 == 0,
            level=text[:20],
            step=number,
            reward={"total": 0.5, "task": 1.0, "tokens": 0.5},
            advantages={text[:30]: 0.25},
        )
        for number, text in enumerate((*HOSTILE, LONG))
    )
    write(folder, "episodes/train.jsonl", lines)
    write(folder, f"episodes/{HOSTILE[3].replace('/', '')}.jsonl", lines)
    metrics = [
        {"step": n, f"tokens/{HOSTILE[0]}": 3.0 + n, f"silence/{HOSTILE[2]}/{HOSTILE[4]}": 0.5}
        for n in range(1, 4)
    ]
    write(folder, "metrics.jsonl", b"".join(json.dumps(one).encode() + b"\n" for one in metrics))
    return folder


def old_run(folder: Path) -> Path:
    """A layout from before: no timing, no starts, calls that lack most of what they have now."""
    write(folder, "config.json", {"name": "old", "train": {"steps": 4}, "unknown": True})
    write(folder, "metrics.jsonl", b'{"step": 1, "accuracy/sampled": 0.5, "odd": "text"}\n')
    bare = [{"agent": "actor", "text": "4"}, {"agent": "hinter", "silent": True}, "no call"]
    lines = [{"task_id": "t", "calls": bare}, {"task_id": "u", "grade": {"right": True}}, {}]
    write(folder, "episodes/train.jsonl", b"".join(json.dumps(x).encode() + b"\n" for x in lines))
    write(folder, "evals/eval-000002.json", {"team": "t", "accuracy": {"mean": 0.5}})
    return folder


def audit(names: tuple[str, ...] = ("a", "b", "c"), said: str = "forty two") -> dict[str, Any]:
    """An audit of agents that all read each other: the first helps, the last harms."""
    worth = {name: 0.5 - n / max(1, len(names) - 1) for n, name in enumerate(names)}
    pairs = [(one, two) for one in names for two in names]
    place = {"episode": 3, "task_id": "t/3", "call": 1, "agent": names[0], "excerpt": said}
    message = {"task": "t/1", "agent": names[0], "round": 0, "text": said, "plays": 4}
    each = {"calls": 2.0, "prompt": 100.0, "generated": 10.0, "money": None}
    instructions = {"name": "instructions", "tokens": 600.0, "before": 150.0}
    return {
        "reward": 0.5,
        "tasks": 10,
        "spent": 4000,
        "ended": "the order is settled",
        "confidence": 0.9,
        "parts": [
            *(_part(name, "agent", value) for name, value in worth.items()),
            _part("round 0", "round", 0.0),
            *(_part(f"{x} to {y}", "edge", worth[x]) for x, y in pairs if x != y and y != names[1]),
        ],
        "messages": [
            message | {"value": 0.75, "answer": said, "without": "41"},
            message | {"agent": names[-1], "value": -1.0, "answer": "41", "without": said},
        ],
        "traffic": {
            "episodes": 10,
            "team": {"per_episode": each},
            "agents": [{"name": name, "per_episode": each} for name in names],
            "prompts": [
                {"agent": name, "tokens": 1000.0, "before": 150.0, "parts": [instructions]}
                for name in names
            ],
            "edges": [
                {"sender": x, "reader": y, "messages": 9, "readings": 12, "tokens": 50.0 * (n + 1)}
                for n, (x, y) in enumerate(pairs)
            ],
            "findings": [{"sentence": f"`{names[0]}` repeats itself.", "examples": [place]}],
            "notes": ["Tokens are estimated."],
        },
    }


PRUNE: dict[str, Any] = {
    "proposals": [
        {
            "name": "without `a`",
            "difference": {"mean": 0.01, "low": -0.005, "high": 0.025},
            "passed": True,
            "tasks": 512,
            "reward": 0.5,
            "generated": 20.0,
            "read": 180.0,
            "share": 0.55,
        },
        {"name": "AgentPrune", "difference": {"mean": 0.0, "low": -0.02, "high": 0.02}},
        {"name": "damaged", "difference": None},
    ],
    "chosen": "without `a`",
    "config": "runs/x/x-pruned.yaml",
}
"""What `tacit prune` writes, as far as the page reads it."""


def _part(name: str, kind: str, mean: float) -> dict[str, Any]:
    value = {"mean": mean, "low": mean - 0.2, "high": mean + 0.2}
    verdict = "helps" if mean > 0.2 else "harms" if mean < -0.2 else "undecided"
    numbers = {"helped": 3, "harmed": 1, "generated": 10.0, "read": 50.0, "tasks": 10}
    return {"name": name, "kind": kind, "value": value, "verdict": verdict, **numbers}


def search_run(folder: Path) -> None:
    """A search that has ended: a winner, and one that left after the first rung."""

    def entry(name: str, rung: int, share: float, cost: float, **more: Any) -> dict[str, Any]:
        estimate = {"mean": share, "low": share - 0.1, "high": share + 0.1}
        numbers = {"rung": rung, "tasks": 8 * rung, "cost": cost, "generated": 9.0, "read": 90.0}
        return {"name": name, "accuracy": estimate, **numbers, **more}

    best, left = entry("holders", 2, 0.6, 300.0), entry("solo", 1, 0.2, 40.0, dropped="beaten")
    spend = {"search": 1234.0, "first_pool": 5678.0}
    words = {"unit": "tokens", "budget": 2000, "winner": "holders", "stopped": "the end"}
    entries = {"holders": best, "solo": left, "not played": {"name": "not played"}}
    write(folder, "config.json", {"name": "found"})
    write(folder, "search.json", {"entries": entries, "spend": spend, **words})
    write(folder, "episodes/solo.jsonl", episode("t/1", [call("actor", "4")], True))
    checked = {"accuracy": {"mean": 0.5}, "generated": {"mean": 9.0}}
    write(folder, "summary.json", {"teams": {"holders": checked}})
