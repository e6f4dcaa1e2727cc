"""Train the pocket recipes over seeds and keep what came of it.

    python benchmarks/pocket.py --recipes pocket-hint ablation-no-cost --seeds 0 1 2 --out FILE

Runs are kept in runs/pocket/, so that an interrupted one goes on and a finished one is only read.
The demo's bars are checked for pocket-hint; the exit code is 1 when one is missed.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from tacit.evaluation.statistics import wilson

RUNS = Path("runs/pocket")


def train(recipe: str, seed: int, overrides: list[str]) -> Path:
    """`tacit train` in a process of its own; a log beside the run folder."""
    folder = RUNS / "-".join([recipe, str(seed), *(o.replace("=", "-") for o in overrides)])
    folder.parent.mkdir(parents=True, exist_ok=True)
    _tacit(folder, "train", recipe, f"seed={seed}", *overrides)
    return folder


def _tacit(folder: Path, *arguments: str) -> None:
    with Path(f"{folder}.log").open("a") as log:
        subprocess.run(
            [sys.executable, "-m", "tacit", *arguments, "--out", str(folder)],
            check=True,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        )


def examine(run: Path, offset: int, limit: int) -> dict[str, Any]:
    """`tacit eval` of the best weights on tasks that were not played to choose them."""
    folder = run.with_name(f"{run.name}-test")
    _tacit(folder, "eval", str(run), f"tasks.offset={offset}", f"tasks.limit={limit}")
    team = json.loads((folder / "summary.json").read_text())["teams"]["trained"]
    names = ("tasks", "failed", "accuracy", "accuracy_by_level", "generated", "read", "talk")
    return {"offset": offset, **{name: team[name] for name in names}}


def read(folder: Path) -> dict[str, Any]:
    """What the tables need of one run."""
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in metrics if "cost/tokens" in line]
    last = steps[-max(1, len(steps) // 5) :]
    played = [line for line in lines if "rollout_s" in line]
    return {
        "silence": json.loads((folder / "config.json").read_text())["silence"],
        "steps": summary["steps"],
        "best_step": summary["best_step"],
        "stopped": summary["stopped"],
        "budget": summary["budget"],
        "lambdas": summary["lambdas"],
        "training_seconds": sum(t["rollout_s"] + t["update_s"] for t in played),
        "generated_by_step": [
            sum(used["generated"] for used in line["usage"].values()) for line in played
        ],
        "expected_tokens_last_fifth": sum(s["cost/tokens"] for s in last) / len(last),
        "expected_turns_last_fifth": sum(s["cost/turns"] for s in last) / len(last),
        "silence_by_step": {
            name: [round(step[name], 3) for step in steps if name in step]
            for name in sorted({name for step in steps for name in step})
            if name.startswith("silence/") and name.count("/") == 2
        },
        "teams": {
            name: {
                "accuracy": team["accuracy"],
                "accuracy_by_level": team["accuracy_by_level"],
                "generated": team["generated"],
                "read": team["read"],
                "silence_by_level": {a["agent"]: a["silence_by_level"] for a in team["agents"]},
            }
            for name, team in summary["teams"].items()
        },
        "trained_compared_with": summary["trained_compared_with"],
    }


def bars(run: dict[str, Any]) -> dict[str, bool]:
    """What the demo must show."""
    solo, before, after = (run["teams"][name] for name in ("solo", "untrained", "trained"))
    silent = after["silence_by_level"]["hinter"]
    return {
        "untrained below solo": before["accuracy"]["mean"] < solo["accuracy"]["mean"],
        "trained at least 15 points above solo": after["accuracy"]["mean"]
        >= solo["accuracy"]["mean"] + 0.15,
        "tokens at most half of untrained": after["generated"]["mean"]
        <= 0.5 * before["generated"]["mean"],
        "silent on at least 80 % of easy": silent["easy"] >= 0.8,
        "silent on at most 20 % of hard": silent["hard"] <= 0.2,
    }


def table(runs: dict[str, Any]) -> str:
    """The runs as a Markdown table."""
    names = sorted(
        {
            level
            for run in runs.values()
            for row in run["teams"].values()
            for levels in row["silence_by_level"].values()
            for level in levels
        }
    )
    lines = [
        f"| run | team | accuracy % [95 %] | tokens said | silent % {' / '.join(names)} |",
        "|---|---|---:|---:|---:|",
    ]
    for name, run in runs.items():
        for team, row in run["teams"].items():
            accuracy = _percent(**row["accuracy"])
            levels = [level for level in row["silence_by_level"].values() if any(level.values())]
            quiet = "; ".join(" / ".join(f"{100 * v[n]:.0f}" for n in names) for v in levels)
            tokens = f"{row['generated']['mean']:.1f}"
            lines.append(f"| {name} | {team} | {accuracy} | {tokens} | {quiet or '0'} |")
    return "\n".join(lines)


def tested(*files: dict[str, Any]) -> str:
    """What the best weights did on other tasks, as a Markdown table over the runs of all files."""
    lines = [
        "| run | accuracy % [95 %] | tokens said [95 %] | silent % where needed | elsewhere | AUC "
        "| tokens a step | seconds a step |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, run in ((name, run) for file in files for name, run in file["runs"].items()):
        test, steps = run["test"], len(run["generated_by_step"])
        choosing = test["talk"]["choosing"]
        quiet = (
            wilson(round(choosing[f"silent_{who}"] * choosing[who]), choosing[who])
            for who in ("needed", "idle")
        )
        cells = [
            f"{run['silence']['exploration']}, {name.rpartition(' seed ')[2]}",
            _percent(**test["accuracy"]),
            "{mean:.1f} [{low:.1f}, {high:.1f}]".format(**test["generated"]),
            *(_percent(one.mean, one.low, one.high) for one in quiet),
            f"{choosing['auc']:.2f}",
            f"{sum(run['generated_by_step']) / steps:,.0f}",
            f"{run['training_seconds'] / steps:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", nargs="+", default=["pocket-hint"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", nargs="*", default=[], help="overrides, a.b=c")
    parser.add_argument(
        "--test",
        nargs=2,
        type=int,
        metavar=("OFFSET", "LIMIT"),
        help="other tasks to play at the end",
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, a thread each")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    jobs = [(recipe, seed) for recipe in args.recipes for seed in args.seeds]
    with ThreadPoolExecutor(args.jobs) as pool:
        folders = list(pool.map(lambda job: train(job[0], job[1], args.set), jobs))
    runs = {f"{r} seed {s}": read(f) for (r, s), f in zip(jobs, folders, strict=True)}
    if args.test:
        for run, folder in zip(runs.values(), folders, strict=True):
            run["test"] = examine(folder, *args.test)
    started = json.loads((folders[0] / "started.jsonl").read_text().partition("\n")[0])
    held = {name: bars(run) for name, run in runs.items() if name.startswith("pocket-hint ")}
    result = {
        "command": " ".join(["python", *sys.argv]),
        "date": date.today().isoformat(),
        "versions": started["versions"],
        "bars": held,
        "runs": runs,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(runs))
    if args.test:
        print(tested(result))
    missed = [f"{name}: {bar}" for name, all_ in held.items() for bar, ok in all_.items() if not ok]
    print("\n".join(missed) or "every bar holds")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
