"""What `tacit report` and `tacit watch` do, and the report as text for a terminal."""

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.cli.live import sparkline
from tacit.cli.terminal import Grid, err, interval, out, percent
from tacit.errors import ConfigError
from tacit.evaluation.statistics import Estimate
from tacit.report.page import open_runs, write_report

_WIDTH = 24
"""Characters of a sparkline."""

CURVES = (
    ("accuracy/policy", "solved, in training %", 100.0),
    ("accuracy/sampled", "solved, as sampled %", 100.0),
    ("eval/accuracy", "solved, held-out %", 100.0),
    ("eval/reward", "reward, held-out", 1.0),
    ("cost/tokens", "tokens an episode", 1.0),
    ("eval/tokens", "tokens, held-out", 1.0),
    ("reward/total", "reward", 1.0),
    ("lambda/tokens", "λ of tokens", 1.0),
    ("lambda/turns", "λ of turns", 1.0),
    ("lambda/money", "λ of money", 1.0),
    ("train/entropy", "entropy", 1.0),
    ("train/clip_fraction", "clip fraction %", 100.0),
)
"""Column, its name in words, and what to multiply with."""


def run_report(
    folders: Sequence[Path], target: Path | None, *, text: bool, conversations: bool, show: bool
) -> None:
    if text:
        for run in open_runs(folders):
            run.refresh(episodes=False)
            out.print(as_text(run.overview()))
        return
    target = target or _target(folders)
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "no plain file"
        raise ConfigError(f"`{target}` is {kind}: name a file with --out, like report.html")
    with err.status("reading"):
        write_report(folders, target, conversations=conversations)
    beside = target.with_name(f"{target.stem}.pieces")
    kept = f", with its conversations in {beside.name}/ beside it" if beside.is_dir() else ""
    out.print(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB){kept}", soft_wrap=True)
    if show:
        webbrowser.open(target.resolve().as_uri())


def _target(folders: Sequence[Path]) -> Path:
    """In the run, or beside the runs if there are several."""
    if len(folders) == 1:
        return folders[0] / "report.html"
    return Path(os.path.commonpath([folder.resolve() for folder in folders])) / "report.html"


def run_watch(folders: Sequence[Path], port: int, *, show: bool) -> None:
    from tacit.report.watch import open_server, serve

    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"`{folder}` is a file: name a run folder, or a folder of them")
    server = open_server(folders, port)
    out.print(f"watching at {server.address}", soft_wrap=True)
    out.print("Ctrl-C ends the watching; the runs go on.", style="dim")
    if show:
        webbrowser.open(server.address)
    try:
        serve(server)
    except KeyboardInterrupt:
        err.print("no longer watching")


def as_text(overview: dict[str, Any]) -> RenderableType:
    """The page's numbers for a terminal without a browser."""
    state = overview["state"]
    steps = f", step {state['step'] or 0:.0f} of {state['steps']}" if state["steps"] else ""
    title = Text.assemble((overview["label"], "bold"), f": {state['status']}{steps}")
    parts: list[RenderableType] = [title]
    if overview["points"]:
        parts.append(_points(overview))
    if overview["metrics"]["steps"]:
        parts.append(_curves(overview["metrics"]["columns"]))
    parts += [Text(test["text"]) for test in overview["tests"]]
    parts += [Text(note, "yellow") for note in overview["notes"]]
    return Group(*parts)


def _points(overview: dict[str, Any]) -> Grid:
    best = overview["state"]["best_step"]
    rows = []
    for point in sorted(overview["points"], key=lambda p: (p["kind"], p["step"] or 0)):
        step, tokens, read = point["step"], point["tokens"], point["read"]
        checkpoint = f"step {step}" if step else "untrained"
        name = str(point["name"]) if point["kind"] == "team" else checkpoint
        rows.append(
            [
                name + (" (best)" if step is not None and step == best else ""),
                interval(Estimate(**point["accuracy"])),
                f"{tokens['mean']:.1f}" if tokens else "–",
                f"{read:.0f}" if read is not None else "–",
                percent(point["silence"]),
            ]
        )
    legend = "Tokens are means per episode. `silent`: of the calls that could have been silent."
    chosen = " `best` was chosen on these same tasks." if best is not None else ""
    headers = ["team", "accuracy %\n[interval]", "tokens\nsaid", "tokens\nread", "silent\n%"]
    return Grid(headers, rows, legend=legend + chosen)


def _curves(columns: dict[str, list[float | None]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "left", "right"):
        table.add_column(justify=justify, no_wrap=True)
    silence = [
        (name, f"silent {agent} %", 100.0)
        for name in columns
        if (agent := name.removeprefix("silence/")) not in (name, "warming", "gain")
    ]
    for name, words, scale in (*CURVES, *silence):
        values = [value * scale for value in columns.get(name, ()) if value is not None]
        if values:
            ends = f"{values[0]:.4g} → {values[-1]:.4g}"
            table.add_row(words, sparkline(values, _WIDTH), ends)
    return table
