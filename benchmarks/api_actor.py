"""Training pocket-hint against its Actor behind a URL, beside the same Actor in process.

`tacit serve` serves the Actor alone on this machine, in a process of its own. Two questions:

    python benchmarks/api_actor.py speed              # short runs in turn: the share of the speed
    python benchmarks/api_actor.py accuracy           # whole runs: the share solved in the end
    python benchmarks/api_actor.py speed --out FILE   # and the numbers as JSON, added to FILE

Speed is steps a second of the same short training, in every round once near and twice far: with the
cache off, so that every call goes over the wire, and as it is by default. Beside it stand the
processor seconds of a step, which tell the same on a machine that has other work to do: where
trainer and server each have a processor, the slower of the two sets the pace. The exit code is 1
when a bar is missed.
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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
  far: {{engine: api, model: pocket-actor, api_key_env: TACIT_BENCHMARK_KEY, concurrency: 64,
         cache: {cache}}}
team:
  agents:
    actor: {{model: far, system: ""}}   # the server tells its Actor how to answer
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds a step."""

    wall: float
    trainer_cpu: float
    server_cpu: float


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """`tacit serve` with the Actor alone: its URL and its process id."""
    (folder / "actor.yaml").write_text(ACTOR, encoding="utf-8")
    command = [sys.executable, "-m", "tacit", "serve", str(folder / "actor.yaml")]
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
        yield found[1], process.pid
    finally:
        process.terminate()
        process.communicate()


def cpu_seconds(pid: int) -> float:
    """What a process has spent so far, all its threads together (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steps_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "timing.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if "rollout_s" in line]


def train(config: str, folder: Path, *overrides: str, url: str = "", serving: int = 0) -> Spent:
    """Train in a process of its own; what its steps took after the first, which sets things up.

    The URL is in the environment, not in the config, so that a run can go on with another server.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    source = folder.parent / f"{folder.name}.yaml"
    source.write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "tacit", "train", str(source), *overrides]
    process = subprocess.Popen(
        [*command, "--out", str(folder), "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            "OMP_NUM_THREADS": "1",
            **os.environ,
            "TACIT_BENCHMARK_KEY": "none",
            "OPENAI_BASE_URL": url,
        },
    )
    marks: dict[int, tuple[float, float]] = {}
    while process.poll() is None:
        done = len(steps_of(folder))
        if done and done not in marks:
            own = cpu_seconds(process.pid)
            marks[done] = own, cpu_seconds(serving) if serving else 0.0
        time.sleep(0.02)
    if process.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed")
    steps, (first, last) = steps_of(folder)[1:], (min(marks), max(marks))
    own, other = ((marks[last][i] - marks[first][i]) / max(1, last - first) for i in (0, 1))
    wall = statistics.fmean(line["rollout_s"] + line["update_s"] for line in steps)
    return Spent(wall=wall, trainer_cpu=own, server_cpu=other)


def speed(rounds: int, steps: int) -> dict[str, Any]:
    """Seconds a step, the three ways of a round one after the other."""
    ways: dict[str, list[Spent]] = {"near": [], "far, no cache": [], "far": []}
    short = (f"train.steps={steps}", "train.evaluate_every=0", "tasks.limit=16")
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as (url, pid):
        for number in range(rounds):
            for way, spent in ways.items():
                cache = "none" if "no cache" in way else "greedy"
                folder = Path(name) / f"{way} {number}"
                if way == "near":
                    spent.append(train(NEAR, folder, *short))
                else:
                    far = FAR.format(cache=cache)
                    spent.append(train(far, folder, *short, url=url, serving=pid))
                print(f"round {number}  {way:<14} {spent[-1]}", flush=True)
    return {
        "least": LEAST_SHARE,
        **{name: _share(ways, name) for name in ("far, no cache", "far")},
        "rounds": {way: [asdict(one) for one in some] for way, some in ways.items()},
        "holds": all(_share(ways, far)["of_speed"] >= LEAST_SHARE for far in [*ways][1:]),
    }


def _share(ways: dict[str, list[Spent]], far: str) -> dict[str, float]:
    """Of the speed near: as measured, and as the processor time says it would be undisturbed."""
    pairs = list(zip(ways["near"], ways[far], strict=True))
    return {
        "of_speed": statistics.median(near.wall / one.wall for near, one in pairs),
        "by_processor_time": statistics.median(
            near.trainer_cpu / max(one.trainer_cpu, one.server_cpu) for near, one in pairs
        ),
    }


def accuracy(seed: int, overrides: list[str]) -> dict[str, Any]:
    """Whole runs, near and far; kept in runs/api-actor/, so that an interrupted one goes on."""
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as (url, _):
        settings = (f"seed={seed}", *overrides)
        train(NEAR, RUNS / f"near-{seed}", *settings)
        train(FAR.format(cache="greedy"), RUNS / f"far-{seed}", *settings, url=url)
    near, far = (_trained(RUNS / f"{way}-{seed}") for way in ("near", "far"))
    found, expected = far["accuracy"], near["accuracy"]
    lines = [(RUNS / f"{way}-{seed}" / "metrics.jsonl").read_text() for way in ("near", "far")]
    return {
        "seed": seed,
        "near": near,
        "far": far,
        "same_metrics_line_for_line": lines[0] == lines[1],
        "holds": expected["low"] <= found["mean"] <= expected["high"],
    }


def _trained(folder: Path) -> dict[str, Any]:
    team = json.loads((folder / "summary.json").read_text())["teams"]["trained"]
    kept = ("accuracy", "accuracy_by_level", "generated", "failed", "changed")
    return {name: team[name] for name in kept}


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
