"""`tacit report --text`: the same numbers for a terminal without a browser."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.cli.live import sparkline
from tacit.cli.tables import Grid, interval, out, percent
from tacit.evaluation.statistics import Estimate
from tacit.report.run_page import Run

_WIDTH = 24

CURVES = (
    ("accuracy/policy", "solved, in training %", 100.0),
    ("accuracy/sampled", "solved, as sampled %", 100.0),
    ("eval/accuracy", "solved, held-out %", 100.0),
    ("cost/tokens", "tokens an episode", 1.0),
    ("eval/tokens", "tokens, held-out", 1.0),
    ("reward/total", "reward", 1.0),
    ("lambda/tokens", "λ of tokens", 1.0),
    ("lambda/turns", "λ of turns", 1.0),
    ("train/entropy", "entropy", 1.0),
    ("train/clip_fraction", "clip fraction %", 100.0),
)
"""Column, its name in words, and what to multiply with."""


def print_runs(runs: Sequence[Run]) -> None:
    for run in runs:
        out.print(_run(run.overview()))


def _run(overview: dict[str, Any]) -> RenderableType:
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
        accuracy, tokens = point["accuracy"], point["tokens"]
        known_best = point["step"] is not None and point["step"] == best
        rows.append(
            [
                _name(point) + (" (best)" if known_best else ""),
                interval(Estimate(**accuracy)),
                f"{tokens['mean']:.1f}" if tokens else "–",
                f"{point['read']:.0f}" if point.get("read") is not None else "–",
                percent(point["silence"]),
            ]
        )
    legend = "Tokens are means per episode. silent: of the calls that could have been silent."
    chosen = " best: chosen on these same tasks." if best is not None else ""
    headers = ["team", "accuracy %\n[interval]", "tokens\nsaid", "tokens\nread", "silent\n%"]
    return Grid(headers, rows, legend=legend + chosen)


def _name(point: dict[str, Any]) -> str:
    if point["kind"] == "team":
        return str(point["name"])
    return f"step {point['step']}" if point["step"] else "untrained"


def _curves(columns: dict[str, list[float | None]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "left", "right"):
        table.add_column(justify=justify, no_wrap=True)
    silence = [(name, f"silent {name[8:]} %", 100.0) for name in columns if _is_silence(name)]
    for name, words, scale in (*CURVES, *silence):
        values = [value * scale for value in columns.get(name, ()) if value is not None]
        if values:
            table.add_row(words, sparkline(values, _WIDTH), _ends(values))
    return table


def _is_silence(name: str) -> bool:
    return name.startswith("silence/") and name not in ("silence/warming", "silence/gain")


def _ends(values: Sequence[float]) -> str:
    return f"{values[0]:.4g} → {values[-1]:.4g}"
