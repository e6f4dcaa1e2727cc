"""The committed JSON of one run: config, course of the training, columns of every evaluation."""

import json
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.running import Order, config_of, is_finished, outcome_path
from tacit.run.folder import read_lines

CURVES = (
    "accuracy/sampled", "accuracy/silent_arm", "accuracy/policy", "cost/tokens", "cost/turns",
    "lambda/tokens", "lambda/turns", "groups/mixed", "groups/too_easy", "groups/too_hard",
    "train/gradient_norm", "train/entropy", "train/base_loss", "train/engine_gap",
    "train/clip_fraction", "train/dropped",
)  # fmt: skip
"""Of every step's numbers, those that a table or a plot is made of; tokens and silence too."""


def result_of(order: Order) -> dict[str, Any]:
    """What is known of a run so far."""
    folder = order.folder
    config = config_of(order).model_dump(mode="json", exclude_defaults=True)
    for model in config.get("models", {}).values():
        model["path"] = Path(model.get("path", "pocket")).name
    calls = [json.loads(line) for line in read_lines(folder / "calls.jsonl")]
    result: dict[str, Any] = {
        "experiment": order.name,
        "seed": order.seed,
        "finished": is_finished(order),
        "overrides": [*order.overrides, *([f"--first {order.first}"] if order.first else [])],
        "config": config,
        "calls": calls,
        "evaluations": {
            name: json.loads(path.read_text(encoding="utf-8"))
            for name in order.experiment.evaluations
            if (path := outcome_path(folder, name)).exists()
        },
    }
    if order.experiment.trains and not order.experiment.weights_of:
        result["training"] = _training(folder / "train")
    return result


def note_call(order: Order, seconds: float) -> None:
    """Remember that this machine worked on the run for so long."""
    order.folder.mkdir(parents=True, exist_ok=True)
    call = {"date": date.today().isoformat(), "seconds": round(seconds, 1), **machine()}
    with (order.folder / "calls.jsonl").open("ab") as file:
        file.write(json.dumps(call).encode() + b"\n")


def machine() -> dict[str, str]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    versions = {name: version(name) for name in ("torch", "transformers")}
    return {"device": gpu, "python": platform.python_version(), **versions}


def write(order: Order, out: Path) -> Path:
    """One column to a line, so that a change shows as the lines that changed."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{order.folder.name}.json"
    path.write_text(dump(result_of(order)) + "\n", encoding="utf-8")
    return path


def dump(tree: Any, indent: str = "") -> str:
    """JSON, a line for each key of an object, lists on one line."""
    if not isinstance(tree, dict) or not tree:
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    inner = indent + " "
    rows = (f"{inner}{json.dumps(key)}: {dump(value, inner)}" for key, value in tree.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _training(folder: Path) -> dict[str, Any]:
    metrics = [json.loads(line) for line in read_lines(folder / "metrics.jsonl")]
    timing = [json.loads(line) for line in read_lines(folder / "timing.jsonl")]
    steps = [line for line in metrics if "reward/total" in line]
    held_out = [line for line in metrics if "eval/accuracy" in line]
    best, trained = folder / "checkpoints" / "best.json", folder.parent / "trained.json"
    names = sorted({name for line in steps for name in line if _is_kept(name)})
    return {
        "steps": steps[-1]["step"] if steps else 0,
        "stopped": json.loads(trained.read_text())["stopped"] if trained.exists() else None,
        "best_step": json.loads(best.read_text())["step"] if best.exists() else None,
        "validation": {
            "step": [line["step"] for line in held_out],
            "accuracy": [round(line["eval/accuracy"], 4) for line in held_out],
            "tokens": [round(line["eval/tokens"], 2) for line in held_out],
        },
        "curves": {name: [_short(line.get(name)) for line in steps] for name in names},
        "seconds": {
            name: round(sum(line.get(f"{name}_s", 0.0) for line in timing), 1)
            for name in ("rollout", "update", "evaluate")
        },
    }


def _is_kept(name: str) -> bool:
    return name in CURVES or name.startswith(("tokens/", "silence/"))


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
