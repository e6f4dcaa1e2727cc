"""How near `--dry-run` comes to what a run then takes, on the pocket recipes.

    python benchmarks/dry_run.py --out benchmarks/results/dry-run.json

Runs are kept in runs/dry-run/, so that an interrupted one goes on. The exit code is 1 where an
estimate is more than 20 % from the real token count.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

from tacit.runfolder import RunFolder

RUNS = Path("runs/dry-run")
COMMANDS = {
    "pocket-hint": "train",
    "pocket-critic": "train",
    "pocket-dialogue": "train",
    "pocket-compare": "compare",
}
NEAR = 0.2


def tacit(*arguments: str) -> str:
    command = [sys.executable, "-m", "tacit.cli", *arguments]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return done.stdout.decode()


def taken(folder: Path) -> dict[str, int]:
    """Tokens that a run really used, those of silent arms and failed episodes too."""
    run, total = RunFolder(folder), {"prompt": 0, "generated": 0}
    timing = folder / "timing.jsonl"
    for line in timing.read_text().splitlines() if timing.exists() else ():
        for usage in json.loads(line)["usage"].values():
            for kind in total:
                total[kind] += usage[kind]
    for file in (folder / "episodes").glob("*.jsonl"):
        if file.stem in ("train", "dropped") or file.stem.startswith("eval-"):
            continue  # counted step by step
        for episode in run.episodes(file.stem):
            total["prompt"] += episode.usage.prompt
            total["generated"] += episode.usage.generated
    return total


def measure(recipe: str, overrides: list[str]) -> dict[str, Any]:
    command, folder = COMMANDS[recipe], RUNS / "-".join([recipe, *overrides]).replace("=", "-")
    estimate = json.loads(tacit(command, recipe, *overrides, "--dry-run", "--json"))
    began = time.perf_counter()
    tacit(command, recipe, *overrides, "--out", str(folder), "--json")
    seconds = time.perf_counter() - began
    real = taken(folder)
    tokens = sum(real.values())
    return {
        "command": command,
        "estimate": estimate,
        "real": {**real, "tokens": tokens, "seconds": seconds},
        "off": estimate["tokens"] / tokens - 1,
        "near": abs(estimate["tokens"] / tokens - 1) <= NEAR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", nargs="*", default=[*COMMANDS], choices=[*COMMANDS])
    parser.add_argument("--set", nargs="*", default=[], metavar="a.b=c")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = {recipe: measure(recipe, arguments.set) for recipe in arguments.recipes}
    whole = {
        "date": str(date.today()),
        "command": " ".join(["python", "benchmarks/dry_run.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "results": results,
    }
    text = json.dumps(whole, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(not all(result["near"] for result in results.values()))


if __name__ == "__main__":
    main()
