"""The tables on the page are those of the recorded runs."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (results|tests): ([^\n]+) -->\n(.*?)\n?<!-- end -->", re.S)


def recorded_in(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    return record


def test_every_table_is_what_its_files_say() -> None:
    spec = importlib.util.spec_from_file_location("pocket", ROOT / "benchmarks" / "pocket.py")
    assert spec and spec.loader
    pocket = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pocket)
    blocks = BLOCK.findall((ROOT / "docs" / "pocket.md").read_text(encoding="utf-8"))
    assert {kind for kind, _, _ in blocks} == {"results", "tests"}
    for kind, names, shown in blocks:
        files = [recorded_in(name) for name in names.split()]
        table = pocket.tested(*files) if kind == "tests" else pocket.table(files[0]["runs"])
        assert shown == table, f"docs/pocket.md differs from {names}"


def test_the_bars_of_the_demo_hold_in_the_record() -> None:
    recorded = recorded_in("pocket-hint.json")
    assert len(recorded["bars"]) == 3
    assert all(all(bars.values()) for bars in recorded["bars"].values())
