"""Helper processes: deadlines, crashes, and nothing left behind. Real processes throughout."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.errors import GradingError
from tacit.graders.workers import DeadlineExceeded, Workers

ENDLESS = "sum(0 for _ in iter(int, 1))"


@pytest.fixture
def evaluators() -> Iterator[Workers]:
    workers = Workers("builtins:eval", count=2)
    yield workers
    workers.close()


async def test_thousands_of_questions_at_once(evaluators: Workers) -> None:
    answers = await asyncio.gather(*(evaluators.ask(f"{n} + 1", 5.0) for n in range(3000)))
    assert answers == list(range(1, 3001))


async def test_the_deadline_ends_the_question_and_the_next_is_answered(
    evaluators: Workers,
) -> None:
    with pytest.raises(DeadlineExceeded):
        await evaluators.ask(ENDLESS, 0.2)
    with pytest.raises(DeadlineExceeded):  # one big-number power never gives the interpreter back
        await evaluators.ask("len(str(9 ** 9 ** 9))", 0.2)
    assert await evaluators.ask("1 + 1", 5.0) == 2


async def test_waiting_is_not_using_the_deadline(evaluators: Workers) -> None:
    assert await evaluators.ask("__import__('time').sleep(0.4) or 3", 0.1) == 3


async def test_a_crash_is_tried_once_more(evaluators: Workers, tmp_path: Path) -> None:
    flag = tmp_path / "been here"
    question = (
        f"7 if __import__('os').path.exists({str(flag)!r}) "
        f"else [open({str(flag)!r}, 'w').close(), __import__('os')._exit(3)]"
    )
    assert await evaluators.ask(question, 5.0) == 7


async def test_two_crashes_are_a_grading_error(evaluators: Workers) -> None:
    with pytest.raises(GradingError, match="failed twice: it ended with status 3"):
        await evaluators.ask("__import__('os')._exit(3)", 5.0)
    with pytest.raises(GradingError, match=r"failed twice: no answer in 0\.12 s"):
        await evaluators.ask("__import__('time').sleep(60)", 0.01)
    assert await evaluators.ask("1 + 1", 5.0) == 2


async def test_an_exception_is_a_grading_error_that_names_it(evaluators: Workers) -> None:
    with pytest.raises(GradingError, match="ZeroDivisionError"):
        await evaluators.ask("1 / 0", 5.0)
    with pytest.raises(GradingError, match="MemoryError"):
        await evaluators.ask("bytes(10 ** 11)", 5.0)


async def test_a_function_that_prints_does_not_forge_replies(evaluators: Workers) -> None:
    assert await evaluators.ask("""print('{"answer": 1}') or 2""", 5.0) == 2


async def test_a_helper_that_cannot_start_says_why() -> None:
    workers = Workers("no_such_module:function", count=1)
    with pytest.raises(
        GradingError, match=r"no_such_module:function failed: .* No module named 'no_such_module'"
    ):
        await workers.ask("1", 5.0)
    workers.close()


def test_helpers_work_from_one_event_loop_after_another(evaluators: Workers) -> None:
    assert [asyncio.run(evaluators.ask("5", 5.0)) for _ in range(2)] == [5, 5]


def test_math_helpers_never_import_torch() -> None:
    async def modules() -> bool:
        workers = Workers("builtins:eval", count=1)
        loaded = await workers.ask(
            "[__import__('tacit.graders.symbolic'), 'torch' in __import__('sys').modules][1]", 60.0
        )
        workers.close()
        return bool(loaded)

    assert asyncio.run(modules()) is False


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    """`multiprocessing` would import it again in every helper."""
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio\nfrom tacit.graders.workers import Workers\nprint('once')\n"
        "print(asyncio.run(Workers('builtins:eval', count=2).ask('6 * 7', 5.0)))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("once\n42\n", 0)


PARENT = """
import asyncio
from tacit.graders.workers import Workers
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no fault
    workers = Workers("builtins:eval", count=2)
    await asyncio.gather(*(workers.ask("__import__('time').sleep(0.2)", 5.0) for _ in range(2)))
    print(*(w._process.pid for w in workers._idle), flush=True)
    {then}
asyncio.run(main())
"""


def start_parent(then: str) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-X", "dev", "-c", PARENT.format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def wait_until_gone(pids: list[int]) -> list[int]:
    for _ in range(600):
        pids = [pid for pid in pids if _alive(pid)]
        if not pids:
            break
        time.sleep(0.05)
    return pids


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan whose new parent does not collect it stays a zombie for ever; it runs no more.
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_helpers_end_with_their_parent_without_a_warning() -> None:
    process, pids = start_parent("pass")
    _, errors = process.communicate(timeout=60)
    assert len(pids) == 2
    assert (process.returncode, errors) == (0, "")
    assert wait_until_gone(pids) == []


@pytest.mark.parametrize(
    "then", ["await asyncio.sleep(60)", f"await workers.ask({ENDLESS!r}, 1.0)"]
)
def test_helpers_end_when_their_parent_is_killed(then: str) -> None:
    process, pids = start_parent(then)
    assert len(pids) == 2
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert wait_until_gone(pids) == []
