"""Files that are torn, cut, half readable or missing are read as far as they go."""

import json
from pathlib import Path

import pytest

from tacit.report.tolerant import Tail, number, read_json, tree_at


def objects(tail: Tail) -> list[object]:
    return [tree for _, _, tree in tail.new()]


def test_lines_are_taken_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    tail = Tail(path)
    assert objects(tail) == [], "there is no file yet"
    path.write_bytes(b'{"a": 1}\n{"a": 2')
    assert objects(tail) == [{"a": 1}]
    assert tail.notes() == ["m.jsonl: the last line is torn and left out."]
    with path.open("ab") as file:
        file.write(b'2}\n{"a": 3}\n')
    assert objects(tail) == [{"a": 22}, {"a": 3}]
    assert objects(tail) == []
    assert tail.notes() == []


def test_each_object_comes_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": "\xc3\xa9"}\n')
    data = path.read_bytes()
    for place, length, tree in Tail(path).new():
        assert json.loads(data[place : place + length]) == tree


@pytest.mark.parametrize(
    "after", [b'{"a": 1}\n', b'{"a": 1}\n{"a": 9}\n{"a": 10}\n{"a": 11}\n'], ids=["short", "grown"]
)
def test_a_file_cut_and_written_anew_is_read_from_its_start(tmp_path: Path, after: bytes) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    tail = Tail(path)
    assert len(objects(tail)) == 3
    path.write_bytes(after)
    assert objects(tail) == [json.loads(line) for line in after.splitlines()]
    assert tail.epoch == 1


def test_lines_that_are_no_objects_are_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\nnot json\n[1]\n\xff\xfe\n{"a": "\\ud800"}\n')
    tail = Tail(path)
    assert objects(tail) == [{"a": 1}, {"a": "\ud800"}]
    assert tail.notes() == ["m.jsonl: 3 lines could not be read and are left out."]


def test_a_damaged_file_is_a_note(tmp_path: Path) -> None:
    notes: list[str] = []
    assert read_json(tmp_path / "missing.json", notes) == {}
    assert notes == []
    (tmp_path / "torn.json").write_text('{"a": ')
    assert read_json(tmp_path / "torn.json", notes) == {}
    assert "torn.json is damaged and left out" in notes[0]


def test_only_finite_numbers_are_numbers() -> None:
    assert [number(x) for x in (1, 2.5, True, "3", None, float("nan"), float("inf"))] == [
        1, 2.5, None, None, None, None, None,
    ]  # fmt: skip


def test_a_path_into_something_else_is_empty() -> None:
    assert tree_at({"a": {"b": {"c": 1}}}, "a", "b") == {"c": 1}
    assert tree_at({"a": [1]}, "a", "b") == {}
    assert tree_at(None) == {}
