"""One self-contained HTML file from run folders; large ones put their conversations beside it."""

import base64
import gzip
import re
import secrets
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tacit.errors import ConfigError
from tacit.report.audit_page import without_texts
from tacit.report.episodes import PIECE, to_json
from tacit.report.run_page import Run
from tacit.run.folder import write_atomically

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = (
    "base.js", "data.js", "headline.js", "charts.js", "frontier.js", "search.js", "curves.js",
    "cursor.js", "flow.js", "audit_graph.js", "audit.js", "talks.js", "reader.js", "details.js",
    "main.js",
)  # fmt: skip
_PIECE_FILE = re.compile(r"\d+-\d+-\d+\.js")
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""Nothing is fetched, and no script runs but the page's own and those it loads itself. Styles may
be inline, since plotly writes some."""
INSIDE = 16_000_000
"""Bytes of conversations that go into the page itself; more go beside it."""


def plotly_script() -> Path:
    """The one script plotly's package ships, found without importing the package."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ConfigError("the charts need plotly: pip install 'tacit[report]'")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


def write_report(
    folders: Sequence[Path], target: Path, *, conversations: bool = True, inside: int = INSIDE
) -> Path:
    """Read the runs and write the page; an earlier report in its place is replaced."""
    plotly_script()
    runs = open_runs(folders)
    for run in runs:
        run.refresh()
    beside = target.with_name(f"{target.stem}.pieces")
    making = target.with_name(f".{target.stem}.pieces")
    shutil.rmtree(making, ignore_errors=True)
    try:
        pieces = _packed(runs if conversations else [], making, inside)
        if beside.is_dir() and not all(_PIECE_FILE.fullmatch(p.name) for p in beside.iterdir()):
            raise ConfigError(f"`{beside}` is in the way and is no earlier report's: use --out")
        shutil.rmtree(beside, ignore_errors=True)
        if making.exists():
            making.rename(beside)
        page = _page(runs, pieces, beside.name, conversations=conversations)
        write_atomically(target, page.encode("utf-8", "backslashreplace"))
        target.chmod(0o644)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


KINDS = ("config.json", "recording.json")
"""By which a run and a recording are known."""


def open_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs, each under the shortest name that tells it from the others."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"`{folder}` is not a folder: name a run folder, like runs/NAME")
        if not any(
            (folder / name).exists()
            for name in ("metrics.jsonl", "episodes", "evals", "audit.json", *KINDS)
        ):
            below = next((path.parent for path in sorted(folder.glob("*/config.json"))), None)
            hint = f"; name the runs in it, like {below}" if below else ""
            raise ConfigError(f"`{folder}` is not a run folder: it has no config.json{hint}")
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    return [
        Run(folder, path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}")
        for folder, path in zip(folders, paths, strict=True)
    ]


def _packed(runs: Sequence[Run], folder: Path, most: int) -> dict[str, str]:
    """All conversations in pieces. Once they are too many for the page they go into the folder."""
    inside: dict[str, str] = {}
    size = 0
    for number, run in enumerate(runs):
        for source in run.sources.values():
            for piece in range(source.pieces):
                packed = pack(source.piece(piece, run.config))
                inside[f"{number}-{source.place}-{piece}"] = packed
                size += len(packed)
                if size > most:
                    folder.mkdir(parents=True, exist_ok=True)
                    for key, text in inside.items():
                        (folder / f"{key}.js").write_text(f'tacitPiece("{key}","{text}")\n')
                    inside.clear()
    return inside


def _page(runs: Sequence[Run], pieces: dict[str, str], beside: str, *, conversations: bool) -> str:
    overviews = [run.overview() for run in runs]
    if not conversations:
        for overview in overviews:
            overview["notes"].append("Conversations were left out of this report.")
            overview["sources"] = []
            overview["audit"] = overview["audit"] and without_texts(overview["audit"])
    settings = to_json({"runs": overviews, "piece": PIECE, "pieces": beside}).decode("utf-8")
    safe = settings.replace("<", "\\u003c")  # so that no text in it can end the script element
    rows = [
        _text(f"rows-{number}-{source.place}", pack(to_json(source.rows())))
        for number, run in enumerate(runs if conversations else [])
        for source in run.sources.values()
    ]
    plotly = plotly_script().read_text(encoding="utf-8")
    later = [_text(f"piece-{key}", packed) for key, packed in pieces.items()]
    nonce = secrets.token_urlsafe(18)
    policy = POLICY.format(nonce=nonce)
    scripts = [f'<script nonce="{nonce}">{_inline(_asset(name))}</script>' for name in SCRIPTS]
    return fill_template(
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        styles=f"<style>{_asset('page.css')}</style>",
        data="\n".join([f'<script type="application/json" id="overview">{safe}</script>', *rows]),
        scripts="\n".join(scripts),
        pieces="\n".join([_text("plotly", _inline(plotly)), *later]),
    )


def fill_template(**parts: str) -> str:
    """The page; a part that is not given stays an empty comment."""
    page = _asset("page.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


def pack(data: bytes) -> str:
    """Small enough to carry tens of thousands of conversations, safe inside HTML and scripts."""
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


def _text(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def _inline(script: str) -> str:
    return script.replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
