"""The tables of the page on searching are those of the record."""

import importlib.util
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_are_what_the_record_says() -> None:
    spec = importlib.util.spec_from_file_location("search", ROOT / "benchmarks" / "search.py")
    assert spec and spec.loader
    search = importlib.util.module_from_spec(spec)
    sys.modules["search"] = search  # where its dataclasses look for their annotations
    spec.loader.exec_module(search)
    record = json.loads((ROOT / "benchmarks" / "results" / "search.json").read_text("utf-8"))
    page = (ROOT / "docs" / "search.md").read_text("utf-8")
    shown = dict(re.findall(r"<!-- (pocket|planted) -->\n(.*?)\n<!-- end -->", page, re.S))
    assert shown == {"pocket": search.run_table(record), "planted": search.planted_table(record)}


def test_what_the_page_says_of_the_pocket_search_is_so() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "search.json").read_text("utf-8"))
    run, page = record["run"], (ROOT / "docs" / "search.md").read_text("utf-8")
    spend = run["spend"]
    assert spend["search"] <= min(run["budget"], 0.5 * spend["first_pool"])
    for number in (spend["search"], spend["first_pool"], spend["check"]):
        assert f"{number:,.0f}" in page
