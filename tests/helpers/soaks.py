"""Keeps what a soak found where `make soak` asks for it; a test alone writes nothing."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def keep(name: str, result: Mapping[str, Any]) -> None:
    if folder := os.environ.get("TACIT_SOAK_RESULTS"):
        text = json.dumps(result, indent=1) + "\n"
        (Path(folder) / name).write_text(text, encoding="utf-8")


def keep_part(name: str, part: str, result: Mapping[str, Any]) -> None:
    """Keep what one of several tests found beside what the others did."""
    path = Path(os.environ.get("TACIT_SOAK_RESULTS", "")) / name
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    keep(name, before | {part: result})
