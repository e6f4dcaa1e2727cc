r"""Chess: checkmate in one, and the grader of chess moves.

The position is `task.data["fen"]`, or the game so far in `task.data["moves"]`. The files' lists of
scored moves name the answer, so they are not used.

The grader compares moves on the board. It reads SAN with or without its marks (23. Qh7#), long
algebraic and UCI moves, and castling with zeros: from the last \boxed{…} if there is one, else the
last legal move that the text does not turn down ("not Qh8+"). If the reference is checkmate, any
move that mates is right. A move that two pieces could make is not a legal answer, nor is a choice
of two ("Qh7 or Qh8").
"""

import re
from functools import lru_cache

import chess

from tacit.benchmarks.benchmark import Benchmark, Fields, Split
from tacit.errors import GradingError
from tacit.graders.final_answer import closed, denied, last_boxed
from tacit.tasks.source import Row
from tacit.types import Grade, Task


def _row(row: Row) -> Fields:
    moves = row["input"].strip()
    question = f"After these moves of a chess game, find the move that gives mate:\n\n{moves}"
    return {"question": question, "answer": row["target"], "data": {"moves": moves}}


_FILE = "checkmate_in_one/task.json"
_FIRST_250 = "checkmate_in_one/meta_prompting_250.jsonl"
CHECKMATE_IN_ONE = Benchmark(
    name="checkmate_in_one",
    grader="chess",
    description="find the one mating move; test250 is the first 250 of test, train the others",
    licence="Apache-2.0",
    splits={
        "train": Split(file=_FILE, rows=3250, without="test250", canaried=True),
        "test": Split(file=_FILE, rows=3500, canaried=True),
        "test250": Split(file=_FIRST_250, rows=250, canaried=True),
    },
    parse=_row,
)

_MOVE = re.compile(
    r"(?<![A-Za-z0-9])(?:[O0o]-[O0o](?:-[O0o])?"
    r"|[KQRBN]?[a-h]?[1-8]?[x:-]?[a-h][1-8](?:=?[QRBNqrbn])?)(?![A-Za-z0-9])"
)
_OR = re.compile(r"[^\w.;:\n]*(?:\bn?or\b|/)[^\w.;:\n]*(?:\d+\.+\s*)?")
_MOVE_NUMBER = re.compile(r"\b\d+\.+\s*")
_RESULTS = {"1-0", "0-1", "1/2-1/2", "*"}
_TEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")


async def grade(task: Task, text: str) -> Grade:
    """Right iff the move found is the reference, or mates where the reference does."""
    board = position(task)
    wanted = last_move(board, task.answer)
    if wanted is None:
        raise GradingError(f"the reference {task.answer!r} is no legal move in its position")
    boxed = last_boxed(text)
    move = last_move(board, boxed or text)
    if move is None:
        note = "the boxed text is no legal move" if boxed else "no legal move found"
        return Grade(reward=0.0, right=False, answer=boxed, note=note)
    right = move == wanted or (_mates(board, wanted) and _mates(board, move))
    return Grade(reward=float(right), right=right, answer=board.san(move))


def read(task: Task, text: str) -> str:
    """The move that the text gives, as UCI; empty if there is none."""
    move = last_move(position(task), text)
    return move.uci() if move else ""


def position(task: Task) -> chess.Board:
    """The board on which the move is to be made."""
    fen, moves = str(task.data.get("fen", "")), str(task.data.get("moves", ""))
    if not fen and not moves:
        raise GradingError('a chess task needs data["fen"] or data["moves"]')
    return chess.Board(_replay(fen, moves))


@lru_cache(maxsize=8192)
def _replay(fen: str, moves: str) -> str:
    try:
        board = chess.Board(fen or chess.STARTING_FEN)
        for san in _MOVE_NUMBER.sub("", moves).split():
            if san not in _RESULTS:
                board.push_san(san)
    except ValueError as error:
        raise GradingError(f"the position cannot be set up: {error}") from error
    return board.fen()


def last_move(board: chess.Board, text: str) -> chess.Move | None:
    """The last legal move that the text does not turn down; None if it is a choice of two."""
    plain = _TEX.sub(r"\1", closed(text))
    stated = [match for match in _MOVE.finditer(plain) if not denied(plain, match.start())]
    legal = [(m, move) for m in stated if (move := read_move(board, m[0]))]
    if not legal:
        return None
    (first, other), (last, move) = legal[-2:][0], legal[-1]
    return None if other != move and _OR.fullmatch(plain, first.end(), last.start()) else move


def read_move(board: chess.Board, written: str) -> chess.Move | None:
    """One legal move from SAN, long algebraic or UCI, or None."""
    if written[0] in "O0o":
        written = written.replace("0", "O").replace("o", "O")
    try:
        return board.parse_san(written.replace(":", "x"))
    except ValueError:
        pass
    try:
        move = chess.Move.from_uci(re.sub(r"[x:=-]|^[KQRBN](?=[a-h][1-8])", "", written).lower())
    except ValueError:
        return None
    return move if move in board.legal_moves else None


def _mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    mate = board.is_checkmate()
    board.pop()
    return mate
