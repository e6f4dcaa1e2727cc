"""Training pocket-hint against its Actor behind a URL, beside the same Actor in process.

`tacit serve` serves the Actor alone on this machine, in a process of its own. Two questions:

    python benchmarks/api_actor.py speed              # short runs in turn: the share of the speed
    python benchmarks/api_actor.py accuracy           # whole runs: the share solved in the end
    python benchmarks/api_actor.py speed --out FILE   # and the numbers as JSON, added to FILE

Speed is steps a second of the same short training, in every round once near and twice far: with the
cache off, so that every call goes over the wire, and as it is by default. The exit code is 1 when a
bar is missed.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

LEAST_SHARE = 0.8
RUNS = Path("runs/api-actor")
ACTOR = """
name: pocket-actor
tasks: {name: arithmetic, split: test, limit: 200}
team: {topology: solo, agents: {actor: {max_tokens: 16}}}
"""
NEAR = """
extends: pocket-hint
teams: null
"""
FAR = """
extends: pocket-hint
teams: null
models:
  far: {{engine: api, model: pocket-actor, base_url: "{url}", api_key_env: TACIT_BENCHMARK_KEY,
         concurrency: 64, cache: {cache}}}
team:
  agents:
    actor: {{model: far, system: ""}}   # the server tells its Actor how to answer
"""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """`tacit serve` with the Actor alone; its URL."""
    (folder / "actor.yaml").write_text(ACTOR, encoding="utf-8")
    command = [sys.executable, "-m", "tacit.cli", "serve", str(folder / "actor.yaml")]
    process = subprocess.Popen(
        [*command, "--port", "0", "--quiet", "--waiting", "1024"],
        stderr=subprocess.PIPE,
        text=True,
        env={"OMP_NUM_THREADS": "1", **os.environ, "TACIT_API_KEY": ""},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r" at (http\S+/v1),", line)
        if not found:
            raise RuntimeError(line + process.stderr.read())
        yield found[1]
    finally:
        process.terminate()
        process.communicate()


def train(config: str, folder: Path, *overrides: str) -> dict[str, Any]:
    """A run in a process of its own, or what one left that was done before."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / "summary.json").exists():
        source = folder.parent / f"{folder.name}.yaml"
        source.write_text(config, encoding="utf-8")
        command = [sys.executable, "-m", "tacit.cli", "train", str(source), *overrides]
        subprocess.run(
            [*command, "--out", str(folder), "--json"],
            check=True,
            stdout=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", **os.environ, "TACIT_BENCHMARK_KEY": "none"},
        )
    timing = (folder / "timing.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, timing) if "rollout_s" in line]
    trained = json.loads((folder / "summary.json").read_text())["teams"]["trained"]
    return {
        "step_seconds": [line["rollout_s"] + line["update_s"] for line in steps],
        "accuracy": trained["accuracy"],
        "tokens": trained["generated"]["mean"],
        "failed": trained["failed"],
    }


def speed(rounds: int, steps: int) -> dict[str, Any]:
    """Seconds a step, the three ways of a round one after the other."""
    ways: dict[str, list[float]] = {"near": [], "far, no cache": [], "far": []}
    short = (f"train.steps={steps}", "train.evaluate_every=0", "tasks.limit=16")
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as url:
        for number in range(rounds):
            for way, seconds in ways.items():
                cache = "none" if "no cache" in way else "greedy"
                config = NEAR if way == "near" else FAR.format(url=url, cache=cache)
                done = train(config, Path(name) / f"{way} {number}", *short)
                seconds.append(
                    statistics.fmean(done["step_seconds"][1:])
                )  # the first sets things up
                print(f"round {number}  {way:<14} {seconds[-1]:.2f} s a step", flush=True)
    shares = {
        way: [near / far for near, far in zip(ways["near"], some, strict=True)]
        for way, some in ways.items()
    }
    share = {way: statistics.median(some) for way, some in shares.items()}
    return {
        "seconds_a_step": ways,
        "share_of_speed": share,
        "least": LEAST_SHARE,
        "holds": share["far, no cache"] >= LEAST_SHARE and share["far"] >= LEAST_SHARE,
    }


def accuracy(seed: int, overrides: list[str]) -> dict[str, Any]:
    """Whole runs, near and far; kept in runs/api-actor/, so that an interrupted one goes on."""
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as url:
        settings = (f"seed={seed}", *overrides)
        near = train(NEAR, RUNS / f"near-{seed}", *settings)
        far = train(FAR.format(url=url, cache="greedy"), RUNS / f"far-{seed}", *settings)
    found, expected = far["accuracy"], near["accuracy"]
    return {
        "seed": seed,
        "near": {k: v for k, v in near.items() if k != "step_seconds"},
        "far": {k: v for k, v in far.items() if k != "step_seconds"},
        "holds": expected["low"] <= found["mean"] <= expected["high"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("what", choices=["speed", "accuracy"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="a.b=c")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if chosen.what == "speed":
        result = speed(chosen.rounds, chosen.steps)
    else:
        result = accuracy(chosen.seed, chosen.set)
    result |= {
        "date": str(date.today()),
        "command": " ".join(["python", "benchmarks/api_actor.py", *sys.argv[1:]]),
        "versions": {p: version(p) for p in ("torch", "transformers", "openai")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }
    print(json.dumps(result, indent=1))
    if chosen.out:
        before = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
        whole = before | {chosen.what: result}
        chosen.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    sys.exit(not result["holds"])


if __name__ == "__main__":
    main()
