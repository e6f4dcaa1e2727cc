"""Which characters of a message each sampled token stands for, so that a page can colour them.

The text shown is always the message itself; tokens only say where to cut it.
"""

from functools import cache
from pathlib import Path
from typing import Any

import tacit.pocket
from tacit.report.tolerant import tree_at

_LONGEST_GROUP = 8
"""Tokens that may share a character: four bytes at most, with room for odd tokenizers."""


class Cutter:
    """Cuts messages of one model at its tokens."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer`: of the package tokenizers, which is imported only if it is needed."""
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}
        self._sizes: dict[int, int] = {}

    def cut(self, text: str, ids: list[int]) -> list[int] | None:
        """UTF-16 units (as browsers count) of each token; None if text and tokens disagree."""
        for token in ids:
            if token not in self._pieces:
                piece = self._tokenizer.decode([token])
                self._pieces[token], self._sizes[token] = piece, _units(piece)
        if "".join([self._pieces[token] for token in ids]) == text:
            return [self._sizes[token] for token in ids]
        return self._cut_in_groups(text, ids)

    def _cut_in_groups(self, text: str, ids: list[int]) -> list[int] | None:
        """If a character is spread over several tokens, the last of them stands for it."""
        lengths: list[int] = []
        place = 0
        group: list[int] = []
        for token in ids:
            group.append(token)
            piece = self._pieces[token] if len(group) == 1 else self._tokenizer.decode(group)
            if text.startswith(piece, place):
                lengths += [0] * (len(group) - 1) + [_units(piece)]
                place += len(piece)
                group = []
            elif len(group) == _LONGEST_GROUP:
                return None
        return [*lengths, *([0] * len(group))] if place >= len(text.rstrip()) else None


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def cutter_of(config: dict[str, Any], model: str) -> Cutter | None:
    """The cutter of a run's model; None if its tokenizer is not at hand."""
    return _open(str(tree_at(config, "models", model).get("path") or model))


@cache
def _open(model: str) -> Cutter | None:
    """By `tokenizer.json` of the pocket model, of a folder, or of an earlier download."""
    folder = Path(tacit.pocket.__file__).parent / "model" if model == "pocket" else Path(model)
    path: Any = folder / "tokenizer.json"
    try:
        from tokenizers import Tokenizer

        if not path.is_file():
            from huggingface_hub import try_to_load_from_cache

            path = try_to_load_from_cache(model.removeprefix("hub:"), "tokenizer.json")
        return Cutter(Tokenizer.from_file(str(path)))
    except Exception:  # no such model, or a file that tokenizers cannot read: plain Exception
        return None
