"""The page that compares ways to choose between speaking and silence (`choice_head.py`)."""

import json
from collections import defaultdict
from statistics import fmean
from typing import Any

from experiments.records import FOLDER
from experiments.tables import percent, table

OWN = "own"
NAMES = {
    OWN: "the run's own: the step of silence on shared weights",
    "adapter, step of silence": "an adapter for the choice alone, by the step of silence",
    "adapter, AdamW": "an adapter for the choice alone, by AdamW",
}
ABOUT = """# Ways to choose

A run learns when to speak and what to say with one set of weights. Here other ways to choose learn
from the same training episodes: from what speaking gained over silence in each context. A *head* is
a ridge regression on the frozen base's hidden state at the end of the prompt; an *adapter* chooses
and says nothing. What each speaks above was chosen on the run's validation tasks, and so were a
head's strength and AdamW's rate. All have the run's own messages, so they differ only in when they
speak. `seconds` is how long an adapter's step took. Seeds are in order, on the test tasks.
"""


def page() -> str:
    """A table for each experiment whose runs were compared."""
    found: dict[str, dict[int, Any]] = defaultdict(dict)
    for path in sorted((FOLDER / "choice").glob("*.json")):
        name, _, seed = path.stem.rpartition("-s")
        found[name][int(seed)] = json.loads(path.read_text(encoding="utf-8"))
    parts = [f"## {name}\n\n{_table([*seeds.values()])}" for name, seeds in sorted(found.items())]
    return "\n".join([ABOUT, *parts])


def _table(seeds: list[dict[str, Any]]) -> str:
    ways = dict.fromkeys(way for one in seeds for way in one)
    rows = []
    for way in sorted(ways, key=lambda way: (way != OWN, way.startswith("layer"))):
        played = [one[way] for one in seeds if way in one]
        seconds = [one["seconds"] for one in played if "seconds" in one]
        rows.append(
            (
                NAMES.get(way, f"a head on {way}"),
                ", ".join(f"{one['auc']:.2f}".removeprefix("0") for one in played),
                " : ".join(
                    percent(fmean(one[f"silent_{need}"] for one in played))
                    for need in ("free", "needed")
                ),
                ", ".join(percent(one["accuracy"]) for one in played),
                f"{fmean(seconds):.1f}" if seconds else "",
            )
        )
    head = ("way to choose", "AUC", "silent, not needed : needed %", "right %", "seconds")
    return table(head, rows)
