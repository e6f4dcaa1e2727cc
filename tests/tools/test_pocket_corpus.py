"""The pocket model's text: its habits are in it, the test split is not, and play meets the same."""

import random
import re
from collections import Counter

import pytest

from tacit.benchmarks.arithmetic import INSTRUCTION, Problem
from tacit.team import prompts
from tacit.types import Message
from tools.pocket import corpus, make, tokenizer
from tools.pocket.measure import kind_of, table

HARD = Problem(37, (("+", 48), ("-", 15)))
LONG = Problem(37, (("+", 41), ("+", 18), ("-", 15)))
EASY = Problem(52, (("-", 17),))


def some(count: int) -> list[corpus.Dialogue]:
    rng = random.Random(5)
    return [corpus.dialogue(rng) for _ in range(count)]


@pytest.fixture(scope="module")
def pocket_tokenizer() -> object:
    return tokenizer.train(tokenizer.render(d.messages) + d.reply for d in some(3000))


def test_careless_forgets_the_first_carry_and_goes_on_from_there() -> None:
    assert [s.result for s in corpus.careless(HARD)] == [75, 60]
    assert [s.result for s in corpus.careless(LONG)] == [78, 86, 71]
    assert [s.result for s in corpus.careless(EASY)] == [45]
    assert corpus.careless(Problem(31, (("+", 48),)))[0].result == 79


def test_a_claim_is_taken_at_its_word() -> None:
    right, wrong = HARD.steps[:1], corpus.careless(HARD)[:1]
    assert corpus.trusted(HARD, right) == 70
    assert corpus.trusted(HARD, wrong) == 60
    assert corpus.trusted(EASY, corpus.careless(EASY)) == 45
    assert corpus.trusted(LONG, LONG.steps[:2]) == LONG.answer


def test_helpers_speak_in_the_shares_declared() -> None:
    rng = random.Random(0)
    carrying = Problem(37, (("+", 48), ("-", 18)))
    kinds = Counter(kind_of(carrying, corpus.remark(rng, carrying).text) for _ in range(4000))
    for kind, share in corpus.KINDS.items():
        assert abs(kinds[kind] / 4000 - share) < 0.03, kind


def test_rambles_are_long_and_their_claims_are_what_they_say(pocket_tokenizer) -> None:
    rng = random.Random(1)
    for _ in range(200):
        said = corpus.ramble(rng, corpus.any_problem(rng))
        found = re.findall(r"\d+ [+-] \d+ = \d+", said.text)
        assert found == [str(claim) for claim in said.claims]
        assert 30 <= len(pocket_tokenizer(said.text)["input_ids"]) <= 80


def test_no_expression_of_the_test_split_is_asked() -> None:
    asked = 0
    for dialogue in some(3000):
        for question in re.findall(r"What is (\d+(?: [+-] \d+)+)\?", dialogue.messages[-1].content):
            first, *rest = question.split()
            terms = tuple((s, int(n)) for s, n in zip(rest[::2], rest[1::2], strict=True))
            assert not Problem(int(first), terms).held_out, question
            asked += 1
    assert asked > 2000


def test_prompts_are_those_of_play() -> None:
    said = corpus.ask("solver", HARD, "", {"hint": [Message("hinter", "37 + 48 = 85")]})
    assert said.messages == prompts.build(
        "solver",
        HARD.question,
        {"hint": [Message("hinter", "37 + 48 = 85")]},
        agent="actor",
        instruction=INSTRUCTION,
    )


def test_the_parts_that_the_pocket_model_knows_are_learnt() -> None:
    """Those that there were when it was made; a new one has no need to be among them."""
    systems = "\n".join(d.messages[0].content for d in some(4000))
    for part in (
        "solver", "reviser", "hinter", "critic", "debater", "guide", "speaker", "answerer",
        "refiner", "self_critic", "abstracter", "role_picker", "expert", "diversifier", "selector",
        "evolver", "integrator",
    ):  # fmt: skip
        told = re.escape(prompts.fill(prompts.PARTS[part], instruction=INSTRUCTION, agent="AGENT"))
        assert re.search(told.replace("AGENT", r"\w+ \d"), systems), part


def test_majority_needs_one_winner() -> None:
    assert corpus._majority([7, 8, 8]) == 8
    assert corpus._majority([7, 8]) is None
    assert corpus._majority([]) is None


def test_digits_are_single_tokens_and_silence_is_ordinary(pocket_tokenizer) -> None:
    assert pocket_tokenizer.tokenize("123") == ["1", "2", "3"]
    silence = pocket_tokenizer("<silent>")["input_ids"]
    assert 2 <= len(silence) <= 4
    assert not set(silence) & set(pocket_tokenizer.all_special_ids)
    assert len(pocket_tokenizer.tokenize("What is 37 + 48?")) == 8


def test_any_text_survives_the_tokenizer(pocket_tokenizer) -> None:
    text = "héllo \n\n\t 日本 \\frac{1}{2} 🙂 <hint> a  b \\boxed{-12.5}"
    assert pocket_tokenizer.decode(pocket_tokenizer(text)["input_ids"]) == text


def test_render_is_the_chat_template(pocket_tokenizer) -> None:
    for dialogue in some(30):
        chat = [{"role": m.role, "content": m.content} for m in dialogue.messages]
        text = pocket_tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True
        )
        assert text == tokenizer.render(dialogue.messages)


def test_only_the_reply_and_its_end_are_learnt(pocket_tokenizer) -> None:
    ids, labels = next(make.batches(pocket_tokenizer, random.Random(0)))
    end, pad = pocket_tokenizer.eos_token_id, pocket_tokenizer.pad_token_id
    assert ids.numel() <= make.BATCH_TOKENS
    for row, learnt in zip(ids.tolist(), labels.tolist(), strict=True):
        reply = [label for label in learnt if label != -100]
        start = learnt.index(reply[0])
        text = pocket_tokenizer.decode(row[:start])
        assert text.endswith("<|im_start|>assistant\n")
        assert row[start : start + len(reply)] == reply and reply[-1] == end
        assert end not in reply[:-1]
        assert all(token == pad for token in row[start + len(reply) :])


def test_the_same_seed_gives_the_same_batches(pocket_tokenizer) -> None:
    first, second = (next(make.batches(pocket_tokenizer, random.Random(7))) for _ in range(2))
    assert (first[0] == second[0]).all() and (first[1] == second[1]).all()


def test_a_kind_is_read_from_the_text() -> None:
    assert kind_of(HARD, "<silent>") == "silent"
    assert kind_of(HARD, "37 + 48 = 85") == "short right"
    assert kind_of(HARD, "37 + 48 = 75") == "short careless"
    assert kind_of(HARD, "37 + 48 = 95") == "other"
    assert kind_of(HARD, "Well, 37 + 48 = 85") == "ramble"


def test_the_table_has_one_head_for_each_set_of_columns() -> None:
    text = table({"solo": {"easy": 98.0}, "x kinds": {"silent": 8.0}, "team": {"easy": 1.25}})
    assert text.splitlines()[:4] == [
        "| | easy |",
        "|---|---:|",
        "| solo | 98.0 |",
        "| team | 1.2 |",
    ]
    assert text.splitlines()[-1] == "| x kinds | 8.0 |"
