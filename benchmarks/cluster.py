"""What a Ray cluster adds to playing, and how play scales with its workers.

Four measurements on a `local` Ray, so on the cores of one machine:

- scaling: hint-actor episodes on a simulated engine that takes 200 ms a call and four calls at
  once, as many episodes for each worker; efficiency is over the ideal time.
- steps: whole training steps of `pocket-hint`, the same for any number of workers. Engines are
  simulated likewise, the updates are real, in the one process that learns.
- pocket: episodes of the same team on the pocket model, for real, with one worker and with two.
- overhead: 10,000 episodes on an engine that takes no time, beside the same in one process.

Not covered: several machines, GPUs.

    python benchmarks/cluster.py --out benchmarks/results/cluster.json
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from tacit.cli.training import run_training
from tacit.cluster.engines import RemoteEngine, model_key, policy_key
from tacit.cluster.placement import joined
from tacit.cluster.pool import Pool
from tacit.cluster.rollout_worker import Opened, Opener, installed, open_from_config
from tacit.config import AgentConfig, ClusterConfig, Config, TeamConfig
from tacit.config.file import load_config
from tacit.engine.base import SILENCE_MARKER, Account, Completion, Engine, Request
from tacit.engine.scripted import ScriptedEngine
from tacit.rollout.play import Job, play_all
from tacit.tasks import load_tasks
from tacit.team.roster import Roster, build_roster
from tacit.team.setting import Setting
from tacit.types import Choice, Stop, Usage

WORKERS = (1, 2, 4, 8, 16)
SECONDS, AT_ONCE, CALLS = 0.2, 4, 2
EACH, IN_HAND = 100, 16
"""Episodes for each worker, and how many of them are under way at once."""
EFFICIENT = {8: 0.9, 16: 0.8}
MOST_MS = 2.0
CAPS = {"hinter": 80, "actor": 16}
MESSAGE_TOKENS = 20
"""Of a simulated hint."""
STEPS, TASKS, GROUP = 4, 32, 8
"""Of the whole steps. The first is left out of the means."""


def timed_reply(seconds: float) -> Callable[[Request], Awaitable[str]]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def reply(request: Request) -> str:
        if seconds:
            async with turns:
                await asyncio.sleep(seconds)
        return r"It is \boxed{42}."

    return reply


def simulated(seconds: float) -> ScriptedEngine:
    return ScriptedEngine(timed_reply(seconds))


@asynccontextmanager
async def open_simulated(seconds: float, account: Account) -> AsyncIterator[Opened]:
    yield Opened(engines={model_key("pocket"): simulated(seconds)})


class SimulatedPolicy(ScriptedEngine):
    """Ids without meaning, after the time of a call: what a learner needs to take a step."""

    async def generate(self, request: Request) -> Completion:
        silent = request.silence is not None and request.silence.choice is Choice.SILENT
        if not silent:
            await super().generate(request)
        ids = (
            self.silence_ids()
            if silent
            else tuple(10 + (request.seed >> n) % 50 for n in range(MESSAGE_TOKENS))
        )
        return Completion(
            text=SILENCE_MARKER if silent else f"hint {request.seed}",
            ids=ids,
            logprobs=(-1.0,) * len(ids),
            stop=Stop.EOS,
            usage=Usage(prompt=len(request.prompt_ids), generated=len(ids)),
            version=self.version,
            silence_logprob=-1.0 * len(self.silence_ids()),
            model=self.model,
        )

    def encode(self, messages: Any, tools: Any = ()) -> tuple[int, ...]:
        return tuple(10 + ord(c) % 50 for c in messages[-1].content[:60])

    def silence_ids(self) -> tuple[int, ...]:
        return (5, 6, 2)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        yield

    async def refresh(self, version: int) -> None:
        self.version = version


@asynccontextmanager
async def open_simulated_team(
    config: Config, versions: Any, account: Account
) -> AsyncIterator[Opened]:
    """In the place of `open_from_config`; the weights that arrive are not used."""
    import safetensors.torch  # noqa: F401, which a real engine has imported by now

    reply = timed_reply(SECONDS)  # one device for both
    policy = SimulatedPolicy(reply, model="pocket", policy="team")
    yield Opened(
        engines={model_key("pocket"): ScriptedEngine(reply), policy_key("team"): policy},
        policies={"team": mock.Mock()},
        trained={"team": policy},
    )


def team(engine: Engine) -> Roster:
    agents = {role: AgentConfig(max_tokens=most) for role, most in CAPS.items()}
    config = TeamConfig(topology="hint_actor", agents=agents)
    return build_roster(config, dict.fromkeys(agents, engine))


def jobs(count: int) -> list[Job]:
    tasks = load_tasks("arithmetic", split="test", limit=min(count, 1_000))
    return [Job(tasks[i % len(tasks)], Setting(sample=i // len(tasks))) for i in range(count)]


async def timed(
    workers: int, opener: Opener, count: int, concurrency: int, graders: int = 1
) -> float:
    """Seconds for so many episodes, once all workers are there and have played a little."""
    settings = ClusterConfig(address="local", workers=workers, graders=graders, cpus=0.1)
    async with Pool(settings, opener, Account()) as pool:
        while pool.ready < workers:
            await asyncio.sleep(0.1)
        roster = replace(team(RemoteEngine(model_key("pocket"), "pocket")), remote=pool.play)
        await play_all(roster, jobs(4 * workers), concurrency=concurrency)
        began = time.perf_counter()
        episodes = await play_all(roster, jobs(count), concurrency=concurrency)
        took = time.perf_counter() - began
    assert all(episode.grade for episode in episodes) and pool.recovered == []
    return took


async def scaling(sizes: list[int]) -> list[dict[str, float]]:
    ideal = EACH * CALLS * SECONDS / AT_ONCE
    rows = []
    for workers in sizes:
        opener = partial(open_simulated, SECONDS)
        took = await timed(workers, opener, EACH * workers, IN_HAND * workers)
        rows.append(
            {"workers": workers, "seconds": took, "ideal_s": ideal, "efficiency": ideal / took}
        )
        print(f"{workers:>3} workers: {took:.2f} s, efficiency {ideal / took:.1%}", flush=True)
    return rows


async def steps(sizes: list[int]) -> list[dict[str, float]]:
    rows = []
    for workers in sizes:
        settings = [
            "cluster.address=local", f"cluster.workers={workers}", "cluster.cpus=0.1",
            f"train.steps={STEPS}", f"train.tasks_per_step={TASKS}", f"train.group={GROUP}",
            f"train.evaluate_every={STEPS}", f"train.checkpoint_every={STEPS}", "tasks.limit=1",
            f"train.concurrency={2 * GROUP * TASKS}", "teams={}",
        ]  # fmt: skip
        opener = mock.patch("tacit.cluster.open_cluster.open_from_config", open_simulated_team)
        with TemporaryDirectory() as folder, opener:
            run = Path(folder) / "run"
            await run_training(load_config("pocket-hint", settings), run)
            times = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
            spoken = sum(1 for _ in (run / "episodes" / "train.jsonl").open()) // STEPS
        taken = [line for line in times if line["step"] > 1 and "rollout_s" in line]
        played, learned = (fmean(line[k] for line in taken) for k in ("rollout_s", "update_s"))
        # a greedy Actor plays each task once after silence, which takes no time and is not kept
        calls, episodes = CALLS * spoken + TASKS, spoken + TASKS
        ideal = calls * SECONDS / AT_ONCE / workers
        row = {"workers": workers, "episodes": episodes, "rollout_s": played, "update_s": learned}
        rows.append({**row, "ideal_rollout_s": ideal, "efficiency": ideal / played})
        print(f"{workers:>3} workers: a step's play {played:.2f} s (ideal {ideal:.2f}), "
              f"update {learned:.2f} s", flush=True)  # fmt: skip
    return rows


async def pocket(count: int) -> list[dict[str, float]]:
    config = load_config("pocket-hint")
    rows = []
    for workers in (1, 2):
        opener = partial(open_from_config, config, installed())
        took = await timed(workers, opener, count, 64 * workers)
        rows.append({"workers": workers, "episodes": count, "seconds": took})
        print(f"{workers:>3} pocket workers: {count} episodes in {took:.2f} s", flush=True)
    return rows


async def overhead(count: int) -> dict[str, float]:
    began = time.perf_counter()
    await play_all(team(simulated(0.0)), jobs(count), concurrency=256)
    numbers = {"episodes": count, "one_process_ms": 1e3 * (time.perf_counter() - began) / count}
    opener: Callable[..., Any] = partial(open_simulated, 0.0)
    for name, graders in (("cluster_ms", 0), ("cluster_with_grader_ms", 1)):
        numbers[name] = 1e3 * await timed(2, opener, count, 256, graders) / count
    print("an episode:", {name: round(value, 3) for name, value in numbers.items()}, flush=True)
    return numbers


def missed(rows: list[dict[str, float]], numbers: dict[str, float]) -> list[str]:
    """The bars that these numbers do not reach, as sentences."""
    slow = [
        f"{row['workers']} workers are {row['efficiency']:.0%} efficient"
        for row in rows
        if row["efficiency"] < EFFICIENT.get(int(row["workers"]), 0.0)
    ]
    dear = [name for name, value in numbers.items() if name.endswith("_ms") and value >= MOST_MS]
    return slow + [f"{name}: an episode costs {numbers[name]:.1f} ms" for name in dear]


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    numbers = await overhead(arguments.episodes)
    rows = await scaling(arguments.workers)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": installed(),
        "cores": os.cpu_count(),
        "load_before": arguments.load,
        "simulated": {
            "call_s": SECONDS,
            "calls_at_once": AT_ONCE,
            "episodes_each": EACH,
            "step": {"tasks": TASKS, "group": GROUP, "hint_tokens": MESSAGE_TOKENS},
        },
        "overhead": numbers,
        "scaling": rows,
        "steps": await steps(arguments.workers),
        "pocket": await pocket(arguments.pocket) if arguments.pocket else [],
        "missed": missed(rows, numbers),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, help="write JSON to this file")
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--episodes", type=int, default=10_000, help="of the overhead")
    parser.add_argument("--pocket", type=int, default=256, help="episodes; 0 leaves it out")
    arguments = parser.parse_args()
    arguments.load = os.getloadavg()[0]
    most = ClusterConfig(address="local", workers=max(arguments.workers), cpus=0.1)
    with joined(most):
        result = asyncio.run(measure(arguments))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for sentence in result["missed"]:
        print(f"bar missed: {sentence}", file=sys.stderr)
    return bool(result["missed"])


if __name__ == "__main__":
    sys.exit(main())
