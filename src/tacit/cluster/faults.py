"""What became of a worker: its cause of death in one sentence, and an end to one that hangs."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.cluster.messages import Place

ASKED_S = 10.0
"""How long another node is asked for a log, or to end a process."""
GRACE_S = 1.0
"""More time for an answer that came while this process was busy learning, and is not read yet."""
TAIL = 3
"""Lines of a lost worker's log that are shown."""
NOISE = ("Some common causes include", "If the process was killed by the kernel OOM killer")
ACTOR = "ray::RolloutWorker"


class WorkerLost(Exception):
    """A worker that the head gave up, with the reason."""


class NoRoom(WorkerLost):
    """A worker that no node could start so far."""


async def outcome(reference: Any, seconds: float) -> Any:
    """The result of a Ray call; TimeoutError after these seconds. The call itself goes on."""
    call = asyncio.ensure_future(_awaited(reference))
    call.add_done_callback(lambda done: done.cancelled() or done.exception())
    for limit in (seconds, GRACE_S):
        done, _ = await asyncio.wait([call], timeout=limit)
        if done:
            return call.result()
    raise TimeoutError


async def reason_of(error: BaseException, place: Place | None) -> str:
    """Why a worker was lost, with its last words where they can still be read."""
    error = getattr(error, "cause", None) or error  # Ray quotes a whole traceback
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, WorkerLost):
        text = text.partition("The actor is dead because ")[2] or text
        for phrase in NOISE:
            text = text.partition(phrase)[0].rstrip()
    words = await _on_node(place, _tail, place.log) if place and place.log else None
    said = f"; its last words: {' | '.join(words)}" if words else ""
    return f"{text[:300].rstrip('.')}{said}"


async def end(actor: Any, place: Place | None) -> None:
    """End a worker, also one that is stopped or stuck and does not hear Ray."""
    import ray

    with suppress(Exception):  # it may be gone already
        ray.kill(actor)
    if place:
        await _on_node(place, _kill, place.pid)


async def _on_node(place: Place, function: Any, *arguments: Any) -> Any:
    """Call a function on the worker's node; None if the node does not answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if place.node == ray.get_runtime_context().get_node_id():
        return function(*arguments)
    there = NodeAffinitySchedulingStrategy(place.node, soft=False)
    remote = ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
    try:
        return await outcome(remote.remote(*arguments), ASKED_S)
    except Exception:  # the node is lost too, or too busy to ask
        return None


def _tail(log: str) -> list[str]:
    """The last lines of a log that are not Ray's own."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, Path(log).stat().st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip()[:200] for line in lines if line.strip() and line[:1] not in ":["][-TAIL:]


def _kill(pid: int) -> None:
    """SIGKILL, but to no other process that has this number by now."""
    with suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(ACTOR.encode()):
            os.kill(pid, signal.SIGKILL)


async def _awaited(reference: Any) -> Any:
    return await reference
