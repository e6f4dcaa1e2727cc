"""Looks names up: in a literal dict with "did you mean", or outside code as `module:name`."""

import difflib
import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from tacit.errors import ConfigError

_OUTSIDE = re.compile(r"[^\W\d]\w*(\.\w+)*:[^\W\d]\w*")
_SAID: set[str] = set()
"""Outside code that has been announced on the terminal."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or the list of known names."""
    if not (known := sorted(known)):
        return "there are none"
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known)}"


def check_name(kind: str, name: str, known: Iterable[str], *, outside: bool = False) -> None:
    """Raise a ConfigError unless the name is known, or may be outside code and looks like it."""
    known = list(known)
    if name not in known and not (outside and _OUTSIDE.fullmatch(name)):
        hint = " (or your own as `module:name`)" if outside else ""
        raise ConfigError(f"unknown {kind} `{name}`: {did_you_mean(name, known)}{hint}")


def lookup(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """The registered object, or the object that `module:name` points to."""
    check_name(kind, name, known, outside=True)
    if name in known:
        return known[name]
    module, _, attribute = name.partition(":")
    if name not in _SAID and module.partition(".")[0] != "tacit":
        _SAID.add(name)
        print(f"tacit: the {kind} `{name}` is code from outside this package", file=sys.stderr)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigError(f"cannot import {kind} `{name}`: {error}") from error
