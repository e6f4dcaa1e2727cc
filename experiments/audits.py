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

KEPT, KINDS = FOLDER / "audits", ("audit", "search")
AGAIN = "search-gsm8k"
"""The record of all teams that the searches chose from, on the tasks of the check."""
OF_AUDIT = ("seed", "reward", "tasks", "samples", "confidence", "spent", "ended")
OF_PART = ("name", "kind", "value", "tasks", "helped", "harmed", "generated", "read", "verdict")
OF_SMALLER = ("name", "difference", "tasks", "reward", "generated", "read", "share", "passed")
OF_SEARCH = ("budget", "stopped", "start", "winner", "spend")
OF_TEAM = ("tasks", "accuracy", "generated", "read")
OF_ENTRY = (*OF_TEAM, "rung", "cost", "dropped")


def keep(run: Path) -> dict[str, Any]:
    """What is kept of a run folder."""
    if (run / "search.json").exists():
        found = _json(run / "search.json")
        check = found["check"]
        return {
            **_some(found, OF_SEARCH),
            "price": _json(run / "config.json")["search"]["price"],
            "check": {
                "tasks": check["tasks"],
                "teams": {name: _some(one, OF_TEAM) for name, one in check["teams"].items()},
                "winner_compared_with": {
                    name: _some(one, ("difference", "only_first", "only_second"))
                    for name, one in check["winner_compared_with"].items()
                },
            },
            "teams": {name: _some(one, OF_ENTRY) for name, one in found["entries"].items()},
        }
    audit, pruned = _json(run / "audit.json"), run / "prune.json"
    smaller = _json(pruned)["proposals"] if pruned.exists() else []
    return {
        **_some(audit, OF_AUDIT),
        "parts": [_some(part, OF_PART) for part in audit["parts"]],
        "smaller": [_some(one, OF_SMALLER) for one in smaller],
    }


def page(records: Records) -> str:
    paths = sorted(KEPT.glob("*.json"), key=lambda path: path.stem)
    audits, searches = (
        {path.stem: _json(path) for path in paths if path.stem.startswith(kind)} for kind in KINDS
    )
    parts = [
        "# Audits and a search on GSM8K\n\nUntrained teams of Qwen2.5-Coder-1.5B with a cap of 384 "
        "tokens a message, seed 0. An [audit](../audit.md) plays test problems with and without "
        "each part, and smaller teams are checked on other problems. A [search](../search.md) uses "
        "training problems, and its winner is checked on others. Tokens are per problem. Verdicts "
        "use wider intervals than those shown, since an audit looks several times.\n"
    ]
    for name, audit in audits.items():
        parts.append(
            f"## {name}\n\nThe whole team is right on {100 * audit['reward']:.1f} % of "
            f"{audit['tasks']} problems. The audit took {audit['spent']:,} tokens, said and read."
            f"\n\n{_parts(audit)}"
        )
        if audit["smaller"]:
            parts.append(_smaller(audit))
    for name, search in searches.items():
        parts.append(_search(name, search, records))
    return "\n".join(parts)


def _search(name: str, search: dict[str, Any], records: Records) -> str:
    spend, price = search["spend"], search["price"]
    share = 100 * spend["search"] / spend["first_pool"]
    how = f"accuracy minus {100 * price:g} points per token" if price else "accuracy"
    text = (
        f"## {name}\n\nTeams are ranked by {how}. The search took {spend['search']:,.0f} tokens, "
        f"{share:.0f} % of what the first pool would have taken on all tasks. The winner is "
        f"{search['winner']}."
    )
    for other, test in search["check"]["winner_compared_with"].items():
        text += f" In its check it differs from {other} by {_points(test['difference'])} points."
    return f"{text}\n\n{_teams(search, records)}"


def _points(value: dict[str, float]) -> str:
    return points(Difference(Estimate(**value), 1.0, 0))


def _parts(audit: dict[str, Any]) -> str:
    head = ("without", "worth, points [95 %]", "verdict", "helped : harmed", "costs, said", "read")
    rows = []
    for part in audit["parts"]:
        said, read = (f"{part[key]:+.0f}".replace("-", "−") for key in ("generated", "read"))
        changed = f"{part['helped']} : {part['harmed']}"
        rows.append((part["name"], _points(part["value"]), part["verdict"], changed, said, read))
    return table(head, rows)


def _smaller(audit: dict[str, Any]) -> str:
    """Intervals are as wide as all proposals and looks together need."""
    head = ("smaller team", "against the whole [shared]", "tokens %", "tasks", "shown as good")
    rows = []
    for one in audit["smaller"]:
        name, share = one["name"].replace("`", ""), f"{100 * one['share']:.0f}"
        shown = "yes" if one["passed"] else "no"
        rows.append((name, _points(one["difference"]), share, str(one["tasks"]), shown))
    return table(head, rows)


def _teams(search: dict[str, Any], records: Records) -> str:
    """All teams by how far they got; beside them what they have on the tasks of the check."""
    head = (
        "team", "tasks", "right % [95 %]", "tokens", "out after rung", "on the check %",
        "there once more %",
    )  # fmt: skip
    rows = []
    for name, one in sorted(
        search["teams"].items(), key=lambda item: (-item[1]["rung"], -item[1]["accuracy"]["mean"])
    ):
        checked, again = search["check"]["teams"].get(name), records.measured(AGAIN, name)
        rows.append(
            (
                name,
                str(one["tasks"]),
                interval(Estimate(**one["accuracy"])),
                f"{one['cost']:,.0f}",
                f"{one['rung']}, {one['dropped']}" if one["dropped"] else "",
                interval(Estimate(**checked["accuracy"])) if checked else "",
                interval(again.accuracy) if again else "",
            )
        )
    return table(head, rows)


def _some(tree: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: tree[key] for key in keys if key in tree}


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    for folder in map(Path, sys.argv[1:]):
        path = KEPT / f"{folder.name}.json"
        path.write_text(json.dumps(keep(folder), indent=1) + "\n", encoding="utf-8")
        print(f"wrote {path}")
