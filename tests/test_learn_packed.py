"""A pack of messages: every token stands where it should and sees what it should."""

import random
from itertools import pairwise

import pytest
import torch

from tacit.learn.packed import Pack, pack

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


def seen_by_each(packed: Pack) -> list[set[int]]:
    """Which ids the attention of each place sees, by the two calls that it consists of."""
    ids = packed.ids_T.tolist()
    seen: list[set[int]] = [set() for _ in ids]
    ends = packed.segments.ends.tolist()
    for first, last in pairwise(ends):
        for place in range(first, last):
            seen[place] |= set(ids[first : place + 1])
    if packed.shared is not None:
        keys, outputs, asked, given = packed.shared
        assert given.ends[-1] == keys and asked.ends[-1] == len(ids) - outputs
        for number in range(len(asked.ends) - 1):
            a, b = asked.ends[number : number + 2].tolist()
            c, d = given.ends[number : number + 2].tolist()
            for place in range(outputs + a, outputs + b):
                seen[place] |= set(ids[c:d])
    return seen


@pytest.mark.parametrize("group", [1, 2, 4])
def test_each_output_token_is_predicted_from_its_prompt_and_what_came_before(group: int) -> None:
    said = messages(5, group)
    packed = pack(said, torch.device("cpu"))
    seen, ids, positions = seen_by_each(packed), packed.ids_T.tolist(), packed.positions_T.tolist()
    places = iter(packed.predicts_N.tolist())
    for prompt, output in said:
        for number in range(len(output)):
            place = next(places)
            before = [*prompt, *output[:number]]
            assert ids[place] == before[-1]
            assert positions[place] == len(before) - 1
            assert seen[place] == set(before)
    assert next(places, None) is None


def test_a_shared_prompt_is_there_once_and_nothing_is_padded() -> None:
    said = messages(5, 4)
    prompts = {tuple(prompt) for prompt, _ in said}
    tokens = sum(map(len, prompts)) + sum(len(output) - 1 for _, output in said)
    packed = pack(said, torch.device("cpu"))
    assert len(packed.ids_T) == tokens == packed.segments.ends[-1]
    lengths = packed.segments.ends.diff()
    assert lengths.min() > 0 and lengths.max() == packed.segments.longest


def test_messages_of_one_token_share_nothing_but_their_prompt() -> None:
    packed = pack([([1, 2, 3], [4]), ([1, 2, 3], [5])], torch.device("cpu"))
    assert packed.ids_T.tolist() == [1, 2, 3] and packed.predicts_N.tolist() == [2, 2]
    assert packed.shared is None
