"""How near `tacit plan` comes to what was measured, each configuration predicted without itself.

    python benchmarks/plan.py --out benchmarks/results/plan.json

Reads the kept results of one H200 (`gpu.json`, `gpu_again.json`, `redesign.json`), nothing else;
needs no GPU. Each measurement is of a setting, such as the learning cycle of SmolLM2-135M. The
constants are fitted on all other settings, then the setting is predicted; a second time on the
other model alone. Runs of `experiments/results` are predicted too but not fitted: up to four of
them shared a GPU, and how many is not in their records.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from plan_kept import CARD, SHAPES, Measured, measurements, read

from tacit.plan.cards import GIB
from tacit.plan.costs import Constants, Decoding, Speed

RECORDS = Path(__file__).parents[1] / "experiments" / "results"
NEAR = 0.25
"""Largest error that counts as near."""
FITTED = {
    "launch_s": ("score", "update"),
    "kernel_s": ("decode",),
    "activations": ("memory",),
}
"""Constant → the kinds of measurements it is fitted on; each fit uses the constants before it."""


def ceilings() -> Constants:
    """The shares of the published figures that a copy and a product reached."""
    best = [read(name)["ceilings"] for name in ("gpu", "gpu_again")]
    return Constants(
        copy_share=fmean(one["bytes_per_s"] for one in best) / CARD.bytes_per_s,
        product_share=fmean(one["flops_per_s"] for one in best) / CARD.flops_per_s,
    )


def fit(some: Sequence[Measured]) -> Constants:
    """The three times and the factor, each by least squares of the relative error."""
    constants = ceilings()
    for name, kinds in FITTED.items():
        mine = [one for one in some if one.kind in kinds]
        constants = replace(constants, **{name: _least_squares(mine, constants, name)})
    return constants


def _least_squares(some: Sequence[Measured], constants: Constants, name: str) -> float:
    """The constant c that minimises Σ ((least + c·slope)/measured − 1)².

    Each setting weighs alike. What does not depend on the constant is left out.
    """
    without, one_more = (replace(constants, **{name: value}) for value in (0.0, 1.0))
    lines = []
    for one in some:
        least, whole = one.amount(without), one.value
        slope = one.amount(one_more) - least
        if slope:
            whole = whole if one.kind == "memory" else one.tokens / whole
            lines.append(((one.setting, one.kind), slope / whole, 1.0 - least / whole))
    settings = [setting for setting, _, _ in lines]
    above = sum(slope * rest / settings.count(own) for own, slope, rest in lines)
    below = sum(slope * slope / settings.count(own) for own, slope, _ in lines)
    return max(0.0, above / below)


def left_out(some: Sequence[Measured], by: Callable[[Measured], str]) -> list[dict[str, Any]]:
    """Each number predicted from a fit without all that `by` puts beside it."""
    rows = []
    for one in some:
        constants = fit([other for other in some if by(other) != by(one)])
        predicted = one.predicted(constants)
        unit = GIB if one.kind == "memory" else 1.0
        rows.append(
            one.to_json() | {"predicted": predicted / unit, "error": predicted / one.value - 1}
        )
    return rows


def by_setting(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The error of each setting and kind against the median of what was measured of it."""
    found = []
    for setting, kind in dict.fromkeys((row["setting"], row["kind"]) for row in rows):
        mine = [row for row in rows if (row["setting"], row["kind"]) == (setting, kind)]
        each = [row["measured"] for row in mine]
        measured, predicted = median(each), median(row["predicted"] for row in mine)
        found.append(
            {
                "setting": setting,
                "kind": kind,
                "unit": mine[0]["unit"],
                "measurements": len(mine),
                "measured": measured,
                "from_to": [min(each), max(each)],
                "predicted": predicted,
                "error": predicted / measured - 1,
            }
        )
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As docs/plan.md has it."""
    lines = [
        "| setting | what | measured | predicted without it | error |",
        "|---|---|---:|---:|---:|",
    ]
    for row in rows:
        digits = ".1f" if row["kind"] == "memory" else ",.0f"
        numbers = " | ".join(f"{row[name]:{digits}}" for name in ("measured", "predicted"))
        unit, error = row["unit"], f"{row['error']:+.0%}".replace("-", "−")
        lines.append(f"| {row['setting']} | {row['kind']}, {unit} | {numbers} | {error} |")
    return "\n".join(lines)


def worst(rows: Sequence[Mapping[str, Any]], *, memory: bool) -> float:
    errors = [float(row["error"]) for row in rows if (row["kind"] == "memory") == memory]
    return max(map(abs, errors))


# --- runs whose GPU was shared -------------------------------------------------------------------


def recorded(constants: Constants) -> list[dict[str, Any]]:
    """Training runs of Qwen2.5-Coder-1.5B: measured seconds of play over those predicted."""
    rows, speed = [], constants.speed(CARD)
    for path in sorted(RECORDS.glob("*.json")):
        tree = json.loads(path.read_text(encoding="utf-8"))
        training = tree["training"] if isinstance(tree.get("training"), dict) else {}
        if training.get("seconds") and tree["config"]["team"].get("topology") == "hint_actor":
            rows.append(_hint_run(path.stem, tree["config"], training, speed))
    return rows


def _hint_run(
    name: str,
    config: Mapping[str, Any],
    training: Mapping[str, Any],
    speed: Speed,
) -> dict[str, Any]:
    train, agents = config["train"], config["team"]["agents"]
    episodes = train["tasks_per_step"] * train.get("group", 8)
    said = {role: fmean(training["curves"][f"tokens/{role}"]) for role in ("hinter", "actor")}
    work = [
        Decoding(
            shape=SHAPES["1.5B"],
            rows=config["models"]["base"]["rows"],
            requests=episodes,
            prompt=100 + (said["hinter"] if role == "actor" else 0.0),
            new=said[role],
            cap=agents[role]["max_tokens"],
            computed=episodes * (said["hinter"] if role == "actor" else 0.0)
            + train["tasks_per_step"] * 100,
            rank=16 if agents[role].get("trained") else 0,
            arriving=agents["hinter"]["max_tokens"] if role == "actor" else 0.0,
        )
        for role in said
    ]
    seconds = training["seconds"]["rollout"] / training["steps"]
    predicted = sum(one.seconds(speed) for one in work)
    return {
        "run": name,
        "play_s": round(seconds, 2),
        "predicted_s": round(predicted, 2),
        "measured_over_predicted": round(seconds / predicted, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    text = json.dumps(result(), indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(not json.loads(text)["near"])


def result() -> dict[str, Any]:
    some = measurements()
    constants = fit(some)
    rows = left_out(some, lambda one: one.setting)
    settings = by_setting(rows)
    other_model = by_setting(left_out(some, lambda one: one.model))
    speed, memory = (worst(settings, memory=held) for held in (False, True))
    return {
        "command": "python benchmarks/plan.py --out FILE",
        "card": CARD.name,
        "constants": asdict(constants),
        "numbers": {
            "tokens_per_s": sum(one.kind != "memory" for one in some),
            "memory": sum(one.kind == "memory" for one in some),
        },
        "worst": {"tokens_per_s": speed, "memory": memory},
        "worst_single": {
            "tokens_per_s": worst(rows, memory=False),
            "memory": worst(rows, memory=True),
        },
        "near": max(speed, memory) <= NEAR,
        "without_the_setting": settings,
        "without_the_model": other_model,
        "measurements": rows,
        "shared_gpu": recorded(constants),
    }


if __name__ == "__main__":
    main()
