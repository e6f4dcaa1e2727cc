"""What `tacit record` adds to the time of a call, on the loopback.

Each call is made twice by the same client, straight to a server that answers at once and through
`tacit record` in a process of its own, in turn. What is added is the difference of the two. `short`
and `long` are chat completions with prompts of some 100 and 100,000 characters; of a `stream` of
40 chunks, 5 ms apart, the first chunk and the last are timed. Beside them stands the recorder's
processor time of a short call. On a machine that has other work to do, each hop waits for its turn;
real-time priority shows what the recorder itself adds.

    python benchmarks/record.py                   # a table; exit code 1 when the bar is missed
    python benchmarks/record.py --out FILE        # and the numbers as JSON, by priority
    chrt -f 1 python benchmarks/record.py         # at real-time priority (Linux, root)
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
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tacit.serve.http_server import bind

MOST_P95_MS = 15.0
"""Added to a short call, a long one, or a stream's first chunk."""
CHUNKS, APART = 40, 0.005
"""Of a stream, and the seconds between them."""
WARM = 5
"""First calls, which set things up and are not counted."""

Pair = tuple[float, float]
"""Milliseconds straight to the server, and through the recorder."""


async def answer(request: Request) -> Response:
    body = await request.json()
    head = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
    if not body.get("stream"):
        message = {"role": "assistant", "content": "The answer is 42."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
        return JSONResponse(head | {"choices": [choice], "usage": usage})

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(CHUNKS):
            piece = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
            yield b"data: " + json.dumps(head | {"choices": [piece]}).encode() + b"\n\n"
            await asyncio.sleep(APART)
        yield b"data: [DONE]\n\n"

    return StreamingResponse(chunks(), media_type="text/event-stream")


@contextmanager
def model_server() -> Iterator[str]:
    """In a thread of this process, which also counts for the calls that go straight to it."""
    sock = bind("127.0.0.1", 0)
    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def recorder(to: str) -> Iterator[tuple[str, int]]:
    """`tacit record` in a process of its own: its URL and its id."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tacit", "record", "--to", to, "--port", "0", "--quiet"]
        process = subprocess.Popen(
            [*command, "--out", f"{folder}/kept"], stderr=subprocess.PIPE, text=True
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


def body_of(characters: int, **more: Any) -> bytes:
    messages = [
        {"role": "system", "content": "You are the solver."},
        {"role": "user", "content": "word " * (characters // 5)},
    ]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


async def timed(client: httpx2.AsyncClient, url: str, body: bytes) -> tuple[float, float]:
    """Milliseconds to the first bytes of the reply's body, and to its last."""
    began, first = time.perf_counter(), 0.0
    headers = {"content-type": "application/json", "authorization": "Bearer any"}
    ask = client.stream("POST", f"{url}/chat/completions", content=body, headers=headers)
    async with ask as reply:
        reply.raise_for_status()
        async for _ in reply.aiter_raw():
            first = first or time.perf_counter()
    return 1e3 * (first - began), 1e3 * (time.perf_counter() - began)


async def in_turn(urls: Sequence[str], body: bytes, calls: int) -> tuple[list[Pair], list[Pair]]:
    """The times to the first bytes and to the last, call by call."""
    firsts: list[Pair] = []
    lasts: list[Pair] = []
    async with httpx2.AsyncClient(timeout=30) as client:
        for number in range(calls + WARM):
            order = (0, 1) if number % 2 else (1, 0)
            took = {place: await timed(client, urls[place], body) for place in order}
            if number >= WARM:
                firsts.append((took[0][0], took[1][0]))
                lasts.append((took[0][1], took[1][1]))
    return firsts, lasts


def summary(pairs: Sequence[Pair]) -> dict[str, float]:
    columns = {
        "direct": [straight for straight, _ in pairs],
        "recorded": [through for _, through in pairs],
        "added": [through - straight for straight, through in pairs],
    }
    return {
        f"{name}_{point}_ms": round(value, 2)
        for name, times in columns.items()
        for point, value in (("p50", statistics.median(times)), ("p95", _p95(times)))
    }


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]


def cpu_seconds(pid: int) -> float:
    """What a process has spent so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(calls: int) -> dict[str, dict[str, float]]:
    with model_server() as server, recorder(server) as (kept, pid):
        urls = (server, kept)
        spent = cpu_seconds(pid)
        found = {"short": summary((await in_turn(urls, body_of(100), calls))[1])}
        spent = cpu_seconds(pid) - spent
        found["short"]["recorder_cpu_ms"] = round(1e3 * spent / (calls + WARM), 2)
        found["long"] = summary((await in_turn(urls, body_of(100_000), calls))[1])
        first, last = await in_turn(urls, body_of(100, stream=True), calls // 4)
        found |= {"stream, first chunk": summary(first), "stream, last chunk": summary(last)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--calls", type=int, default=400, help="of each kind; a fourth as many streams"
    )
    parser.add_argument("--out", type=Path, help="write JSON there")
    chosen = parser.parse_args()
    found = asyncio.run(measure(chosen.calls))
    print("milliseconds           direct p50    p95   recorded p50    p95   added p50    p95")
    for name, row in found.items():
        print(f"{name:<22}" + "".join(f"{value:>11.2f}" for value in [*row.values()][:6]))
    held = ("short", "long", "stream, first chunk")
    worst = max(found[name]["added_p95_ms"] for name in held)
    print(f"at most {worst:.1f} ms added in 95 % of calls (the bar: {MOST_P95_MS:g} ms)")
    if chosen.out:
        about = {
            "what": "each call straight to a server and through `tacit record`, in turn",
            "command": f"python benchmarks/record.py --calls {chosen.calls}",
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            **{name: version(name) for name in ("starlette", "uvicorn", "httpx2")},
            "cores": os.cpu_count(),
            "load_average": round(os.getloadavg()[1], 1),
            "most_added_p95_ms": MOST_P95_MS,
        }
        known = json.loads(chosen.out.read_text(encoding="utf-8")) if chosen.out.exists() else {}
        first = os.sched_getscheduler(0) == os.SCHED_FIFO
        entry = {"real-time" if first else "ordinary": about | {"calls": found}}
        chosen.out.write_text(json.dumps(known | entry, indent=1) + "\n", encoding="utf-8")
    return int(worst > MOST_P95_MS)


if __name__ == "__main__":
    sys.exit(main())
