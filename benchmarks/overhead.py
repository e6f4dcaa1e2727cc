"""What the framework costs beside the models: time per turn and memory per episode.

Plays hint-actor episodes on the scripted engine, all of them under way at once, so that whatever
takes time is ours: prompts, seeds, records, tasks of the event loop, grading of exact numbers. A
turn is one call of an agent. Not covered: engines, the run folder, training.

    python benchmarks/overhead.py            # a table; exit code 1 when a bar is missed
    python benchmarks/overhead.py --json     # for programs
"""

import argparse
import asyncio
import gc
import json
import sys
import time
import tracemalloc
from dataclasses import asdict, dataclass

from tacit.config import AgentConfig, TeamConfig
from tacit.engine.base import Request
from tacit.engine.scripted import ScriptedEngine
from tacit.rollout.play import Job, play_all
from tacit.tasks import load_tasks
from tacit.team.roster import Roster, build_roster
from tacit.team.setting import Setting
from tacit.types import Episode

SIZES = (100, 1_000, 10_000)
TURNS = 2
MOST_MICROSECONDS = 1_000.0
FLAT = 2.0
"""The slowest size may take so many times as long a turn as the fastest."""
LINEAR = 1.5
"""Likewise for memory per episode."""


@dataclass(frozen=True, slots=True)
class Measured:
    episodes: int
    microseconds_per_turn: float
    """Wall time of the whole rollout over its turns; the best of several."""
    kept_bytes_per_episode: float
    """What a finished episode holds, transcript included."""
    peak_bytes_per_episode: float
    """The most that was held at once while all were under way."""


class Gate:
    """Holds every agent's first call until all episodes are under way."""

    def __init__(self, episodes: int) -> None:
        self._missing = episodes
        self._open = asyncio.Event()

    async def hint(self, request: Request) -> str:
        self._missing -= 1
        if self._missing == 0:
            self._open.set()
        await self._open.wait()
        return "First add the units, then the tens."


def roster_of(gate: Gate) -> Roster:
    config = TeamConfig(
        topology="hint_actor", agents={"hinter": AgentConfig(), "actor": AgentConfig()}
    )
    actor = ScriptedEngine(lambda request: r"It is \boxed{42}.")
    return build_roster(config, {"hinter": ScriptedEngine(gate.hint), "actor": actor})


async def play(jobs: list[Job]) -> tuple[list[Episode], float]:
    roster = roster_of(Gate(len(jobs)))
    began = time.perf_counter()
    episodes = await play_all(roster, jobs, concurrency=len(jobs))
    return episodes, time.perf_counter() - began


def jobs_of(count: int) -> list[Job]:
    """One task each, up to a thousand tasks, then further samples of them."""
    tasks = load_tasks("arithmetic", split="test", limit=min(count, 1_000))
    return [
        Job(task, Setting(sample=sample))
        for sample in range(-(-count // len(tasks)))
        for task in tasks
    ][:count]


def measure(count: int, repeats: int) -> Measured:
    jobs = jobs_of(count)
    seconds = []
    for _ in range(repeats):
        gc.collect()
        episodes, took = asyncio.run(play(jobs))
        assert all(len(episode.calls) == TURNS and episode.grade for episode in episodes)
        seconds.append(took)
        del episodes
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    episodes, _ = asyncio.run(play(jobs))
    peak = tracemalloc.get_traced_memory()[1]
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Measured(
        episodes=len(episodes),
        microseconds_per_turn=1e6 * min(seconds) / (count * TURNS),
        kept_bytes_per_episode=(kept - before) / count,
        peak_bytes_per_episode=(peak - before) / count,
    )


def missed(rows: list[Measured]) -> list[str]:
    """The bars that these numbers do not reach, as sentences."""
    times = [row.microseconds_per_turn for row in rows]
    memory = [row.peak_bytes_per_episode for row in rows]
    slower, larger = max(times) / min(times), max(memory) / min(memory)
    complaints = []
    if max(times) >= MOST_MICROSECONDS:
        complaints.append(f"a turn takes up to {max(times):.0f} µs")
    if slower > FLAT:
        complaints.append(f"a turn takes {slower:.1f} times as long at one size as at another")
    if larger > LINEAR:
        complaints.append(f"an episode takes {larger:.1f} times the memory at one size")
    return complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest counts")
    arguments = parser.parse_args()
    measure(min(arguments.sizes), 1)  # imports and caches
    rows = [measure(size, arguments.repeats) for size in arguments.sizes]
    complaints = missed(rows)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "missed": complaints}, indent=1))
        return bool(complaints)
    print(f"{'episodes':>10} {'µs a turn':>10} {'KiB kept':>10} {'KiB peak':>10}   (per episode)")
    for row in rows:
        kept, peak = row.kept_bytes_per_episode / 1024, row.peak_bytes_per_episode / 1024
        print(f"{row.episodes:>10,} {row.microseconds_per_turn:>10.0f} {kept:>10.1f} {peak:>10.1f}")
    for sentence in complaints:
        print(f"bar missed: {sentence}", file=sys.stderr)
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
