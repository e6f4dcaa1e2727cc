"""Tasks whose agents know different things: who is shown what, and who ought to speak."""

import json
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from random import Random

import pytest

from tacit.benchmarks.multihop import HOLDERS, deal
from tacit.benchmarks.split_gsm8k import NOTES, sentences
from tacit.errors import DataError
from tacit.tasks import load_tasks
from tacit.types import Task
from tests.tasks.made_up import CAN_IT, HIDDEN, multihop, write_files


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("views"))


def joined(text: str) -> str:
    return "".join(text.split())


# --- GSM8K with notes


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """Forty problems with two facts each, and one that is too short to cut."""
    text = "Ann has {0} red pens.  She gives {1} of them to Bob. How many of {0} are left?"
    questions = [text.format(n + 50, n) for n in range(40)]
    rows = [{"question": one, "answer": "#### 50"} for one in (*questions, "How many? Some.")]
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k/test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_what_is_cut_out_of_a_problem_is_one_of_the_notes(problems: Path) -> None:
    tasks = load_tasks("split_gsm8k", split="test", folder=problems)
    assert len(tasks) == 40 and {task.level for task in tasks} == {"needed", "free"}
    check_cut(tasks, load_tasks("gsm8k", split="test", folder=problems))


def check_cut(tasks: list[Task], whole: list[Task]) -> None:
    originals = {task.id.rpartition("/")[2]: task for task in whole}
    for task in tasks:
        original = originals[task.id.rpartition("/")[2]]
        notes = [line.removeprefix("- ") for line in task.views["hinter"].splitlines()]
        own = {*notes} & {*sentences(original.question)}
        assert (task.answer, task.views.keys()) == (original.answer, {"hinter"})
        if task.level == "needed":
            assert len(notes) == NOTES and own == {task.data["fact"]}
            assert task.data["fact"] not in task.question
        else:
            assert (task.question, own) == (" ".join(original.question.split()), set())
        assert task.question == " ".join(task.question.split()), "blanks would tell which is cut"
        assert task.data["speak"] == {"hinter": task.level == "needed"}


def check_blind(blind: list[Task], seeing: list[Task]) -> None:
    for one, other in zip(blind, seeing, strict=True):
        assert one.question == sentences(other.question)[-1]
        assert joined(one.views["actor"] + one.question) == joined(other.question)
        assert one.views["actor"] and one.views["hinter"] == other.views["hinter"]
        assert (one.data, one.level) == (other.data, other.level)


def test_a_blind_helper_sees_what_is_asked_and_the_actor_the_rest(problems: Path) -> None:
    seeing, blind = (
        load_tasks(name, split="test", folder=problems)
        for name in ("split_gsm8k", "split_gsm8k_blind")
    )
    check_blind(blind, seeing)


def test_the_cut_is_that_of_the_recorded_experiments(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(data_dir))
    tasks = load_tasks("split_gsm8k", split="test")
    assert Counter(task.level for task in tasks) == {"needed": 526, "free": 530}
    whole = load_tasks("gsm8k", split="test")
    originals = {task.id.rpartition("/")[2]: task.question for task in whole}

    def recorded(task: Task) -> str:
        """The question with the blanks that it had in the recorded experiments."""
        original = originals[task.id.rpartition("/")[2]]
        cut = original.replace(task.data["fact"], "", 1).replace("  ", " ").strip()
        return cut if task.level == "needed" else original

    assert all(" ".join(recorded(task).split()) == task.question for task in tasks)
    cuts = repr([(recorded(t), t.level, t.views["hinter"], t.data["fact"]) for t in tasks])
    assert blake2b(cuts.encode(), digest_size=8).hexdigest() == "22872a56b7206ffc"
    check_cut(tasks, whole)
    check_blind(load_tasks("split_gsm8k_blind", split="test"), tasks)


# --- paragraphs in five hands


