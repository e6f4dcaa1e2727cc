"""Runs Python in the sandbox for the tools, as many programs at once as there are processors."""

import asyncio
import os
from functools import lru_cache

from tacit.errors import EngineError, SandboxError
from tacit.sandbox.probe import chosen
from tacit.sandbox.process import Outcome, Result, run
from tacit.sandbox.rules import LIMITS, Limits

OUTPUT_KB = 64


def limits_of(seconds: float) -> Limits:
    """Processor time is the measure, as it is for grading; the clock only ends what sleeps."""
    seconds = min(max(1.0, seconds), 86_400.0)  # a timeout may be infinite
    share = seconds * LIMITS.cpu_seconds / LIMITS.wall_seconds
    return Limits(
        cpu_seconds=int(max(share, min(LIMITS.cpu_seconds, seconds))),
        wall_seconds=seconds,
        output_kb=OUTPUT_KB,
    )


async def run_code(program: str, payload: str, limits: Limits) -> Result:
    """A program's result. That it cannot be run here at all is an error, not an observation."""
    try:
        method = (await chosen()).method
        async with _slots(asyncio.get_running_loop()):
            return await run(method, program, payload, limits=limits)
    except SandboxError as error:
        raise EngineError(f"a tool cannot run code: {error}") from error


def ending(result: Result, limits: Limits) -> str:
    """Why a program ended before its time; empty if it did not."""
    return {
        Outcome.TIMEOUT: f"stopped after {limits.cpu_seconds} s of processor time "
        f"or {limits.wall_seconds:g} s on the clock",
        Outcome.MEMORY: f"stopped: more than {limits.memory_mb} MB of memory",
        Outcome.OUTPUT: f"stopped: more than {limits.output_kb} kB printed",
        Outcome.KILLED: f"killed by a signal ({result.code})",
    }.get(result.outcome, "")


@lru_cache(maxsize=8)
def _slots(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    return asyncio.Semaphore(os.cpu_count() or 1)
