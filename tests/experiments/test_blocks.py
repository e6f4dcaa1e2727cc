"""The lines of the block files: each can be played, and no run is tested on what it learns from."""

import os
import shlex
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from experiments.chain import inlined, parsed
from tacit import load_config
from tacit.config import Config
from tacit.learn.assemble import check_training
from tacit.team.roster import check_team, find_topology

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "experiments").glob("*.txt"))
LINES = [
    pytest.param(line, id=f"{path.stem}-{number}")
    for path in FILES
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    if not line.startswith("#")
]
Run = tuple[Namespace, Config]


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run_of(line: str) -> Run:
    args = parsed(shlex.split(line))
    return args, load_config(args.recipe, args.overrides)


def played(args: Namespace) -> dict[str, Config]:
    """Each test's config by its label."""
    said = {label: one for label, _, one in (test.partition("=") for test in args.test)}
    return {
        label: load_config(args.recipe, [*args.overrides, *map(inlined, one.split(";"))])
        for label, one in said.items()
    }


@pytest.mark.parametrize("line", LINES)
def test_a_line_can_be_played(line: str) -> None:
    args, config = run_of(line)
    assert not line.endswith(" ") and args.keep and args.out
    if config.team is None:
        assert config.teams and config.tasks.split == "test" and not args.test
        for name, team in config.teams.items():
            check_team(team, name)
        return
    check_training(config)
    assert config.tasks.split != "test", "a checkpoint is chosen on the test"
    if config.optimizer.schedule == "late":
        assert args.until >= 1200, "all of its steps are needed"
    tests = played(args)
    assert any(label.split(",")[0] == "trained" for label in tests)
    assert len(tests) == len(args.test), "two tests of one label"
    for label, test in tests.items():
        assert test.team and test.tasks.split == "test" and test.tasks.offset == 0
        assert test.tasks.shuffle_seed is None and test.seed == config.seed
        check_team(test.team, label)
        models = {role: one.model for role, one in test.team.agents.items() if one.trained}
        learned = {one.model for one in config.team.agents.values() if one.trained}
        assert {*models.values()} <= learned, f"{label}: another model than was trained"
        if test.tasks.name == "gsm8k":
            assert longest_answer(test) >= 512, f"{label}: the cap of the test"


def longest_answer(config: Config) -> int:
    assert config.team
    roles = find_topology(config.team.topology).roles
    agents = config.team.agents
    last = [role for role in ("actor", "agent", "debater") if role in roles and role in agents]
    return min(agents[role].max_tokens for role in last)


def test_no_two_lines_share_a_folder_or_a_record_and_seeds_share_no_task() -> None:
    runs = [run_of(str(one.values[0])) for one in LINES]
    for values in (
        [str(args.out) for args, _ in runs],
        [f"{args.keep}-s{config.seed}" for args, config in runs],
    ):
        assert len({*values}) == len(values)
    seeds = defaultdict(list)
    for args, config in runs:
        seeds[args.keep].append(config)
    for name, configs in seeds.items():
        for one, other in combinations(configs, 2):
            assert one.train_tasks and other.train_tasks
            if limit := one.train_tasks.limit:  # else all there are
                apart = abs(one.train_tasks.offset - other.train_tasks.offset)
                assert apart >= limit, f"{name}: seeds {one.seed} and {other.seed} share tasks"


def test_every_file_says_what_it_is_and_is_named_in_the_results() -> None:
    open_runs = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").partition("## Open")[2]
    for path in FILES:
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# ") and path.name in open_runs, path.name


CHAIN = """
import signal, sys, time
from pathlib import Path
def end(*_):
    time.sleep(float(sys.argv[1]))
    Path(f"{sys.argv[1]}.saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
Path(f"{sys.argv[1]}.begun").write_text(" ".join(sys.argv[1:]))
time.sleep(100)
"""


@pytest.mark.slow
def test_a_block_that_is_told_to_end_waits_until_every_run_has_saved(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "chain.py").write_text(CHAIN)
    lines = '# four lines, three at once\n0.1 --test "a b=c d"\n0.8\n1.6\n0.2\n'
    (tmp_path / "some.txt").write_text(lines)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        [ROOT / "experiments" / "block.sh", "some.txt", "3"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": "", "UNTIL": "50"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as block:
        while len([*tmp_path.glob("*.begun")]) < 3 and block.poll() is None:
            time.sleep(0.05)
        os.killpg(block.pid, signal.SIGTERM)
        assert block.wait(60) != 0
        saved = {path.stem for path in tmp_path.glob("*.saved")}
    assert saved == {"0.1", "0.8", "1.6"}, "and no further line is begun"
    *said, left = (tmp_path / "0.1.begun").read_text().split(" ")
    assert " ".join(said) == "0.1 --test a b=c d --until" and 0 < int(left) <= 50
