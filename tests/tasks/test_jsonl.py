"""The user's own JSONL: what it may hold, and how each mistake is told."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.errors import DataError
from tacit.tasks import load_tasks
from tacit.types import Task


def read(path: Path, text: str) -> list[Task]:
    path.write_text(text, encoding="utf-8")
    return load_tasks(str(path), split="test")


def test_fields_and_defaults(tmp_path: Path) -> None:
    full = {
        "id": "own",
        "question": "Q",
        "answer": "b",
        "level": 3,
        "subject": "s",
        "instruction": "Say it.",
        "grader": "choice",
        "views": {"hinter": "b, they say", "holder 2": 7},
        "data": {"choices": ["a", "b"], "speak": {"hinter": True, "holder 2": False}},
        "source": "ignored",
    }
    text = '\ufeff{"question": "1 + 1?", "answer": 2}\n\n' + json.dumps(full)
    short, long = read(tmp_path / "mine.jsonl", text)
    assert (short.id, short.answer, short.grader, short.level) == ("mine/0", "2", "math", "")
    assert r"\boxed{}" in short.instruction
    assert long == Task(
        id="own",
        question="Q",
        answer="b",
        level="3",
        subject="s",
        instruction="Say it.",
        grader="choice",
        views={"hinter": "b, they say", "holder 2": "7"},
        data={"choices": ["a", "b"], "speak": {"hinter": True, "holder 2": False}},
    )


@pytest.mark.parametrize(
    ("grader", "data", "said"),
    [
        ("code", {"tests": "assert f() == 1"}, "```python"),
        ("chess", {"fen": "8/8/8/8/8/8/8/8 w - - 0 1"}, "algebraic"),
        ("choice", {}, "put your choice within"),
        ("choice", {"choices": ["yes", "no"]}, "put yes or no within"),
        ("choice", {"choices": ["A", "B", "C"]}, "put A, B or C within"),
    ],
)
def test_instruction_follows_the_grader(
    tmp_path: Path, grader: str, data: dict[str, object], said: str
) -> None:
    row = {"question": "q", "answer": "a", "grader": grader, "data": data}
    assert said in read(tmp_path / "t.jsonl", json.dumps(row))[0].instruction


def test_a_number_may_be_long(tmp_path: Path) -> None:
    (task,) = read(tmp_path / "t.jsonl", '{"question": "q", "answer": ' + "9" * 4000 + "}")
    assert task.answer == "9" * 4000


def test_a_grader_of_the_users_own_gets_no_instruction(tmp_path: Path) -> None:
    text = '{"question": "q", "answer": "a", "grader": "mine:grade"}'
    assert read(tmp_path / "t.jsonl", text)[0].instruction == ""


def test_packed_file_and_relative_folder(tmp_path: Path) -> None:
    text = '{"question": "q", "answer": "a"}\n'
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    packed = load_tasks("t.jsonl.gz", split="test", folder=tmp_path)
    assert packed == read(tmp_path / "t.jsonl", text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"question": "q"', r":2: not valid JSON"),
        ("[]", r":2: expected a JSON object, got list"),
        ('{"question": "q"}', r":2: `answer` is missing: give it as a string or a finite number"),
        ('{"question": "q", "answer": null}', r":2: `answer` is None"),
        ('{"question": "q", "answer": true}', r":2: `answer` is True"),
        ('{"question": "", "answer": "a"}', r":2: `question` is empty"),
        ('{"question": ["q"], "answer": "a"}', r":2: `question` is \['q'\]"),
        (
            '{"question": "q", "answer": "a", "grder": "code"}',
            r":2: unknown field `grder`: did you mean `grader`",
        ),
        (
            '{"question": "q", "answer": "a", "grader": "chess", "data": {}}',
            r":2: the grader chess needs `moves` or `fen` in `data`: add it",
        ),
        ('{"question": "q", "answer": "a", "data": 1}', r":2: `data` must be a JSON object"),
        ('{"question": "q", "answer": "a", "views": "x"}', r":2: `views` must be a JSON object"),
        (
            '{"question": "q", "answer": "a", "views": {"hinter": null}}',
            r":2: views: `hinter` is None: give it as a string",
        ),
        *(
            (
                '{"question": "q", "answer": "a", "data": {"speak": ' + speak + "}}",
                r":2: `data.speak` must say true or false of each agent, as in {\"hinter\": true}",
            )
            for speak in ('["hinter"]', "true", "null", '{"hinter": "no"}', '{"hinter": 1}')
        ),
        (
            '{"question": "q", "answer": "a", "speak": {"hinter": true}}',
            r":2: `speak` belongs in `data`: write {\"data\": {\"speak\": …}}",
        ),
        (
            '{"question": "q", "answer": "a", "id": "t/0"}',
            r":2: the id `t/0` is that of .*t\.jsonl:1 too",
        ),
        (
            '{"question": "q", "answer": NaN}',
            r":2: `answer` is nan: give it as a string or a finite number",
        ),
        ('{"question": "q", "answer": -Infinity}', r":2: `answer` is -inf"),
        ('{"question": "q", "answer": 1e999}', r":2: `answer` is inf"),
        ('{"question": "q", "answer": ' + "9" * 5000 + "}", r":2: not valid JSON .*5000 digits"),
        ('{"question": "q", "answer": "a", "id": "\\ud800"}', r":2: .*surrogates not allowed"),
        ('{"question": "q", "answer": "a", "data": {"\\ud800": 1}}', r":2: .*surrogates"),
        (
            '{"question": "q", "answer": "a", "data": ' + "[" * 10**5,
            r":2: not valid JSON .*(recursion|overflow)",
        ),
        (
            '{"question": "q", "answer": "a", "data": {"x": ' + "[" * 800 + "]" * 800 + "}}",
            r":2: it is nested too deeply",
        ),
    ],
    ids=range(27),
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=r"t\.jsonl" + message):
        read(tmp_path / "t.jsonl", '{"question": "q", "answer": "a"}\n' + line)


def test_empty_lines_cost_no_memory_and_are_counted(tmp_path: Path) -> None:
    """A packed file of a hundred kilobytes can hold a hundred million of them."""
    text = b"\n" * 10**8 + b' \t\n {"question": "q\xe2\x80\xa8", "answer": 1}\r\n{"question": "q"}'
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(text))
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))\n"
        "from tacit.tasks import load_tasks\n"
        "load_tasks('t.jsonl.gz', split='test', folder='.')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert "t.jsonl.gz:100000003: `answer` is missing" in done.stderr


def test_missing_or_empty_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*gone\.jsonl: check the path"):
        load_tasks(str(tmp_path / "gone.jsonl"), split="test")
    with pytest.raises(DataError, match="holds no tasks"):
        read(tmp_path / "t.jsonl", "\n\n")
