"""What the page says of a team of one's own is what the code takes, and its example runs."""

import inspect
import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from tacit.grading import GRADERS
from tacit.tasks.jsonl import FIELDS
from tacit.team.prompts import INTRODUCTIONS, PARTS
from tacit.team.seat import Seat
from tacit.types import Grade
from tests.helpers.commands import tacit_

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-team.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.M | re.S)


def rows(heading: str) -> list[str]:
    """The names in the first column of the table with that heading."""
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.M)
    return [name for row in table.splitlines() for name in re.findall(r"\w+", row.split("|")[1])]


def test_the_fields_of_tasks_and_grades_are_all_there() -> None:
    assert sorted(rows(r"field \| needed")) == sorted(FIELDS)
    assert rows(r"field \| meaning") == [field.name for field in fields(Grade)]
    (graders,) = re.findall(r"^\| `grader`.*", PAGE, re.M)
    assert all(f"`{name}`" in graders for name in (*GRADERS, "judge"))


def test_every_argument_of_ask_is_there_with_its_default() -> None:
    takes = inspect.signature(Seat.ask).parameters
    assert rows("argument") == [name for name in takes if name != "self"]
    for name in ("silent", "round", "final"):
        assert f"| `{name}` | `{takes[name].default}` |" in PAGE


def test_every_context_is_named() -> None:
    (names,) = re.findall(r"The names are (.*?);", PAGE, re.S)
    assert re.findall(r"`(\w+)`", names) == list(INTRODUCTIONS)
    (part,) = re.findall(r"^\| `part`.*such as (.*)\.", PAGE, re.M)
    assert set(re.findall(r"`(\w+)`", part)) <= PARTS.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, with the commands run in order."""
    here = tmp_path_factory.mktemp("own")
    for _, name, text in BLOCKS:
        if name:
            (here / name).write_text(text, encoding="utf-8")
    (commands,) = [text for kind, _, text in BLOCKS if kind == "bash"]
    for command in commands.splitlines():
        tacit, *arguments = shlex.split(command)
        assert tacit == "tacit"
        done = tacit_(here, *arguments)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return here


def test_the_clerk_is_heard_and_alone_knows_the_bill(folder: Path) -> None:
    lines = (folder / "runs/bills/episodes/tell.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    for line in lines:
        episode = json.loads(line)
        clerk, actor = episode["calls"]
        assert re.search(r"What is \d+ \+ \d+\?", clerk["messages"][-1]["content"])
        assert re.match(r"What does \w+ owe\?\n", actor["messages"][-1]["content"])
        assert episode["grade"]["right"], "the grader of the page read the answer"
    alone = (folder / "runs/bills/episodes/tell without helpers.jsonl").read_text(encoding="utf-8")
    assert not any(json.loads(line)["grade"]["right"] for line in alone.splitlines())


def test_the_reward_part_and_the_option_are_used(folder: Path) -> None:
    lines = (folder / "runs/bills-trained/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [step["step"] for step in steps if "reward/calm" in step] == [1, 2]
    twice = (folder / "runs/bills-twice/episodes/tell.jsonl").read_text(encoding="utf-8")
    for line in twice.splitlines():
        assert [call["agent"] for call in json.loads(line)["calls"]] == ["clerk", "clerk", "actor"]
