"""The tables on the page are those of the recorded runs."""

import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- results: (\S+) -->\n(.*?)\n?<!-- end -->", re.S)


def test_every_table_is_what_its_file_says() -> None:
    spec = importlib.util.spec_from_file_location("pocket", ROOT / "benchmarks" / "pocket.py")
    assert spec and spec.loader
    pocket = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pocket)
    blocks = BLOCK.findall((ROOT / "docs" / "pocket.md").read_text(encoding="utf-8"))
    assert blocks
    for name, shown in blocks:
        recorded = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
        assert shown == pocket.table(recorded["runs"]), f"docs/pocket.md differs from {name}"


def test_the_bars_of_the_demo_hold_in_the_record() -> None:
    recorded = json.loads((ROOT / "benchmarks" / "results" / "pocket-hint.json").read_text())
    assert len(recorded["bars"]) == 3
    assert all(all(bars.values()) for bars in recorded["bars"].values())
