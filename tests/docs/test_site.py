"""The docs' site: pages have a place, links lead somewhere, public names are shown."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

import tacit

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def site() -> ModuleType:
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("docs_site", DOCS / "site.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    inner = tree.values() if isinstance(tree, dict) else tree
    return [leaf for one in inner for leaf in leaves(one)]


def test_every_page_has_a_place_in_the_navigation() -> None:
    shown = {*leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])}
    pages = {str(page.relative_to(DOCS)) for page in PAGES if page.parent == DOCS}
    assert pages <= shown
    assert all((DOCS / page).exists() for page in shown)


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: path.name)
def test_every_link_of_a_document_leads_to_a_file(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        if not target.startswith(("http", "mailto:")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_files_outside_the_docs_are_named(site: ModuleType) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="results/experiments.md"))
    text = "[how](../../experiments/README.md), [main](../results.md), [Makefile](../../Makefile)"
    said = site.on_page_markdown(text, page)
    assert said == "how (`experiments/README.md`), [main](../results.md), `Makefile`"
    with pytest.raises(FileNotFoundError, match="leads nowhere"):
        site.on_page_markdown("[gone](../../gone.md)", page)


def test_the_reference_shows_every_public_name_once(site: ModuleType) -> None:
    shown = re.findall(r"^::: tacit\.(\w+)$", site.reference(), re.M)
    assert sorted(shown) == sorted({*tacit.__all__} - {"__version__"})
    assert site.NAMES in (DOCS / "reference.md").read_text(encoding="utf-8")


def test_files_that_the_algorithms_name_are_there() -> None:
    text = (DOCS / "algorithms.md").read_text(encoding="utf-8")
    named = {*re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text)}
    assert named
    for path in named:
        assert (ROOT / "src" / "tacit" / path).exists() or (ROOT / path).exists(), path
