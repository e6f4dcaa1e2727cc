import random

import pytest

from tacit.engine.base import Request, Sampling
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.engine.streaming import _Decoded
from tacit.types import ChatMessage


class Bytes:
    """A tokenizer whose ids are bytes, so that a character is several of them."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")


@pytest.mark.parametrize("text", ["plain", "naïve café", "😀 and 👩‍👩‍👧 then 你好", "ends in é"])
def test_pieces_are_whole_characters_and_add_up(text: str) -> None:
    draw = random.Random(7)
    whole, ids, place, pieces = list(text.encode()), [], _Decoded(), []
    while whole:
        for _ in range(draw.choice([1, 1, 1, 3])):
            ids += whole[:1]
            del whole[:1]
        pieces.append(place.advance(ids, Bytes()))  # type: ignore[arg-type]
    assert "".join(pieces) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert place.advance(ids, Bytes()) == ""  # type: ignore[arg-type]


def test_what_an_id_spells_beside_another_is_told_right() -> None:
    class Spaced(Bytes):
        """Puts a blank before every word but the first, as sentencepiece does."""

        def decode(self, ids: list[int]) -> str:
            return " ".join(f"w{id}" for id in ids)

    place, ids, pieces = _Decoded(), [], []
    for id in (5, 6, 7, 8):
        ids.append(id)
        pieces.append(place.advance(ids, Spaced()))  # type: ignore[arg-type]
    assert "".join(pieces) == "w5 w6 w7 w8"


async def test_a_listener_hears_the_text_in_pieces_and_changes_nothing() -> None:
    engine = LocalEngine(load_model("pocket"))
    messages = (
        ChatMessage("system", "Give your teammate one short hint for this question."),
        ChatMessage("user", "What is 37 + 48 - 15?"),
    )
    heard: list[str] = []
    request = Request(
        messages=messages,
        prompt_ids=engine.encode(messages),
        sampling=Sampling(max_tokens=48),
    )
    alone = await engine.generate(request)
    heard_too = await engine.generate(
        Request(
            messages=messages,
            prompt_ids=request.prompt_ids,
            sampling=request.sampling,
            on_text=heard.append,
        )
    )
    await engine.close()
    assert heard_too == alone
    assert len(heard) > 3, "told before the end"
    assert alone.text.startswith("".join(heard))
