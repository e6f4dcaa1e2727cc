"""The docs' site: links that leave docs/, public names of the reference page, their examples."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import griffe

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")
NAMES = "<!-- public names -->"
EXAMPLE = re.compile(r"^(\s*)Example: (.+?)[.]?$", re.M)
TITLES = {
    "cli": "Verbs",
    "config": "Configuration",
    "types": "Tasks, messages, episodes",
    "errors": "Errors",
}
"""Where the package's own name is not what a reader would look for."""


def on_page_markdown(text: str, page: SimpleNamespace, **_: object) -> str:
    """A page's Markdown before it is rendered."""
    folder = Path(page.file.src_uri).parent
    text = LINK.sub(lambda link: _beyond(link, ROOT / "docs" / folder), text)
    return text.replace(NAMES, reference()) if NAMES in text else text


def _beyond(link: re.Match[str], folder: Path) -> str:
    """A file of the checkout, which the site does not hold, is named; it must be there."""
    target = (folder / link[2]).resolve()
    if target.is_relative_to(ROOT / "docs"):
        return link[0]
    if not target.exists():
        raise FileNotFoundError(f"{folder}: {link[0]} leads nowhere")
    path = f"`{target.relative_to(ROOT)}`"
    return path if link[1].strip("`") in path else f"{link[1]} ({path})"


def reference() -> str:
    """An entry for each name of `tacit.__all__`, by the part of the package that it belongs to."""
    tacit = importlib.import_module("tacit")
    parts: dict[str, list[str]] = {}
    for name in tacit.__all__:
        if name != "__version__":
            home = getattr(tacit, name).__module__.split(".")[1]
            parts.setdefault(home, []).append(name)
    first = [home for home in TITLES if home in parts]
    sections = []
    for home in [*first, *sorted(parts.keys() - {*first})]:
        entries = "\n\n".join(f"::: tacit.{name}" for name in parts[home])
        sections.append(f"## {TITLES.get(home, home.capitalize())}\n\n{entries}\n")
    return "\n".join(sections)


class Examples(griffe.Extension):
    """`Example: code` in a docstring is code, whatever brackets are in it."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"\1Example: `` \2 ``", obj.docstring.value)