@pytest.mark.parametrize("paragraphs", [6, 8, 10, 20])
@pytest.mark.parametrize("supporting", [2, 4, 5])
def test_hands_are_of_equal_size_and_hold_one_supporting_paragraph_at_most(
    paragraphs: int, supporting: int
) -> None:
    rows = multihop(0, paragraphs, supporting)["paragraphs"]
    for seed in range(50):
        hands = deal(rows, Random(seed))
        sizes = [len(hand) for hand in hands.values()]
        assert tuple(hands) == HOLDERS and max(sizes) - min(sizes) <= 1
        dealt = [paragraph["text"] for hand in hands.values() for paragraph in hand]
        assert sorted(dealt) == sorted(row["text"] for row in rows)
        assert max(sum(p["supporting"] for p in hand) for hand in hands.values()) == 1


def test_neither_place_nor_size_tells_who_holds_a_supporting_paragraph() -> None:
    """Two of eight paragraphs: every holder has one in 2/5 of the deals, large hands or small."""
    rows, deals = multihop(0)["paragraphs"], 3000
    held, by_size, first = Counter[str](), Counter[int](), 0
    for seed in range(deals):
        for name, hand in deal(rows, Random(seed)).items():
            holds = any(paragraph["supporting"] for paragraph in hand)
            held[name] += holds
            by_size[len(hand)] += holds
            first += holds and len(hand) == 2 and hand[0]["supporting"]
    assert all(abs(count / deals - 0.4) < 0.04 for count in held.values())
    # Three of the five hands have two paragraphs.
    assert abs(by_size[2] / (3 * deals) - 0.4) < 0.04
    assert abs(first / by_size[2] - 0.5) < 0.04


def test_only_data_tells_which_paragraphs_are_supporting(made_up: Path) -> None:
    tasks = load_tasks("split_hotpotqa", split="validation", folder=made_up)
    assert [task.id for task in tasks[:1]] == ["split_hotpotqa/validation/705"]
    assert tasks == load_tasks("split_hotpotqa", split="validation", folder=made_up)
    assert len({tuple(task.data["speak"].values()) for task in tasks}) == 10  # 5 over 2
    for task in tasks:
        shown = [task.question, task.instruction, *task.views.values()]
        assert not any("supporting" in text.casefold() for text in shown)
        number = task.id.rpartition("/")[2]
        for name, view in task.views.items():
            holds = f"Town {number} (Inland): Text 0." in view.split("\n\n")
            # The question names the first supporting title, without what stands in brackets.
            assert task.data["named"][name] == holds
            assert task.data["speak"][name] == (holds or "Twin 1: Text 1." in view.split("\n\n"))


def test_more_supporting_paragraphs_than_holders_are_refused() -> None:
    with pytest.raises(ValueError, match="larger than population"):
        deal(multihop(0, 10, 6)["paragraphs"], Random(0))


def test_the_original_rows_are_dealt(data_dir: Path) -> None:
    for name, most in (("split_hotpotqa", 2), ("split_2wiki", 4), ("split_musique", 4)):
        for task in load_tasks(name, split="train+validation+test", folder=data_dir):
            assert 2 <= sum(task.data["speak"].values()) <= most
            assert all(task.views[holder] for holder in HOLDERS)
            assert all(task.data["speak"][h] for h, named in task.data["named"].items() if named)


# --- facts and hidden profiles


def test_the_facts_of_strategyqa_are_the_helpers(made_up: Path, tmp_path: Path) -> None:
    (task,) = load_tasks("strategyqa_facts", split="train", folder=made_up)
    assert task.views == {"hinter": "\n".join(f"- {fact}" for fact in CAN_IT["facts"])}
    assert task.question == CAN_IT["question"] and "speak" not in task.data
    (write_files(tmp_path) / "strategyqa/dev.json").write_text(
        '[{"question": "?", "answer": true, "facts": "One."}]'
    )
    with pytest.raises(DataError, match="`facts` must be a list"):
        load_tasks("strategyqa_facts", split="test", folder=tmp_path)


def test_each_agent_of_a_hidden_profile_has_its_fact(made_up: Path) -> None:
    (task,) = load_tasks("hiddenbench", split="test", folder=made_up)
    facts = HIDDEN["hidden_information"]
    assert [*task.views.items()] == [(f"holder {n}", fact) for n, fact in enumerate(facts, 1)]
    assert all(text in task.question for text in HIDDEN["shared_information"])
    assert not any(fact in task.question for fact in facts)
    assert all(f"- {choice}" in task.question for choice in task.data["choices"])
