"""What serving costs beside the engine: throughput over HTTP and without it, and p95 under load.

The same team is asked the same questions by the same number of clients, in turn straight through
its engine in this process and over HTTP from `tacit serve` in another, round by round; a client
asks again as soon as it is answered. Over HTTP all replies are streams. What the clients cost
counts against the server, since they run on the same machine. Beside it stands the processor time
of a request, clients left out, which tells the same on a machine that has other work to do.

    python benchmarks/serve.py                    # a table; exit code 1 when the bar is missed
    python benchmarks/serve.py --out FILE         # and the numbers as JSON
"""

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tacit.config.file import load_config
from tacit.serve.serving import open_roster
from tacit.tasks import load_tasks
from tacit.team.roster import Roster
from tacit.team.setting import Setting
from tacit.types import Task

LEAST_SHARE = 0.9
"""Of the engine's own throughput."""

Ask = Callable[[Task], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One round: so many requests by so many clients."""

    requests_per_second: float
    cpu_ms: float
    """Processor time of a request where the engine runs."""
    seconds_p50: float
    seconds_p95: float


async def measure(asks: Sequence[Ask], tasks: Sequence[Task], pid: int) -> Measured:
    """Each client has a way to ask; they share the questions. The engine runs in process `pid`."""
    left, seconds = list(reversed(tasks)), []

    async def client(ask: Ask) -> None:
        while left:
            task, began = left.pop(), time.perf_counter()
            await asyncio.create_task(_awaited(ask(task)))
            seconds.append(time.perf_counter() - began)

    began, spent = time.perf_counter(), cpu_seconds(pid)
    async with asyncio.TaskGroup() as group:
        for ask in asks:
            group.create_task(client(ask))
    took, spent = time.perf_counter() - began, cpu_seconds(pid) - spent
    seconds.sort()
    return Measured(
        requests_per_second=len(tasks) / took,
        cpu_ms=1e3 * spent / len(tasks),
        seconds_p50=statistics.median(seconds),
        seconds_p95=seconds[int(0.95 * (len(seconds) - 1))],
    )


def cpu_seconds(pid: int) -> float:
    """What a process has spent so far, all its threads together (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _awaited(asked: Awaitable[None]) -> None:
    await asked


def through_the_engine(roster: Roster) -> Ask:
    async def ask(task: Task) -> None:
        await roster.play(roster.seat(task, Setting()))

    return ask


class HttpClient:
    """One connection that is kept; as little else as HTTP allows."""

    def __init__(self, url: str, model: str) -> None:
        self._url = urlsplit(url)
        self._model = model
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self, task: Task) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._url.hostname, self._url.port)
        reader, writer = self._streams
        message = {"role": "user", "content": task.question}
        body = json.dumps({"model": self._model, "stream": True, "messages": [message]}).encode()
        head = f"POST {self._url.path}/chat/completions HTTP/1.1\r\nhost: {self._url.netloc}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        status = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in status:
            raise RuntimeError(f"the server said {status.decode()}")
        last = b""
        while size := int(await reader.readline(), 16):
            last = (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        if not last.endswith(b"data: [DONE]\n\n"):
            raise RuntimeError("a stream broke off")

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()


@contextmanager
def server(source: str, places: int) -> Iterator[tuple[str, int]]:
    """`tacit serve` in a process of its own: its URL and its id."""
    command = [sys.executable, "-m", "tacit", "serve", source, "--port", "0", "--quiet"]
    environment = os.environ | {"TACIT_API_KEY": ""}
    process = subprocess.Popen(
        [*command, "--places", str(places)], stderr=subprocess.PIPE, text=True, env=environment
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


async def compare(
    source: str, clients: int, requests: int, rounds: int
) -> list[tuple[Measured, Measured]]:
    """The engine alone and the server, in turn."""
    config = load_config(source)
    tasks = load_tasks("arithmetic", split="test", limit=requests)
    trained = Path(source) if (Path(source) / "checkpoints").is_dir() else None
    pairs = []
    async with open_roster(config, trained, {}) as roster:
        with server(source, clients) as (url, pid):
            direct = [through_the_engine(roster)] * clients
            for number in range(rounds + 1):
                some = tasks if number else tasks[:clients]  # first requests set things up
                served = [HttpClient(url, config.name) for _ in range(clients)]
                if number % 2:  # in turn, so that neither has the quieter half of every round
                    http = await measure(served, some, pid)
                    engine = await measure(direct, some, os.getpid())
                else:
                    engine = await measure(direct, some, os.getpid())
                    http = await measure(served, some, pid)
                pairs.append((engine, http))
                for client in served:
                    client.close()
                _print(number, *pairs[-1])
    return pairs[1:]


def _print(number: int, engine: Measured, http: Measured) -> None:
    print(
        f"{number:>5} {engine.requests_per_second:>12.1f} {http.requests_per_second:>12.1f} "
        f"{100 * http.requests_per_second / engine.requests_per_second:>8.1f} "
        f"{engine.cpu_ms:>12.1f} {http.cpu_ms:>12.1f} {http.seconds_p95:>8.2f}",
        flush=True,
    )


def result_of(pairs: Sequence[tuple[Measured, Measured]]) -> dict[str, Any]:
    shares = [http.requests_per_second / engine.requests_per_second for engine, http in pairs]
    return {
        "share_of_engine_throughput": statistics.median(shares),
        "least": LEAST_SHARE,
        "share_of_processor_time": statistics.median(e.cpu_ms / h.cpu_ms for e, h in pairs),
        "seconds_p95": statistics.median(http.seconds_p95 for _, http in pairs),
        "rounds": [{"engine": asdict(engine), "http": asdict(http)} for engine, http in pairs],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--source", default="pocket-hint", help="config, run or recipe")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=256, help="in a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, help="write JSON there")
    chosen = parser.parse_args()
    print("round     engine/s       http/s  share %    engine ms      http ms    p95 s")
    pairs = asyncio.run(compare(chosen.source, chosen.clients, chosen.requests, chosen.rounds))
    result = result_of(pairs)
    share = result["share_of_engine_throughput"]
    print(f"over HTTP {100 * share:.1f} % of the engine's throughput (the bar: 90 %)")
    if chosen.out:
        about = {
            "what": "one team asked straight through its engine and over HTTP, round by round",
            "command": f"python benchmarks/serve.py --source {chosen.source} --clients "
            f"{chosen.clients} --requests {chosen.requests} --rounds {chosen.rounds}",
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "transformers", "starlette", "uvicorn")},
            "cores": os.cpu_count(),
            "load_average": round(os.getloadavg()[1], 1),
        }
        text = json.dumps(about | result, indent=1) + "\n"
        chosen.out.write_text(text, encoding="utf-8")
    return int(share < LEAST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
