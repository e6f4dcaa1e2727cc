"""Messages are cut at their tokens, and never changed by it."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

import tacit.pocket
from tacit.report.tokens import Cutter, cutter_of

TOKENIZER = Path(tacit.pocket.__file__).parent / "model" / "tokenizer.json"


def encode(text: str) -> list[int]:
    ids: list[int] = Tokenizer.from_file(str(TOKENIZER)).encode(text).ids
    return ids


def pocket() -> Cutter:
    cutter = cutter_of({}, "pocket")
    assert cutter
    return cutter


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize("text", ["What is 21 + 47?", "naïve café", "emoji 🙂 and 漢字", ""])
def test_the_pieces_cover_the_text_in_the_units_of_browsers(text: str) -> None:
    lengths = pocket().cut(text, encode(text))
    assert lengths is not None
    assert len(lengths) == len(encode(text))
    assert sum(lengths) == units(text)


def test_a_character_of_several_tokens_belongs_to_the_last_of_them() -> None:
    ids = encode("🙂")
    assert len(ids) > 1, "the pocket tokenizer spells it in bytes"
    assert pocket().cut("🙂", ids) == [*([0] * (len(ids) - 1)), 2]


def test_the_end_token_covers_nothing() -> None:
    assert pocket().cut("21", [*encode("21"), 2]) == [1, 1, 0]


def test_another_text_is_not_cut() -> None:
    assert pocket().cut("Something else entirely.", encode("What is 21 + 47?")) is None


def test_a_model_of_the_config_is_found_by_its_path() -> None:
    folder = str(TOKENIZER.parent)
    assert cutter_of({"models": {"mine": {"path": folder}}}, "mine") is not None


@pytest.mark.parametrize("model", ["no/such-model", "an api model", "", "../..", "\x00"])
def test_a_tokenizer_that_is_not_at_hand_is_none(model: str) -> None:
    assert cutter_of({"models": ["odd"]}, model) is None


def test_a_damaged_tokenizer_is_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    assert cutter_of({}, str(tmp_path)) is None
