"""The nouns refuse what cannot be, and add up."""

import math
from dataclasses import replace

import pytest

from tacit.types import Call, Episode, Grade, Stop, Usage


def call(generated: int = 0, *, silent: bool = False, path: int = 0, prompt: int = 0) -> Call:
    usage = Usage(prompt=prompt, generated=generated)
    return Call(
        agent="a",
        model="m",
        messages=(),
        text="",
        stop=Stop.EOS,
        usage=usage,
        silent=silent,
        path_tokens=path,
    )


def test_a_log_probability_for_every_id_or_none_at_all() -> None:
    with pytest.raises(ValueError, match="a: 2 output ids but 1 log-probabilities"):
        Call(
            agent="a",
            model="m",
            messages=(),
            text="",
            stop=Stop.EOS,
            usage=Usage(),
            output_ids=(1, 2),
            logprobs=(-0.5,),
        )


@pytest.mark.parametrize("reward", [-0.1, 1.1, math.nan, math.inf])
def test_a_reward_lies_between_nought_and_one(reward: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        Grade(reward=reward, right=False)


def test_an_episode_adds_up() -> None:
    calls = (call(5, prompt=7, path=5), call(2, silent=True, path=7), call(3, prompt=1, path=8))
    episode = Episode(task_id="t", sample=0, calls=calls)
    assert episode.usage == Usage(prompt=8, generated=10) and episode.usage.total == 18
    assert episode.turns == 2 and episode.path_tokens == 8
    assert Episode(task_id="t", sample=0).path_tokens == 0


def test_usage_adds_every_direction() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)


def test_a_call_says_how_likely_all_was_that_it_said() -> None:
    said = replace(call(2), output_ids=(1, 2), logprobs=(-0.5, -0.25))
    assert said.logprob == -0.75
    assert call(2).logprob is None, "nobody knows"
    assert replace(call(2), logprob=-3.0).logprob == -3.0, "a server told"
