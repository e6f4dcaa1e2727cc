"""The reading order is the import order, and the light modules stay light."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tacit"

FREE = ("errors", "registry", "config")
"""Importable by all; each imports only those before it."""

CORE = (
    "types",
    "economy",
    "tasks",
    "silence",
    "engine",
    "grading",
    "team",
    "rollout",
    "run",
    "evaluation",
    "learn",
    "cli",
    "__main__",
)
RINGS = (
    "graders",
    "plan",
    "doctor",
    "benchmarks",
    "api",
    "fast",
    "sandbox",
    "tools",
    "vllm",
    "export",
    "report",
    "search",
    "traffic",
    "serve",
    "external",
    "audit",
    "cluster",
)
"""What the core finds by name and never imports."""
ORDER = (*CORE, *RINGS)
"""No module imports one further down, not even inside a function."""

CORE_LINES, PACKAGE_LINES, RING_LINES = 14_380, 38_960, 3_000
"""Most lines of the core, of all and of one ring, blank ones and docstrings included. Whoever adds
some takes others away, or says in the commit why there must be more."""

HEAVY = (
    "torch",
    "transformers",
    "peft",
    "openai",
    "math_verify",
    "sympy",
    "datasets",
    "chess",
    "starlette",
    "ray",
)

FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


def unit_of(module: str) -> str:
    """`tacit.team.prompts` belongs to `team`."""
    parts = module.split(".")[1:]
    return parts[0] if parts else ""


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module of ours that a file imports, lazily or not, with the line."""
    for node in ast.walk(ast.parse((SOURCE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "tacit":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            if node.module and node.module.split(".")[0] == "tacit":
                for alias in node.names:
                    yield _target(node.module, alias.name), node.lineno


def _target(module: str, name: str) -> str:
    """`from tacit.tasks import chess` imports a module, `… import load_tasks` a function."""
    inner = SOURCE.joinpath(*module.split(".")[1:], name)
    return f"{module}.{name}" if inner.is_dir() or inner.with_suffix(".py").is_file() else module


def module_of(path: Path) -> str:
    return ".".join(("tacit", *path.with_suffix("").parts)).removesuffix(".__init__")


def rank(unit: str) -> int:
    order = ("", "pocket", *FREE, *ORDER)
    assert unit in order, f"give `{unit}` its place in ORDER"
    return order.index(unit)


def test_a_files_name_says_which_it_is() -> None:
    names = Counter(path.name for path in FILES if not path.name.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parts != ("__init__.py",)], ids=str
)
def test_no_module_imports_one_to_its_right(path: Path) -> None:
    """The package itself names the public ones, and imports them when they are asked for."""
    own = unit_of(module_of(path))
    for module, line in imports(path):
        other = unit_of(module)
        assert rank(other) <= rank(own), f"{path}:{line}: {own} may not import {module}"


def test_the_order_would_notice() -> None:
    found = {unit_of(module) for path in FILES for module, _ in imports(path)}
    assert {"types", "team", "rollout", "engine", "learn", "cli"} <= found
    lazy = {module for module, _ in imports(Path("cli/verbs.py"))}
    assert "tacit.cli.training" in lazy, "imports inside functions count"
    assert rank("learn") > rank("rollout") > rank("team") > rank("types")


def test_nothing_in_the_order_is_out_of_date() -> None:
    there = {unit_of(module_of(path)) for path in FILES}
    assert {*FREE, *ORDER} <= there


def test_the_core_can_be_read_in_a_few_afternoons_and_a_ring_in_one() -> None:
    lines: dict[str, int] = {}
    for path in FILES:
        unit = unit_of(module_of(path))
        whole = (SOURCE / path).read_text(encoding="utf-8").splitlines()
        lines[unit] = lines.get(unit, 0) + len(whole)
    rings = {ring: lines[ring] for ring in RINGS}
    assert max(rings.values()) <= RING_LINES, rings
    assert sum(lines.values()) - sum(rings.values()) <= CORE_LINES
    assert sum(lines.values()) <= PACKAGE_LINES


@pytest.mark.parametrize(
    "module", ["tacit.config.file", "tacit.cli", "tacit.cli.commands", "tacit.run.opening"]
)
def test_light_modules_load_nothing_heavy(module: str) -> None:
    program = (
        f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_module_says_what_it_is_and_stays_readable(path: Path) -> None:
    tree = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
    if tree.body:
        assert ast.get_docstring(tree), f"{path} has no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 60, f"{path}: {node.name} has {length} lines"
