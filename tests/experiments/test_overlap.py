"""The rules that need no model, on tasks made up here."""

from pathlib import Path

import pytest

from experiments.keep import RESULTS
from experiments.overlap import (
    Rarity,
    best_line,
    by_title,
    by_words,
    judge,
    keep,
    notes_of,
    scores,
    shares,
    words,
)
from tacit import Task

RARE = Rarity([{"cat", "sat"}, {"cat", "mat"}, {"cat", "dog"}])


def test_words_are_compared_without_their_endings_and_common_ones() -> None:
    assert words("The cats were sitting on 3 mats") == {"cat", "sitt", "mat"}
    assert notes_of("A: one\ntwo\n\nB: three") == ["A: one\ntwo", "B: three"]
    assert notes_of("- one\n- two") == ["- one", "- two"]


def test_rare_words_and_titles_count() -> None:
    assert RARE.of("cat") < RARE.of("mat") < RARE.of("zebra")
    question = words("Which dog sat by the cat?")
    assert by_words(question, "a cat", RARE) < by_words(question, "a dog", RARE)
    assert by_title(question, "Dog: an animal", RARE) > by_title(question, "Zebra: a dog", RARE)


def test_the_line_parts_those_who_are_needed_from_the_others() -> None:
    scored = [(True, 3.0), (True, 2.0), (False, 1.0), (False, 2.5)]
    assert shares(scored, best_line(scored)) in ((0.5, 0.0), (1.0, 0.5))
    task = Task(
        id="1", question="Who owns the dog?", answer="Ann", grader="span",
        views={"holder 1": "Dog: owned by Ann", "holder 2": "Cat: asleep"},
        data={"speak": {"holder 1": True, "holder 2": False}},
    )  # fmt: skip
    (needed, high), (idle, low) = scores([task], RARE, "words")
    assert needed and not idle and high > low


@pytest.mark.slow
def test_on_split_gsm8k_it_is_a_strong_rival(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(data_dir))
    found = judge("split_gsm8k_blind", "words")
    assert 0.87 < found.auc < 0.92 and found.silent_idle > 0.7 and found.silent_needed < 0.35
    keep("split_gsm8k_blind", tmp_path / "rules" / "blind.json")
    made = (tmp_path / "rules" / "blind.json").read_text()
    assert made == (RESULTS / "rules" / "split-gsm8k-blind.json").read_text()
