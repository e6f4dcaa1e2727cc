"""A pack of messages: every token stands where it should and sees what it should."""

import random
from itertools import pairwise

import pytest
import torch

from tacit.fast.pack_gpu import Pack, pack
from tacit.fast.prefixes import forest
from tacit.learn.batch import LEAST_SHARED as LEAST

Said = list[tuple[list[int], list[int]]]


def messages(count: int, group: int) -> Said:
    """Every token is another one, so that each can be told by its id; one group says one token."""
    dice, fresh = random.Random(0), iter(range(10**6))
    made: Said = []
    for number in range(count):
        prompt = [next(fresh) for _ in range(dice.randrange(1, 9))]
        for _ in range(group):
            length = 1 if number == 1 else dice.randrange(1, 7)
            made.append((prompt, [next(fresh) for _ in range(length)]))
    return made


def conversations(count: int, turns: int) -> Said:
    """Prompts that begin alike and go on from each other, in no order; some say one token."""
    dice, fresh = random.Random(1), iter(range(10**6))
    made: Said = []
    question = [next(fresh) for _ in range(LEAST)]
    for _ in range(count):
        prompt = [*question, next(fresh)]
        for _ in range(turns):
            output = [next(fresh) for _ in range(dice.randrange(1, 5))]
            made.append(([*prompt, next(fresh)], output))
            prompt += [next(fresh) for _ in range(dice.randrange(1, 2 * LEAST))]
        made += [(prompt, [next(fresh)]), (prompt, [next(fresh), next(fresh)])]
    dice.shuffle(made)
    return made


def seen_by_each(packed: Pack) -> list[list[int]]:
    """Which ids the attention of each place sees, in their order."""
    ids = packed.ids_T.tolist()
    keys = range(len(ids)) if packed.copies is None else packed.copies.tokens_K.tolist()
    seen = []
    asking, asked = pairwise(packed.asking.ends.tolist()), pairwise(packed.asked.ends.tolist())
    for (first, last), (start, end) in zip(asking, asked, strict=True):
        for place in range(first, last):
            seen.append([ids[key] for key in keys[start : end - (last - 1 - place)]])
    return seen


SAID = [messages(5, 1), messages(5, 2), messages(5, 4), conversations(4, 3)]


@pytest.mark.parametrize("said", SAID)
def test_each_output_token_is_predicted_from_its_prompt_and_what_came_before(said: Said) -> None:
    packed = pack(said, torch.device("cpu"))
    seen, ids, positions = seen_by_each(packed), packed.ids_T.tolist(), packed.positions_T.tolist()
    places = iter(packed.predicts_N.tolist())
    for prompt, output in said:
        for number in range(len(output)):
            place = next(places)
            before = [*prompt, *output[:number]]
            assert ids[place] == before[-1]
            assert positions[place] == len(before) - 1
            assert seen[place] == before
    assert next(places, None) is None


@pytest.mark.parametrize("said", SAID[1:])
def test_every_copy_belongs_to_one_token(said: Said) -> None:
    packed = pack(said, torch.device("cpu"))
    assert packed.copies is not None
    tokens, order = packed.copies.tokens_K, packed.copies.order_K
    assert order.sort().values.tolist() == list(range(len(tokens)))
    ends = packed.copies.ends_T.tolist()
    assert len(ends) == len(packed.ids_T) and ends[-1] == len(tokens)
    for token, (start, end) in enumerate(pairwise([0, *ends])):
        assert end > start and set(tokens[order[start:end]].tolist()) == {token}


def test_a_shared_prompt_is_there_once_and_nothing_is_padded() -> None:
    said = messages(5, 4)
    prompts = {tuple(prompt) for prompt, _ in said}
    tokens = sum(map(len, prompts)) + sum(len(output) - 1 for _, output in said)
    packed = pack(said, torch.device("cpu"))
    assert len(packed.ids_T) == tokens == packed.asking.ends[-1]
    lengths = packed.asking.ends.diff()
    assert lengths.min() > 0 and lengths.max() == packed.asking.longest


def test_prompts_that_go_on_from_each_other_are_computed_once() -> None:
    question, said = list(range(LEAST)), list(range(100, 100 + LEAST))
    first, later = [*question, 1], [*question, *said, 2]
    other = [*question, *said[:-1], 3]
    packed = pack([(later, [4, 5]), (first, [6, 7]), (other, [8])], torch.device("cpu"))
    assert sorted(packed.ids_T.tolist()) == sorted([*question, 1, 6, *said, 2, 4, *said[:-1], 3])
    beside = [([9, *question], [1]), (list(range(LEAST - 1)), [2]), (first, [3])]
    assert pack(beside, torch.device("cpu")).copies is None


def test_a_chain_may_be_long() -> None:
    whole = list(range(1200 * LEAST))
    said: Said = [(whole[: LEAST * (n + 1)], [-1, -2]) for n in range(1200)]
    grown = forest(said)
    assert len(grown.segments) == 2 * 1200 - 1
    assert sum(len(segment.ids) for segment in grown.segments) == len(whole) + 1200


def test_messages_of_one_token_share_nothing_but_their_prompt() -> None:
    packed = pack([([1, 2, 3], [4]), ([1, 2, 3], [5])], torch.device("cpu"))
    assert packed.ids_T.tolist() == [1, 2, 3] and packed.predicts_N.tolist() == [2, 2]
    assert packed.asking.ends.tolist() == [0, 3] == packed.asked.ends.tolist()
