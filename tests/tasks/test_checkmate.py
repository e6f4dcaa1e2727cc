"""Chess moves: how they may be written, and that they are compared on the board."""

from collections.abc import Mapping

import pytest

from tacit.benchmarks.checkmate import grade
from tacit.errors import GradingError
from tacit.types import Grade, Task

SCHOLARS_MATE = {"moves": "1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4."}
TWO_ROOK_MATES = {"fen": "7k/8/6K1/8/8/8/8/R3R3 w - - 0 1"}
CASTLES = {"fen": "4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1"}
PROMOTES = {"fen": "8/P6k/8/8/8/8/8/K7 w - - 0 1"}


async def graded(text: str, answer: str, data: Mapping[str, str]) -> Grade:
    return await grade(Task(id="t", question="?", answer=answer, grader="chess", data=data), text)


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{Qxf7#}",
        r"\boxed{Qxf7\#}",
        r"\boxed{\text{4. Qxf7}}",
        "Qxf7",
        "Qf7+!?",
        "h5f7",
        "Qh5xf7#",
        "Qh5-f7",
        "Not Bxf7+, as the king takes. So 4. Qxf7# it is.",
        r"Bxf7 checks, but \boxed{Qxf7} mates; not Nf3",
        "Qxf7# (not Bxf7+)",
        "Qxf7# rather than 4. Bxf7+",
        r"\boxed{Qxf7 (not Bxf7)}",
        "Bxf7 or Qxf7? Qxf7",
        "Qxf7# or Qxf7",
    ],
)
async def test_the_mating_move_is_right_however_written(text: str) -> None:
    grade_of = await graded(text, "Qxf7#", SCHOLARS_MATE)
    assert (grade_of.right, grade_of.answer) == (True, "Qxf7#")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{Bxf7+}", "Bxf7+"),
        ("Qxf7 was tempting, but Nf3", "Nf3"),
        (r"\boxed{Qh8\#}", r"Qh8\#"),
        (r"Qxf7 is right: \boxed{mate}", "mate"),
        ("I see no move", ""),
        ("Nf3 or Qxf7", ""),
        ("Nf3/Qxf7", ""),
        (r"\boxed{Bxf7 or Qxf7}", "Bxf7 or Qxf7"),
        ("not Qxf7", ""),
        (r"\boxed{Qxf7", ""),
        ("", ""),
    ],
)
async def test_other_moves_and_no_moves_are_wrong(text: str, answer: str) -> None:
    grade_of = await graded(text, "Qxf7#", SCHOLARS_MATE)
    assert (grade_of.right, grade_of.reward, grade_of.answer) == (False, 0.0, answer)


async def test_any_mating_move_is_right_but_a_mere_move_is_not() -> None:
    assert (await graded("Re8#", "Ra8#", TWO_ROOK_MATES)).right
    assert not (await graded("Re7", "Ra8#", TWO_ROOK_MATES)).right


@pytest.mark.parametrize("text", ["O-O", "0-0", "o-o", "O-O+", "e1g1"])
async def test_castling_may_be_written_with_zeros(text: str) -> None:
    assert (await graded(text, "O-O", CASTLES)).right
    assert not (await graded("O-O-O", "O-O", CASTLES)).right


async def test_a_promotion_names_its_piece() -> None:
    for text in ("a8=Q", "a8Q", "a7a8q"):
        assert (await graded(text, "a8=Q", PROMOTES)).right
    assert not (await graded("a8=R", "a8=Q", PROMOTES)).right
    assert not (await graded("a8", "a8=Q", PROMOTES)).right


async def test_a_move_two_pieces_could_make_is_no_answer() -> None:
    grade_of = await graded("Rc1", "Rac1", TWO_ROOK_MATES)
    assert (grade_of.right, grade_of.note) == (False, "no legal move found")
    assert (await graded("Rac1", "Rac1", TWO_ROOK_MATES)).right


@pytest.mark.parametrize(
    ("answer", "data", "message"),
    [
        ("Qxf7#", {}, "needs data"),
        ("Qxf7#", {"moves": "1. e4 e4"}, "cannot be set up"),
        ("Qxf7#", {"fen": "not a board"}, "cannot be set up"),
        ("Qh8#", SCHOLARS_MATE, "no legal move in its position"),
    ],
)
async def test_a_broken_task_is_an_error(
    answer: str, data: Mapping[str, str], message: str
) -> None:
    with pytest.raises(GradingError, match=message):
        await graded("Qxf7#", answer, data)
