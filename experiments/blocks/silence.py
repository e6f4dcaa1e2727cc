"""Silence: what becomes of it in training, when a team speaks, and what that does."""

from collections.abc import Sequence

import numpy as np

from experiments.blocks.rows import (
    CHOOSING,
    CONSISTENCY,
    MISSING,
    SILENCES,
    SOLO,
    get,
    interval,
    percent,
    points,
    silent_share,
    table,
)
from experiments.records import Results, difference, on_shared


def silence_table(results: Results) -> str:
    """The ways of exploring silence: its course in training and what came of it."""
    solo, rows = get(results, SOLO), []
    for name, label in SILENCES.items():
        training = next(iter(results.training(name).values()), None)
        team = results.measured(name, "trained", label)
        if not training or not team:
            continue
        curves = training["curves"]
        chooser = next((role for role in CHOOSING if f"silence/{role}" in curves), "")
        rows.append(
            (
                label,
                str(training["steps"]),
                _course(curves.get(f"silence/{chooser}", ()), 100.0),
                _course(curves.get(f"tokens/{chooser}", ()), 1.0),
                percent(float(np.nanmean(silent_share(team)))),
                interval(team.accuracy),
                points(difference(solo, team)) if solo else "",
                f"{team.generated:.1f}",
            )
        )
    head = (
        "exploration", "steps", "π(silence) in training %, at the start, half-way, at the end",
        "tokens of a message in training, the same", "silent when measured %", "accuracy %",
        "against solo, points", "generated",
    )  # fmt: skip
    return table(head, rows)


def _course(curve: Sequence[float], scale: float) -> str:
    """The first value, the one half-way, the last."""
    moments = sorted({0, len(curve) // 2, len(curve) - 1}) if curve else []
    return " → ".join(f"{scale * curve[i]:.1f}" for i in moments)


BINS = ((0, 0), (1, 2), (3, 5), (6, 7), (8, 8))
"""Of eight sampled answers of the Actor alone, so many right."""


def difficulty_table(results: Results, experiment: str) -> str:
    """When the team speaks and what that does, by the Actor's own success on the problem."""
    solo, sampled = get(results, SOLO), get(results, CONSISTENCY)
    team = results.measured(experiment, "trained")
    if not (solo and sampled and team):
        return MISSING
    solo, sampled, team = on_shared(solo, sampled, team)
    alone, together = solo.right_ST[0], team.right_ST
    quiet = silent_share(team)
    spoken = quiet < 1
    successes = sampled.column("right_calls")[0]
    rows = []
    for low, high in (*BINS, (0, 8)):
        mine = (successes >= low) & (successes <= high)
        if not mine.any():
            continue
        loud = spoken[:, mine]
        helped = (together[:, mine] > alone[mine]) & loud
        harmed = (together[:, mine] < alone[mine]) & loud
        told = max(1, int(loud.sum()))
        rows.append(
            (
                _bin(low, high),
                str(int(mine.sum())),
                percent(float(np.nanmean(quiet[:, mine]))),
                percent(float(loud.mean())),
                percent(float(np.nanmean(alone[mine]))),
                percent(float(np.nanmean(together[:, mine]))),
                percent(helped.sum() / told),
                percent(harmed.sum() / told),
                percent(1 - (helped.sum() + harmed.sum()) / told),
            )
        )
    head = (
        "the Actor alone solves", "problems", "silent calls %", "spoke at all %", "solo %",
        "team %", "helped %", "harmed %", "no difference %",
    )  # fmt: skip
    return table(head, rows)


def _bin(low: int, high: int) -> str:
    if (low, high) == (0, 8):
        return "all"
    return f"{low} of 8" if low == high else f"{low} to {high} of 8"
