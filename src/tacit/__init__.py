"""Tacit trains, audits and serves teams of language-model agents that say only what is worth it.

What `__init__.pyi` lists may be relied on; what lies deeper may move. Names are imported when they
are first used, so that `import tacit` is quick.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_MODULE = {
    name.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
}
"""Public name → the module it lives in."""
__all__ = sorted([*_MODULE, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module `tacit` has no `{name}`")
    found = getattr(import_module(_MODULE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
