"""Write docs/results.md and its plots from page.md and the committed results.

    python -m experiments.tables            # write
    python -m experiments.tables --check    # exit code 1 where the page is not what they give

`{{name word | word}}` in page.md is replaced by a block of blocks.py, `{{plot name}}` by a picture.
"""

import argparse
import re
import sys
from pathlib import Path

from experiments.blocks import BLOCKS, PLOTS
from experiments.records import FOLDER, Results
from tacit.errors import ConfigError, TacitError
from tacit.registry import check_name

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
TEMPLATE = HERE / "page.md"
_SLOT = re.compile(r"\{\{(\w+)(?: +([^{}]*?))?\}\}")


def render(template: str, results: Results) -> str:
    """The page: the template with every slot filled."""

    def fill(match: re.Match[str]) -> str:
        name, rest = match[1], match[2] or ""
        words = [word.strip() for word in rest.split("|")] if rest else []
        if name == "plot":
            return _picture(words[0], results)
        check_name("block", name, BLOCKS)
        try:
            return BLOCKS[name](results, *words)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ConfigError(f"page.md: {match[0]}: {error}") from error

    filled = _SLOT.sub(fill, template)
    return re.sub(r"\n{3,}", "\n\n", filled)


def _picture(name: str, results: Results) -> str:
    check_name("plot", name, PLOTS)
    return f"![{name}](plots/{name}.svg)" if PLOTS[name](results) else ""


def files(results: Results, page: Path = PAGE, template: Path = TEMPLATE) -> dict[Path, str]:
    """Every file that is generated, and what it should hold."""
    made = {page: render(template.read_text(encoding="utf-8"), results)}
    for name, draw in PLOTS.items():
        if (text := draw(results)) and f"plots/{name}.svg" in made[page]:
            made[page.parent / "plots" / f"{name}.svg"] = text
    return made


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(arguments)
    try:
        made = files(Results.read(args.results), args.page)
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    stale = [
        path
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        print(f"{path} {'differs' if args.check else 'written'}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
