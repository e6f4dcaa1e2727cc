"""The public names: all there, quick to import, and enough for every example and document."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tacit.errors import ConfigError
from tests.helpers.training_runs import tree

ROOT = Path(__file__).parents[1]
PROGRAMS = {path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))} | {
    f"{path.name}:{number}": block
    for path in sorted((ROOT / "docs").glob("*.md"))
    for number, block in enumerate(
        re.findall(r"^```python[^\n]*\n(.*?)^```", path.read_text(), re.M | re.S)
    )
}


def test_importing_loads_nothing_heavy_and_names_come_when_they_are_used() -> None:
    program = (
        "import sys, tacit; tacit.Task; tacit.load_config; "
        "print([m for m in ('torch', 'transformers', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_public_name_is_there() -> None:
    assert {"train", "evaluate", "compare", "play", "load_config"} <= {*tacit.__all__}
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    assert dir(tacit) == tacit.__all__
    with pytest.raises(AttributeError, match="has no `tarin`"):
        tacit.tarin  # noqa: B018


def test_type_checkers_take_the_listed_names_for_public() -> None:
    stub = ast.parse((ROOT / "src" / "tacit" / "__init__.pyi").read_text())
    names = [n for node in stub.body if isinstance(node, ast.ImportFrom) for n in node.names]
    assert names and all(name.name == name.asname for name in names)


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_and_documents_need_nothing_deeper(name: str) -> None:
    for node in ast.walk(ast.parse(PROGRAMS[name])):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tacit":
            assert node.module == "tacit", f"{name} imports {node.module}"
            assert {alias.name for alias in node.names} <= {*tacit.__all__}
        if isinstance(node, ast.Import):
            assert not [a.name for a in node.names if a.name.startswith("tacit.")]


def test_a_team_is_trained_measured_and_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    summary = tacit.train(tree(train={"steps": 2, "evaluate_every": 0}), out=run)
    assert summary["steps"] == 2 and "trained" in summary["teams"]
    measured = tacit.evaluate(str(run), "tasks.limit=2", out=tmp_path / "eval")
    assert list(measured["teams"]) == ["trained"]
    episode = tacit.play(run, "What is 3 + 4?", answer="7")
    assert [call.agent for call in episode.calls] == ["hinter", "actor"]
    assert episode.calls[0].policy and episode.grade is not None
    assert capsys.readouterr().out == "", "tables are the commands' business"


async def test_it_works_where_a_loop_is_running() -> None:
    episode = tacit.play("pocket-hint", "What is 3 + 4?")
    assert episode.answer


def test_overrides_are_for_files() -> None:
    with pytest.raises(ConfigError, match="change this config itself"):
        tacit.evaluate(tree(), "tasks.limit=2")
