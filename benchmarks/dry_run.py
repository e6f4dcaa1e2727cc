"""How near `--dry-run` comes to what a run then takes, on the pocket recipes.

    python benchmarks/dry_run.py --out benchmarks/results/dry-run.json
    python benchmarks/dry_run.py runs/x runs/y --out FILE    # runs that are there already

Runs of recipes are kept in runs/dry-run/, so that an interrupted one goes on. Results are added to
those in FILE. The exit code is 1 where an estimate is more than 20 % from the real token count.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch

from tacit.run.folder import RunFolder

RUNS = Path("runs/dry-run")
COMMANDS = {
    "pocket-hint": "train",
    "pocket-critic": "train",
    "pocket-dialogue": "train",
    "pocket-compare": "compare",
}
NEAR = 0.2


def tacit(*arguments: str) -> str:
    command = [sys.executable, "-m", "tacit", *arguments]
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


def measure(source: str) -> dict[str, Any]:
    """The estimate for a recipe or a run that is there, and what the run really took."""
    there = Path(source).is_dir()
    folder = Path(source) if there else RUNS / source
    trains = (folder / "timing.jsonl").exists() if there else COMMANDS[source] == "train"
    command = "train" if trains else "compare"
    estimate = json.loads(tacit(command, source, "--dry-run", "--json"))
    if not there:
        tacit(command, source, "--out", str(folder), "--json")
    real = taken(folder)
    off = estimate["tokens"] / sum(real.values()) - 1
    return {
        "command": f"tacit {command} {source}",
        "estimate": estimate,
        "real": {**real, "tokens": sum(real.values())},
        "off": off,
        "near": abs(off) <= NEAR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("sources", nargs="*", default=[*COMMANDS], help="recipes, run folders")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    results = {Path(source).name: measure(source) for source in chosen.sources}
    before = json.loads(chosen.out.read_text()) if chosen.out and chosen.out.exists() else {}
    whole = {
        "date": str(date.today()),
        "command": " ".join(["python", "benchmarks/dry_run.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "results": before.get("results", {}) | results,
    }
    text = json.dumps(whole, indent=1)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(not all(result["near"] for result in results.values()))


if __name__ == "__main__":
    main()
