"""Why a worker was lost, in one sentence, and how one that hangs is ended."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.cluster.envelopes import Place
from tacit.errors import TacitError, one_line

ASKED_S = 10.0
"""How long another node is asked for a log."""
GRACE_S = 1.0
"""More time for an answer that came while this process was busy learning, and is not read yet."""
TAIL = 3
"""Lines of a lost worker's log that are shown."""
NOISE = ("Some common causes include", "If the process was killed by the kernel OOM killer")


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


def sendable(error: Exception, *kinds: type[TacitError]) -> TacitError | None:
    """The error as the first of these kinds that it is, with its sentence alone; None if none."""
    return next((kind(str(error)) for kind in kinds if isinstance(error, kind)), None)


def reason_of(error: BaseException) -> str:
    """Why a worker was lost."""
    error = getattr(error, "cause", None) or error  # Ray quotes a whole traceback
    text = one_line(error)
    if not isinstance(error, WorkerLost):
        text = text.partition("The actor is dead because ")[2] or text
        for phrase in NOISE:
            text = text.partition(phrase)[0].rstrip()
    return text[:300].rstrip(".")


async def last_words(place: Place | None) -> str:
    """What to add to the reason: the end of a worker's log, where it can still be read."""
    words = await _words(place) if place and place.log else None
    return f"; its last words: {' | '.join(words)}" if words else ""


def end(actor: Any) -> None:
    """End a worker; one that is stopped or stuck is killed by its node after some seconds."""
    import ray

    with suppress(Exception):  # it may be gone already
        ray.kill(actor)


async def _words(place: Place) -> list[str]:
    """The end of a worker's log, read on its node; nothing if the node does not answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if place.node == ray.get_runtime_context().get_node_id():
        return _tail(place.log)
    there = NodeAffinitySchedulingStrategy(place.node, soft=False)
    remote = ray.remote(_tail).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
    try:
        words: list[str] = await outcome(remote.remote(place.log), ASKED_S)
    except Exception:  # the node is lost too, or too busy to ask
        return []
    return words


def _tail(log: str) -> list[str]:
    """The last lines of a log that are not Ray's own."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, Path(log).stat().st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip()[:200] for line in lines if line.strip() and line[:1] not in ":["][-TAIL:]


async def _awaited(reference: Any) -> Any:
    return await reference
