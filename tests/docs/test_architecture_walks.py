"""The page on architecture names packages, files and functions as they are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import CORE, FREE, RINGS, SOURCE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
HOP = re.compile(r"^(\d+)\. `(?:\w+/)*\w+\.py` `[\w.]+` \S.*\.$")
NAMED = re.compile(r"(?<!\[)`((?:\w+/)*\w+\.py)`((?:,? `[\w.]+`)*)")
"""A file of the package, and the names right after it, which it must define."""
MOST_HOPS = 25


def walks() -> dict[str, list[str]]:
    """Heading → its numbered lines."""
    sections = (section.partition("\n") for section in TEXT.split("\n## ")[1:])
    found = {title: re.findall(r"^\d+\. .+$", rest, re.M) for title, _, rest in sections}
    return {title: hops for title, hops in found.items() if hops}


def defined(path: Path) -> set[str]:
    """What a file defines at its top level, and `Class.method`."""
    return set(_names(ast.parse(path.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt], owner: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield owner + node.name
        if isinstance(node, ast.ClassDef) and not owner:
            yield from _names(node.body, f"{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (owner + one.id for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield owner + node.target.id


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED.findall(TEXT)}))
def test_a_named_file_defines_what_is_said_of_it(file: str) -> None:
    assert (SOURCE / file).is_file(), f"docs/architecture.md names {file}"
    names = {name for one, names in NAMED.findall(TEXT) if one == file for name in names.split()}
    missing = {name.strip(",`") for name in names} - defined(SOURCE / file)
    assert not missing, f"docs/architecture.md: {file} has no {', '.join(sorted(missing))}"


def test_there_are_two_walks_of_few_hops() -> None:
    found = walks()
    assert [title.split("`")[1] for title in found] == ["tacit train pocket-hint", "tacit serve"]
    for title, hops in found.items():
        assert len(hops) <= MOST_HOPS, f"{title} has {len(hops)} hops"
        for number, hop in enumerate(hops, start=1):
            parts = HOP.fullmatch(hop)
            assert parts, f"{title}: begin with a file and a function, end with a full stop: {hop}"
            assert int(parts[1]) == number, f"{title}: count on at {hop}"


def test_what_is_named_would_be_missed() -> None:
    there = defined(SOURCE / "engine" / "local.py")
    assert {"LocalEngine", "LocalEngine.generate", "GATHERING_S"} <= there
    assert not {"generate", "LocalEngine.gone"} & there
    found = NAMED.findall("`a/b.py` `C`, `d.e`; `f.py` does as [`g.py`](g.py)")
    assert found == [("a/b.py", " `C`, `d.e`"), ("f.py", "")]


@pytest.mark.parametrize("page", [PAGE, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_a_page_gives_the_order_that_is_tested(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for order in (FREE, CORE, RINGS):
        assert f"`{' → '.join(order)}`" in text


def test_what_contributors_are_told_to_change_is_there() -> None:
    _, _, how = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## How to add")
    named = {*re.findall(r"`([\w/]+(?:/|\.py))`", how)}
    assert "learn/loss.py" in named
    for path in named:
        assert (SOURCE / path).exists() or (ROOT / path).exists(), f"CONTRIBUTING.md names {path}"
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    there = {name for file in files for name in defined(file)}
    told = {*re.findall(r"`(_\w+|[A-Z]\w+(?:\.\w+)?)`", how)} - {"R"}
    there |= {name.rpartition(".")[2] for name in there}
    assert "LOSSES" in told
    assert told <= there, told - there


def test_the_picture_shows_every_package() -> None:
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    shown = {*re.findall(r"[a-z_]+", " ".join(re.findall(r">([^<]+)<", picture)))}
    assert {*FREE, *CORE, *RINGS} <= shown
