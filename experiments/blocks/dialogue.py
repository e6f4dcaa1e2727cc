"""Agent-GSPO: the dialogue before and after training, its controls and its sizes."""

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev, stdev
from typing import Any

import numpy as np

from experiments.blocks.rows import (
    DIALOGUE_RUNS,
    SEVEN,
    SOLO,
    UNTRAINED_DIALOGUE,
    get,
    interval,
    percent,
    points,
    said,
    seeds_of,
    silent_share,
    table,
)
from experiments.catalogue import EXPERIMENTS
from experiments.records import Measured, Results, difference


def dialogue_table(results: Results) -> str:
    """Before and after, on every benchmark that has both."""
    rows = []
    for benchmark, trained in SEVEN.items():
        usual = results.measured("baselines-dialogue", f"untrained, {benchmark}")
        solo = (
            get(results, SOLO)
            if benchmark == "gsm8k"
            else results.measured("baselines-dialogue", f"solo, {benchmark}")
        )
        for source, experiment, evaluation in trained:
            after = results.measured(experiment, evaluation)
            before = results.measured(experiment, "untrained") or usual
            if not (before and after):
                continue
            rows.append(
                (
                    benchmark,
                    source,
                    seeds_of(after),
                    interval(solo.accuracy) if solo else "",
                    interval(before.accuracy),
                    interval(after.accuracy),
                    points(difference(before, after)),
                    f"{before.generated:.0f} → {after.generated:.0f}",
                    percent(after.generated / before.generated),
                    f"{said(before):.0f} → {said(after):.0f}",
                    percent(float(np.nanmean(silent_share(after)))),
                )
            )
    head = (
        "benchmark", "trained on", "seeds", "solo %", "untrained team %", "trained team %",
        "change, points", "generated", "of untrained %", "of it messages", "silent %",
    )  # fmt: skip
    return table(head, rows)


def controls_table(results: Results) -> str:
    rows = []
    for name in DIALOGUE_RUNS:
        team, training = results.measured(name, "trained"), results.training(name)
        if not team or not training:
            continue
        norms = [n for one in training.values() for n in one["curves"]["train/gradient_norm"]]
        last = [_last(one["curves"].get("lambda/tokens")) for one in training.values()]
        sizes = [v for one in training.values() for v in _tail(one["curves"]["accuracy/sampled"])]
        rows.append(
            (
                EXPERIMENTS[name].title.removeprefix("Dialogue control: "),
                seeds_of(team),
                interval(team.accuracy),
                f"{team.generated:.1f}",
                f"{said(team):.1f}",
                percent(float(np.nanmean(silent_share(team)))),
                f"{fmean(last):.3f}",
                f"{fmean(norms):.3f} ± {pstdev(norms):.3f}",
                f"{percent(fmean(sizes))} ± {percent(pstdev(sizes))}",
                _over_seeds(team, training),
            )
        )
    head = (
        "run", "seeds", "accuracy %", "generated", "of it messages", "silent %", "λ at the end",
        "gradient norm, mean ± s.d. over steps", "sampled accuracy %, last fifth, mean ± s.d.",
        "over seeds, s.d. of accuracy % and of the mean norm",
    )  # fmt: skip
    return table(head, rows)


def _over_seeds(team: Measured, training: Mapping[int, Mapping[str, Any]]) -> str:
    if len(team.right_ST) < 2:
        return ""
    accuracies = [float(np.nanmean(one)) for one in team.right_ST]
    norms = [fmean(one["curves"]["train/gradient_norm"]) for one in training.values()]
    return f"{percent(stdev(accuracies))}, {stdev(norms):.3f}"


def sizes_table(results: Results) -> str:
    rows = []
    for count in (2, 3, 5, 8):
        name = "gspo" if count == 3 else f"gspo-{count}-agents"
        after = results.measured(name, "trained")
        before = (
            get(results, UNTRAINED_DIALOGUE) if count == 3 else results.measured(name, "untrained")
        )
        if before and after:
            rows.append(
                (
                    str(count),
                    interval(before.accuracy),
                    interval(after.accuracy),
                    points(difference(before, after)),
                    f"{before.generated:.0f} → {after.generated:.0f}",
                    percent(float(np.nanmean(silent_share(after)))),
                )
            )
    head = ("agents", "untrained %", "trained %", "change, points", "generated", "silent %")
    return table(head, rows)


def _last(curve: Sequence[float] | None) -> float:
    return curve[-1] if curve else 0.0


def _tail(curve: Sequence[float]) -> Sequence[float]:
    return curve[-max(1, len(curve) // 5) :]
