"""Grades Python answers (HumanEval, MBPP, your own) by running the benchmark's own tests.

Tests and solution run in two sandbox processes that send each other plain values. The tests' side
calls the solution's functions through stand-ins, compares what comes back, and alone writes the
verdict. The solution's process holds no test, expected value, verdict or secret: a solution that
exits, prints the success line, patches builtins, `assert` or the grader, installs trace functions
or exit handlers, or answers with an object that equals everything has only given wrong values.

Not covered: a solution that recognises the arguments and returns memorised answers (MBPP shows its
tests to the model), or that changes its arguments in place before the tests compare with them, as
any Python function may. Tests that pass a function, or anything else that is not plain data, are an
error, not a wrong answer. Two objects of the solution's own classes are equal to the tests only if
they are the same object. Tests and solutions have Python and the installed packages, nothing else.
"""

import asyncio
import json
import os
import re
import socket
import sys
import textwrap
from dataclasses import replace
from functools import lru_cache

from tacit.errors import GradingError
from tacit.sandbox.probe import chosen
from tacit.sandbox.process import Outcome, Result, run
from tacit.sandbox.rules import LIMITS, Limits, Method, inside_source
from tacit.types import Grade, Task

FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.M | re.S)


def read(task: Task, text: str) -> str:
    """The code of an answer."""
    return extract(text, task.data.get("entry_point", "")).strip()


def extract(text: str, entry_point: str = "") -> str:
    """The last fenced block that defines the function, else the last Python block, else the last
    block of any kind, else the whole text."""
    blocks = [(kind.lower(), textwrap.dedent(body)) for kind, body in FENCE.findall(text)]
    python = [body for kind, body in blocks if kind in ("python", "py", "python3")]
    bodies = python or [body for _, body in blocks]
    name = re.escape(entry_point)
    definition = re.compile(rf"^\s*(?:(?:async\s+def|def|class)\s+{name}\b|{name}\s*=)", re.M)
    defining = [body for body in bodies if entry_point and definition.search(body)]
    return (defining or bodies or [text])[-1]


async def grade(
    task: Task, text: str, *, limits: Limits = LIMITS, method: Method | None = None
) -> Grade:
    """Right if the task's tests pass; a crash, a timeout or a forbidden act is a wrong answer."""
    data = _data(task)
    answer = extract(text, data["entry_point"])
    async with _slots(asyncio.get_running_loop()):
        verdict, note = await _examine(data | {"answer": answer}, limits, method)
    if verdict == "broken":
        raise GradingError(f"the tests of this task cannot be run: {note}")
    right = verdict == "passed"
    return Grade(reward=float(right), right=right, answer=answer, note=note)


def _data(task: Task) -> dict[str, str]:
    data = {key: task.data.get(key, "") for key in ("prompt", "tests", "entry_point")}
    for key, value in data.items():
        if not isinstance(value, str):
            raise GradingError(f"data.{key} must be text, not {value!r:.80}")
    if not data["tests"].strip():
        raise GradingError("data.tests is empty, so every answer would be right: add the tests")
    return data


@lru_cache(maxsize=8)
def _slots(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    """As many pairs of processes at a time as there are processors, for each event loop."""
    return asyncio.Semaphore(len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1)


async def _examine(job: dict[str, str], limits: Limits, method: Method | None) -> tuple[str, str]:
    method = method or (await chosen()).method
    ours, theirs = (end.detach() for end in socket.socketpair())
    # The examiner waits longer, so that the candidate's own ending is what gets reported.
    patient = replace(limits, wall_seconds=limits.wall_seconds + 5)
    candidate = asyncio.create_task(_run("candidate", job, "answer", theirs, limits, method))
    try:
        verdict, note = _verdict(await _run("examiner", job, "tests", ours, patient, method))
        if verdict == "ended":
            await asyncio.wait({candidate}, timeout=2)
            note = _why_ended(candidate.result(), limits) if candidate.done() else note
        return verdict, note
    finally:
        candidate.cancel()
        await asyncio.gather(candidate, return_exceptions=True)


async def _run(
    side: str, job: dict[str, str], part: str, fd: int, limits: Limits, method: Method
) -> Result:
    """One of the two programs; neither is given the other's part of the job."""
    shared = {"prompt": job["prompt"], "entry_point": job["entry_point"], "fd": fd}
    modules = {"tacit.sandbox.inside.wire": inside_source("wire")}
    payload = json.dumps(shared | {part: job[part]})
    return await run(
        method, inside_source(side), payload, modules=modules, fds=(fd,), limits=limits
    )


def _verdict(examiner: Result) -> tuple[str, str]:
    if examiner.outcome is Outcome.OK:
        said = json.loads(examiner.stdout)
        return said["status"], said["note"]
    if examiner.outcome in (Outcome.TIMEOUT, Outcome.MEMORY):
        return "failed", f"{examiner.outcome} in the tests, on what the solution returned"
    raise GradingError(
        f"the process that runs the tests ended with {examiner.outcome} ({examiner.code}): "
        f"{examiner.stderr.strip()[-300:]}"
    )


def _why_ended(candidate: Result, limits: Limits) -> str:
    notes = {
        Outcome.TIMEOUT: f"timeout after {limits.cpu_seconds} s of processor time "
        f"or {limits.wall_seconds:g} s on the clock",
        Outcome.MEMORY: f"memory: more than {limits.memory_mb} MB",
        Outcome.OUTPUT: f"output: more than {limits.output_kb} kB printed",
        Outcome.KILLED: f"killed: the solution's process died of a signal ({candidate.code})",
    }
    exited = f"exit: the solution ended its process with code {candidate.code}"
    return notes.get(candidate.outcome, exited)
