"""Every number of the results comes from a file: tables are regenerated, prose is looked up."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from experiments.pages import files, main
from experiments.records import Records

ROOT = Path(__file__).parents[2]
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
TABLE = re.search(r"<!-- main -->\n(.*?)<!-- end -->", RESULTS, re.S)
ESTIMATE = re.compile(r"[+−]?\d+\.\d \[[+−]?\d+\.\d, [+−]?\d+\.\d\]")
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]|-bit)")
NAMES = re.compile(
    r"Qwen2\.5-Coder-[\d.]+B|`[^`]*`|1\.5 billion|1\.4 million|\d\.\d+\.\d+|Python \d\.\d+"
)


def test_every_generated_file_is_what_the_records_give() -> None:
    made = files(Records.read())
    for path, text in made.items():
        name = path.relative_to(ROOT)
        assert path.exists(), f"{name} is missing: run `python -m experiments.pages`"
        shown = path.read_text(encoding="utf-8")
        assert shown == text, f"{name} differs: run `python -m experiments.pages`"
        if path.suffix == ".svg":
            assert ElementTree.fromstring(text).tag.endswith("svg") and "nan" not in text
        else:
            assert not re.search(r"\bnan\b", text), name
    left = {*(ROOT / "docs" / "results").iterdir()} - made.keys()
    assert not left, "pages of no record"


def test_the_command_says_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0 and capsys.readouterr().out == ""


def paragraphs(text: str) -> list[str]:
    """Paragraphs and bullets, without tables, pictures and names that hold digits."""
    parts = re.split(r"\n\n|\n(?=- )", text)
    return [
        NAMES.sub("", part) for part in parts if not part.lstrip().startswith(("|", "!", "<!--"))
    ]


def sources(paragraph: str, folder: Path) -> str:
    """What a paragraph's numbers may come from: the main table and the pages that it links to."""
    assert TABLE
    pages = [folder / link for link in re.findall(r"\]\(([^)#]*results/[^)]*\.md)\)", paragraph)]
    every = [ROOT / "docs" / "results" / "comparisons.md", *pages]
    return TABLE[1] + "".join(page.read_text(encoding="utf-8") for page in every)


@pytest.mark.parametrize("name", ["docs/results.md", "README.md"])
def test_every_measured_number_in_prose_is_in_a_table(name: str) -> None:
    """Estimates as they stand with their intervals, and other decimals."""
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    found = 0
    for paragraph in paragraphs(re.sub(r"```.*?```", "", text, flags=re.S)):
        known = sources(paragraph, path.parent)
        flat = " ".join(paragraph.split())
        for number in [*ESTIMATE.findall(flat), *DECIMAL.findall(ESTIMATE.sub("", flat))]:
            assert number in known, f"{name}: {number} is in no table that `{flat[:60]}…` names"
            found += 1
    assert found > (20 if name.startswith("docs") else 3)


def test_the_page_stays_short() -> None:
    lines = RESULTS.splitlines()
    assert len(lines) <= 200 and max(map(len, lines)) < 140
    assert RESULTS.count("![") == 1 and len(re.findall(r"^\|-", RESULTS, re.M)) == 1


def test_every_trained_row_of_one_seed_is_marked() -> None:
    assert TABLE
    for row in TABLE[1].splitlines():
        if row.startswith("| **"):
            _, label, seeds, *_ = row.split("|")
            assert ("¹" in label) == (seeds.strip() == "1"), row
