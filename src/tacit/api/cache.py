"""Answers cached on disk, so that the same deterministic question is paid for once.

One JSONL file for each model and one line for each answer, found by a hash of everything that
determines it. Neither the question nor the API key is stored. Each line is appended in one write;
torn or damaged lines are skipped.
"""

import hashlib
import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit.engine.base import Completion
from tacit.rollout.dedupe import KeyedLock
from tacit.types import MOST_TOKENS

_START = b'{"key": "'
_HEX = 32
_COMPLETION = TypeAdapter(Completion)


class AnswerCache:
    """The answers of one model. Runs may share a file: each finds what the others added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, int] = {}
        self._read_to = 0
        self.turns = KeyedLock()
        """Lets callers with the same key wait for the first one's answer."""

    def get(self, key: str) -> Completion | None:
        """The cached answer, marked as reused, or None."""
        if key not in self._places:
            self._read_on()
        if key not in self._places:
            return None
        with self._path.open("rb") as file:
            file.seek(self._places[key])
            found = _completion(file.readline(), key)
        if found is None:
            del self._places[key]
        return found

    def put(self, key: str, answer: Completion) -> None:
        line: dict[str, Any] = {
            "key": key,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "text": answer.text,
            "stop": answer.stop.value,
            "usage": asdict(answer.usage),
            "model": answer.model,
            "fingerprint": answer.fingerprint,
            "logprob": answer.logprob,
        }
        if answer.tool_calls:
            line["tool_calls"] = [asdict(call) for call in answer.tool_calls]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            torn = file.tell() > 0 and not _ends_a_line(self._path)
            file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")

    def _read_on(self) -> None:
        """Index the lines that this and other runs have added since the last call."""
        if not self._path.exists() or self._path.stat().st_size == self._read_to:
            return
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if line.endswith(b"\n"):
                    if line.startswith(_START):
                        key = line[len(_START) : len(_START) + _HEX].decode(errors="replace")
                        self._places[key] = self._read_to
                    self._read_to += len(line)


def cache_key(**determines: Any) -> str:
    """A hash of what determines an answer: server, model, parameters, messages, sample."""
    whole = json.dumps(determines, sort_keys=True, default=asdict).encode()
    return hashlib.blake2b(whole, digest_size=_HEX // 2).hexdigest()


def _completion(line: bytes, key: str) -> Completion | None:
    """The answer of a line; None if it is damaged or not this key's."""
    try:
        kept = _COMPLETION.validate_json(line)
    except ValidationError:
        return None
    if not line.startswith(_START + key.encode() + b'"') or kept.usage.total > MOST_TOKENS:
        return None
    return replace(kept, reused=True)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"
