"""A command in a fork of the warm process is the command: what it says, where, and how it ends."""

import json
import signal
from pathlib import Path

import pytest

from tests.helpers.commands import Forked, started, tacit_

ENDLESS = """
import asyncio, os
async def play(task, team):
    print(os.getpid(), os.getppid(), flush=True)
    await asyncio.sleep(600)
"""
TEAM = "team={topology: 'endless:play', agents: {actor: {}}}"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "endless.yaml").write_text("name: endless\ntasks: {name: arithmetic, limit: 1}\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["tasks", "arithmetic"],
        ["eval", "nowhere.yaml"],
        ["evl"],
        ["init", "new/team.yaml"],
    ],
    ids=" ".join,
)
def test_it_says_and_leaves_what_a_process_of_its_own_does(
    tmp_path: Path, arguments: list[str]
) -> None:
    seen = []
    for warm in (True, False):
        here = tmp_path / str(warm)
        here.mkdir()
        done = tacit_(here, *arguments, warm=warm, COLUMNS="70")
        files = {path.name: path.read_bytes() for path in here.rglob("*") if path.is_file()}
        seen.append((done.returncode, done.stdout, done.stderr, files))
    assert seen[0] == seen[1]


def test_variables_that_python_itself_reads_start_a_process_of_its_own(tmp_path: Path) -> None:
    process = started(tmp_path, "--version")
    assert isinstance(process, Forked)
    process.communicate()
    done = tacit_(tmp_path, "tasks", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stdout.isascii()


@pytest.mark.parametrize(
    ("how", "code", "warm"),
    [
        (signal.SIGINT, 130, True),
        (signal.SIGINT, 130, False),
        (signal.SIGTERM, 143, True),
        (signal.SIGTERM, 143, False),
        (signal.SIGKILL, -9, True),
    ],
)
def test_signals_reach_it_and_its_end_is_told(
    here: Path, how: signal.Signals, code: int, warm: bool
) -> None:
    process = started(here, "eval", "endless.yaml", TEAM, "seed=3", warm=warm)
    assert process.stdout is not None
    pid, parent = map(int, process.stdout.readline().split())
    assert process.pid == pid != parent and process.poll() is None
    begun = json.loads((here / "runs/endless/started.jsonl").read_text())
    assert begun["pid"] == pid and begun["command"].endswith(" seed=3")
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == process.poll() == code
    assert ("the same command goes on" in errors) is (how is not signal.SIGKILL)
