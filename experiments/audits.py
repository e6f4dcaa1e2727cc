"""Audits and searches as records: `python -m experiments.audits RUN …`, and the page made of them.

Of an audit are kept what each part is worth and what `tacit prune` found; of a search every team,
what it cost and the check. No text of a task or a message is kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

from experiments.records import FOLDER, Difference, Records
from experiments.tables import interval, points, table
from tacit.evaluation.statistics import Estimate

KEPT = FOLDER / "audits"
TRUTH = "search-gsm8k"
"""The record of all teams that the search chose from, on the tasks of its check."""


def keep(run: Path) -> dict[str, Any]:
    """What is kept of a run folder."""
    if (run / "search.json").exists():
        found = json.loads((run / "search.json").read_text(encoding="utf-8"))
        dropped = {"team", "behind", "parent", "edit", "born"}
        teams = {
            name: {key: value for key, value in entry.items() if key not in dropped}
            for name, entry in found["entries"].items()
        }
        whole = {
            key: found[key] for key in ("budget", "stopped", "start", "winner", "spend", "check")
        }
        return {**whole, "teams": teams}
    audit = json.loads((run / "audit.json").read_text(encoding="utf-8"))
    kept = ("seed", "reward", "tasks", "samples", "confidence", "spent", "ended", "parts")
    pruned = run / "prune.json"
    smaller = json.loads(pruned.read_text(encoding="utf-8"))["proposals"] if pruned.exists() else []
    return {**{key: audit[key] for key in kept}, "smaller": smaller}


def page(records: Records) -> str:
    audits = {path.stem: json.loads(path.read_text()) for path in sorted(KEPT.glob("audit-*.json"))}
    searches = {path.stem: json.loads(path.read_text()) for path in sorted(KEPT.glob("sea*.json"))}
    parts = [
        "# Audits and a search on GSM8K\n\nUntrained teams of Qwen2.5-Coder-1.5B, seed 0. An "
        "[audit](../audit.md) plays 128 test problems with and without each part; a smaller team "
        "is checked on others. A [search](../search.md) has training problems and is checked on "
        "256 others. Tokens are per problem.\n"
    ]
    for name, audit in audits.items():
        parts.append(
            f"## {name}\n\nRight with all: {100 * audit['reward']:.1f} %. The audit took "
            f"{audit['spent']:,} tokens, said and read.\n\n{_parts(audit)}"
        )
        if audit["smaller"]:
            parts.append(_smaller(audit))
    for name, search in searches.items():
        spend = search["spend"]
        share = spend["search"] / spend["first_pool"]
        parts.append(
            f"## {name}\n\nThe search took {spend['search']:,.0f} tokens, {100 * share:.0f} % of "
            f"what all teams on all tasks would have taken. Winner: {search['winner']}.\n\n"
            f"{_teams(search, records)}"
        )
    return "\n".join(parts)


def _points(value: dict[str, float]) -> str:
    return points(Difference(Estimate(**value), 1.0, 0))


def _parts(audit: dict[str, Any]) -> str:
    head = ("without", "worth, points [95 %]", "verdict", "helped : harmed", "costs, said", "read")
    return table(
        head,
        (
            (
                part["name"], _points(part["value"]), part["verdict"],
                f"{part['helped']} : {part['harmed']}",
                f"{part['generated']:+.0f}".replace("-", "−"),
                f"{part['read']:+.0f}".replace("-", "−"),
            )
            for part in audit["parts"]
        ),
    )  # fmt: skip


def _smaller(audit: dict[str, Any]) -> str:
    head = ("smaller team", "against the whole [95 %]", "tokens %", "tasks", "shown as good")
    return table(
        head,
        (
            (
                one["name"].replace("`", ""), _points(one["difference"]),
                f"{100 * one['share']:.0f}", str(one["tasks"]), "yes" if one["passed"] else "no",
            )
            for one in audit["smaller"]
        ),
    )  # fmt: skip


def _teams(search: dict[str, Any], records: Records) -> str:
    """The first pool, by how far it got; beside it all of them on the tasks of the check."""
    head = (
        "team", "tasks", "right % [95 %]", "tokens", "out after rung", "on the check's tasks %",
        "all teams there, played once more %",
    )  # fmt: skip
    rows = []
    for name, one in sorted(
        search["teams"].items(), key=lambda item: (-item[1]["rung"], -item[1]["accuracy"]["mean"])
    ):
        checked = search["check"]["teams"].get(name)
        truth = records.measured(TRUTH, name)
        rows.append(
            (
                name, str(one["tasks"]), interval(Estimate(**one["accuracy"])),
                f"{one['cost']:,.0f}", f"{one['rung']}, {one['dropped']}" if one["dropped"] else "",
                interval(Estimate(**checked["accuracy"])) if checked else "",
                interval(truth.accuracy) if truth else "",
            )
        )  # fmt: skip
    return table(head, rows)


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    for folder in map(Path, sys.argv[1:]):
        path = KEPT / f"{folder.name}.json"
        path.write_text(json.dumps(keep(folder), indent=1) + "\n", encoding="utf-8")
        print(f"wrote {path}")
