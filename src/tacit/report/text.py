"""`tacit report --text`: the same numbers for a terminal without a browser."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tacit.console import out, percent
from tacit.panel import sparkline
from tacit.report.run import Run

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
    title = f"[bold]{escape(overview['label'])}[/]: {state['status']}{steps}"
    parts: list[RenderableType] = [Text.from_markup(title)]
    if overview["points"]:
        parts.append(_points(overview))
    if overview["metrics"]["steps"]:
        parts.append(_curves(overview["metrics"]["columns"]))
    parts += [Text(test["text"]) for test in overview["tests"]]
    parts += [Text(note, "yellow") for note in overview["notes"]]
    return Group(*parts)


def _points(overview: dict[str, Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("team", overflow="fold")
    for header in ("accuracy %", "interval", "tokens said", "read", "silent %"):
        table.add_column(header, justify="right", no_wrap=True)
    best = overview["state"]["best_step"]
    for point in sorted(overview["points"], key=lambda p: (p["kind"], p["step"] or 0)):
        accuracy, tokens = point["accuracy"], point["tokens"]
        known_best = point["step"] is not None and point["step"] == best
        table.add_row(
            escape(_name(point)) + (" (best)" if known_best else ""),
            percent(accuracy["mean"]),
            f"[{percent(accuracy['low'])}, {percent(accuracy['high'])}]".replace("[", "\\["),
            f"{tokens['mean']:.1f}" if tokens else "–",
            f"{point['read']:.0f}" if point.get("read") is not None else "–",
            percent(point["silence"]),
            style="bold" if known_best else "",
        )
    return table


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
            table.add_row(escape(words), sparkline(values, _WIDTH), _ends(values))
    return table


def _is_silence(name: str) -> bool:
    return name.startswith("silence/") and name not in ("silence/warming", "silence/gain")


def _ends(values: Sequence[float]) -> str:
    return f"{values[0]:.4g} → {values[-1]:.4g}"
