"""From episodes to a batch, on episodes made by hand: who is compared with whom, and for what."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tacit.config import Config, SilenceConfig
from tacit.economy.group import Group
from tacit.economy.reward import Multipliers
from tacit.errors import RunError
from tacit.learn.credit import Batch, Credit, weighted_mean
from tacit.learn.metrics import empty_share, step_metrics
from tacit.silence import open_silence
from tacit.silence.arms import PRIOR_PLAYS
from tacit.silence.step import choice_step
from tacit.types import Call, Choice, Episode, Grade, Stop, Usage

PROMPT, MARKER = (7, 8, 9), (1, 2)
ROLES = {"hinter": "hinter", "critic": "critic"}


def call(agent: str, tokens: int = 3, **changed: Any) -> Call:
    trained = agent != "actor"
    return Call(
        **{
            "agent": agent,
            "model": "tiny",
            "messages": (),
            "text": f"{agent} says a word",
            "stop": Stop.EOS,
            "usage": Usage(prompt=10, generated=tokens),
            "prompt_ids": PROMPT,
            "output_ids": tuple(range(20, 20 + tokens)),
            "logprobs": (-0.5,) * tokens,
            "policy": "team" if trained else "",
            **changed,
        }
    )


def silence(choice: Choice, p: float, agent: str = "hinter") -> Call:
    return call(
        agent,
        2,
        silent=True,
        text="",
        output_ids=MARKER,
        choice=choice,
        silence_logprob=math.log(p),
    )


def episode(reward: float, *calls: Call, sample: int = 0, task: str = "t") -> Episode:
    return Episode(
        task_id=task, sample=sample, calls=calls, grade=Grade(reward=reward, right=reward >= 0.5)
    )


def group(*spoken: Episode, silent: tuple[Episode, ...] = (), task: str = "t") -> Group:
    return Group(task_id=task, level="easy", episodes=spoken, silent=silent)


def judged(
    *played: Group,
    roles: dict[str, str] = ROLES,
    lambda_tokens: float = 0.0,
    advantage: str = "grpo",
    sequence: str = "message",
    user_parts: Any = None,
    **silence: Any,
) -> Batch:
    """By `arms` where there is a silent arm, by `floor` where a floor is given."""
    arms = any(one.silent for one in played)
    exploration = "arms" if arms else "floor" if "floor" in silence else "none"
    config = Config.model_validate(
        {
            "budget": {"tokens": 10.0},
            "silence": {"exploration": exploration, **silence},
            "train": {"advantage": advantage},
            "loss": {"sequence": sequence},
        }
    )
    credit = Credit(
        config=config,
        silence=open_silence(config.silence, choosing=True),
        roles=roles,
        user_parts=user_parts or {},
    )
    return credit(played, Multipliers(tokens=lambda_tokens))


def test_a_role_is_compared_where_it_spoke_and_an_episode_counts_once() -> None:
    """The hinter spoke in episodes 0, 1, 2 (twice in 0), the critic in 1 and 3."""
    played = group(
        episode(1.0, call("hinter"), call("actor"), call("hinter", 4)),
        episode(0.0, call("hinter"), call("critic")),
        episode(0.0, call("hinter")),
        episode(1.0, call("critic")),
    )
    batch = judged(played, advantage="dr_grpo")
    (credited,) = batch.groups
    third = 1 / 3
    assert credited.advantages["hinter"] == pytest.approx((1 - third, -third, -third, 0.0))
    assert credited.advantages["critic"] == pytest.approx((0.0, -0.5, 0.0, 0.5))
    found = [(len(row.output_ids), row.advantage) for row in batch.rows]
    assert found == [
        (3, pytest.approx(1 - third)),
        (4, pytest.approx(1 - third)),
        (3, pytest.approx(-third)),
        (3, pytest.approx(-0.5)),
        (3, pytest.approx(-third)),
        (3, pytest.approx(0.5)),
    ]


def test_frozen_agents_give_no_rows() -> None:
    batch = judged(group(episode(1.0, call("actor")), episode(0.0, call("hinter"))))
    assert [row.policy for row in batch.rows] == ["team"]
    assert judged(group(episode(1.0, call("hinter"))), roles={"critic": "critic"}).rows == ()


def test_agents_of_one_role_share_its_group() -> None:
    roles = {"speaker 1": "speaker", "speaker 2": "speaker"}
    both = [episode(r, call("speaker 1"), call("speaker 2")) for r in (1.0, 0.0)]
    batch = judged(group(*both), roles=roles, advantage="dr_grpo")
    assert batch.groups[0].advantages == {"speaker": (0.5, -0.5)}
    assert [row.advantage for row in batch.rows] == [0.5, 0.5, -0.5, -0.5]


def test_groups_are_apart_unless_the_baseline_is_the_whole_batch() -> None:
    easy = group(*(episode(1.0, call("hinter")) for _ in range(2)), task="easy")
    hard = group(*(episode(0.0, call("hinter"), task="hard") for _ in range(2)), task="hard")
    apart = judged(easy, hard)
    assert [row.advantage for row in apart.rows] == [0.0] * 4
    dead = step_metrics(apart.groups)
    assert (dead["groups/too_easy"], dead["groups/too_hard"]) == (0.5, 0.5)
    assert [row.advantage > 0 for row in judged(easy, hard, advantage="batch").rows] == [
        True,
        True,
        False,
        False,
    ]


def test_cost_enters_the_reward_of_those_who_solved() -> None:
    played = group(
        episode(1.0, call("hinter", 20), call("actor", 5)),
        episode(1.0, call("hinter", 5), call("actor", 5)),
        episode(0.0, call("hinter", 20), call("actor", 5)),
    )
    (credited,) = judged(played, lambda_tokens=0.1, advantage="dr_grpo").groups
    totals = [part.total for part in credited.rewards]
    assert totals == pytest.approx([1 - 0.1 * 25 / 10, 1 - 0.1 * 10 / 10, 0.0])
    mean = sum(totals) / 3
    assert credited.advantages["hinter"] == pytest.approx([t - mean for t in totals])
    assert credited.tokens == pytest.approx((25 + 10 + 25) / 3)
    assert credited.turns == 2.0


def spoken(reward: float, p: float, tokens: int = 6, prompt: tuple[int, ...] = PROMPT) -> Episode:
    hint = call(
        "hinter", tokens, choice=Choice.SPEAK, silence_logprob=math.log(p), prompt_ids=prompt
    )
    return episode(reward, hint, call("actor", 4))


def quiet(reward: float, p: float, prompt: tuple[int, ...] = PROMPT) -> Episode:
    silent = replace(silence(Choice.SILENT, p), prompt_ids=prompt)
    return episode(reward, silent, call("actor", 4))


def test_arms_give_one_choice_a_context_with_its_gain_and_p() -> None:
    played = group(
        spoken(1.0, 0.25), spoken(0.0, 0.25), spoken(0.0, 0.25), silent=(quiet(1.0, 0.25),)
    )
    batch = judged(played, advantage="dr_grpo")
    (one,) = batch.choices
    assert one.gain == pytest.approx(1.0 - 1 / 3)
    assert one.log_p == pytest.approx(math.log(0.25))
    assert (one.prompt_ids, one.marker_ids, one.policy) == (PROMPT, MARKER, "team")
    assert [row.marker for row in batch.rows] == [MARKER] * 3
    assert batch.groups[0].gain == pytest.approx(one.gain)


def test_the_silent_arm_is_charged_but_is_no_row_and_no_part_of_the_baseline() -> None:
    played = group(spoken(1.0, 0.5, 16), spoken(1.0, 0.5, 6), silent=(quiet(1.0, 0.5),))
    batch = judged(played, lambda_tokens=0.1, advantage="dr_grpo")
    assert all(not row.silent and row.output_ids != MARKER for row in batch.rows)
    assert [row.advantage for row in batch.rows] == pytest.approx([-0.05, 0.05])
    silent, loud = 1 - 0.1 * 6 / 10, 1 - 0.1 * (20 + 10) / 2 / 10
    assert batch.choices[0].gain == pytest.approx(silent - loud)


def test_the_expected_cost_is_the_policys_own_under_arms() -> None:
    played = group(spoken(1.0, 0.75, 16), spoken(0.0, 0.75, 6), silent=(quiet(1.0, 0.75),))
    (credited,) = judged(played).groups
    assert credited.tokens == pytest.approx(0.75 * (2 + 4) + 0.25 * (20 + 10) / 2)
    assert credited.turns == pytest.approx(0.75 * 1 + 0.25 * 2)


def test_several_silent_plays_are_averaged() -> None:
    arms = (quiet(1.0, 0.5), quiet(0.0, 0.5), quiet(0.0, 0.5), quiet(0.0, 0.5))
    (one,) = judged(group(spoken(0.0, 0.5), silent=arms)).choices
    assert one.gain == pytest.approx(0.25)


def test_silence_is_judged_where_it_was_played() -> None:
    """Three contexts of one task, as after three drafts: silence was played in two of them."""
    first, other, alone = (1, 1), (2, 2), (3, 3)
    played = group(
        spoken(0.0, 0.5, prompt=first),
        spoken(1.0, 0.5, prompt=other),
        spoken(1.0, 0.5, prompt=alone),
        silent=(quiet(1.0, 0.5, first), quiet(0.0, 0.5, other)),
    )
    batch = judged(played, advantage="dr_grpo", solved_weight=0.0)
    whole = 1 / 2 - 2 / 3
    drawn = [whole + (own - whole) / (1 + PRIOR_PLAYS) for own in (1.0, -1.0, 0.5 - 1.0)]
    assert [one.gain for one in batch.choices] == pytest.approx(drawn)
    weights = [row.advantage / a for row, a in zip(batch.rows, (-2 / 3, 1 / 3, 1 / 3), strict=True)]
    assert weights == pytest.approx([0.0, 1.0, 0.5])


def test_lucky_plays_do_not_outweigh_a_price_that_counts_in_full() -> None:
    """Speaking costs 0.1 in six contexts of eight and repairs in one: it pays, and is asked for."""
    contexts = [(i, i) for i in range(8)]
    loud, alone = [1.0] * 7 + [0.0], [1.0] * 6 + [0.0, 0.0]
    played = group(
        *(spoken(r, 0.5, 8, prompt) for r, prompt in zip(loud, contexts, strict=True)),
        silent=tuple(quiet(r, 0.5, prompt) for r, prompt in zip(alone, contexts, strict=True)),
    )
    batch = judged(played, lambda_tokens=1 / 6)
    gain = torch.tensor([one.gain for one in batch.choices])
    step = choice_step(torch.tensor(0.5), gain, SilenceConfig(coefficient=2.0))
    assert gain.mean() < 0 and step.mean() < 0
    assert gain[0] > gain[6]


def drafted(then: Episode, **draft: Any) -> Episode:
    return replace(then, calls=(call("critic", **draft), *then.calls))


def test_who_spoke_before_the_choice_is_judged_by_both_arms() -> None:
    """The critic drafts, the hinter may speak then; silence is right after the first draft."""
    p, first, other = 0.25, (1, 1), (2, 2)
    pairs = [(first, 0.0, 1.0), (other, 1.0, 0.0)]
    played = group(
        *(drafted(spoken(loud, p, prompt=context)) for context, loud, _ in pairs),
        silent=tuple(drafted(quiet(alone, p, context)) for context, _, alone in pairs),
    )
    (credited,) = judged(played, advantage="dr_grpo").groups
    assert credited.advantages["hinter"] == pytest.approx((-0.5, 0.5)), "the content's own arm"
    assert credited.advantages["critic"] == pytest.approx((-0.25, 0.25)), "0.25 against 0.75"


def test_an_earlier_agent_is_judged_by_its_own_silent_play_though_the_chooser_reads_nothing() -> (
    None
):
    """Two drafts, one prompt of the hinter: silence is right after the first draft alone."""
    drafts = [{"text": "good", "output_ids": (5, 5, 5)}, {"text": "bad", "output_ids": (6, 6, 6)}]
    played = group(
        *(drafted(spoken(0.0, 0.75), **draft) for draft in drafts),
        silent=tuple(
            drafted(quiet(alone, 0.75), **draft)
            for alone, draft in zip((1.0, 0.0), drafts, strict=True)
        ),
    )
    batch = judged(played, advantage="dr_grpo")
    assert batch.groups[0].advantages["critic"] == pytest.approx((0.375, -0.375))
    (one,) = batch.choices
    assert one.gain == pytest.approx(0.5)


def test_who_has_no_silent_play_of_its_own_is_compared_by_all_of_them() -> None:
    """As with fewer plays of silence than of speech: the critic's drafts are all alike good."""
    contexts = [(i, i) for i in range(4)]
    played = group(
        *(drafted(spoken(0.0, 0.5, prompt=context)) for context in contexts),
        silent=tuple(drafted(quiet(1.0, 0.5, context)) for context in contexts[:2]),
    )
    (credited,) = judged(played, advantage="dr_grpo").groups
    assert credited.advantages["critic"] == pytest.approx((0.0,) * 4)


def test_who_speaks_again_after_the_choice_is_judged_by_what_was_said() -> None:
    def reviewed(reward: float) -> Episode:
        then = drafted(spoken(reward, 0.5))
        return replace(then, calls=(*then.calls, call("critic")))

    played = group(reviewed(1.0), reviewed(0.0), silent=(drafted(quiet(1.0, 0.5)),))
    (credited,) = judged(played, advantage="dr_grpo").groups
    assert credited.advantages["critic"] == pytest.approx((0.5, -0.5))


def test_a_chooser_that_is_asked_twice_has_a_choice_in_each_context() -> None:
    def twice(*prompts: tuple[int, ...]) -> Episode:
        asked = [
            call("hinter", choice=Choice.SPEAK, silence_logprob=math.log(0.5), prompt_ids=prompt)
            for prompt in prompts
        ]
        return episode(1.0, *asked)

    batch = judged(group(twice((1, 1), (2, 2)), silent=(quiet(0.0, 0.5, (1, 1)),)))
    assert [one.gain for one in batch.choices] == pytest.approx([-1.0, -1.0])


def test_a_policy_that_chooses_well_scores_what_it_would() -> None:
    """Silent where its draft is right, and right where it speaks: all right, not half."""
    sure, first, other = 1.0 - 1e-9, (1, 1), (2, 2)
    played = group(
        spoken(0.0, sure, 8, prompt=first),
        spoken(1.0, 1e-9, 8, prompt=other),
        silent=(quiet(1.0, sure, first), quiet(0.0, 1e-9, other)),
    )
    batch = judged(played)
    assert step_metrics(batch.groups)["accuracy/policy"] == pytest.approx(1.0)
    assert batch.groups[0].tokens == pytest.approx((2 + 4 + 8 + 4) / 2)


def test_a_question_asked_twice_is_one_choice_with_the_mean_of_its_gains() -> None:
    first = group(spoken(1.0, 0.5), silent=(quiet(0.0, 0.5),))
    again = group(spoken(0.0, 0.5), spoken(1.0, 0.5), silent=(quiet(1.0, 0.5),), task="u")
    (one,) = judged(first, again).choices
    assert one.gain == pytest.approx((-1.0 + 0.5) / 2)


@pytest.mark.parametrize(("solved_weight", "easy"), [(1.0, 1.0), (0.25, 0.25), (0.0, 0.0)])
def test_messages_can_count_less_where_silence_succeeds(solved_weight: float, easy: float) -> None:
    """Advantages are ±0.5; silence solves the first task, and half of the third."""
    solved = group(spoken(1.0, 0.5), spoken(0.0, 0.5), silent=(quiet(1.0, 0.5),))
    failed = group(spoken(1.0, 0.5), spoken(0.0, 0.5), silent=(quiet(0.0, 0.5),), task="u")
    half = (quiet(1.0, 0.5), quiet(0.0, 0.5))
    split = group(spoken(1.0, 0.5), spoken(0.0, 0.5), silent=half, task="v")
    batch = judged(solved, failed, split, advantage="dr_grpo", solved_weight=solved_weight)
    between = (1 + easy) / 2
    expected = [0.5 * easy, -0.5 * easy, 0.5, -0.5, 0.5 * between, -0.5 * between]
    assert [row.advantage for row in batch.rows] == pytest.approx(expected)
    assert [group.gain for group in batch.groups] == pytest.approx([0.5, -0.5, 0.0])


def test_what_is_not_a_drawn_message_counts_as_ever() -> None:
    """A second trained role speaks in the same episodes, and has no choice."""
    said = episode(1.0, *spoken(1.0, 0.5).calls, call("critic"))
    other = episode(0.0, *spoken(0.0, 0.5).calls, call("critic"))
    batch = judged(
        group(said, other, silent=(quiet(1.0, 0.5),)), advantage="dr_grpo", solved_weight=0.0
    )
    assert [row.advantage for row in batch.rows] == pytest.approx([0.0, 0.5, 0.0, -0.5])


def test_contexts_of_two_tasks_are_two_choices() -> None:
    first = group(spoken(1.0, 0.5), silent=(quiet(0.0, 0.5),))
    other = group(spoken(0.0, 0.2, prompt=(4, 4)), silent=(quiet(1.0, 0.2),), task="u")
    batch = judged(first, other)
    assert [one.gain for one in batch.choices] == [-1.0, 1.0]
    assert [row.marker for row in batch.rows] == [MARKER] * 2


def test_floor_weighs_what_was_drawn_more_often_than_the_policy_would() -> None:
    floor = 0.2
    rare = silence(Choice.FLOOR, 0.05)
    common = call("hinter", choice=Choice.FLOOR, silence_logprob=math.log(0.05))
    batch = judged(group(episode(1.0, rare), episode(0.0, common)), floor=floor)
    assert [row.weight for row in batch.rows] == pytest.approx([0.05 / 0.2, 0.95 / 0.8])
    assert [row.silent for row in batch.rows] == [True, False]
    assert [row.marker for row in batch.rows] == [(), ()]
    assert batch.choices == ()
    a, b = 0.05 / 0.2, 0.95 / 0.8
    assert batch.groups[0].tokens == pytest.approx((2 * a + 3 * b) / (a + b))


def test_floored_speech_is_told_as_the_policy_gives_it() -> None:
    """It was drawn given that it is not silence: log π = log q + log(1 − p)."""
    spoken = call("hinter", choice=Choice.FLOOR, silence_logprob=math.log(0.25))
    quiet = silence(Choice.FLOOR, 0.25)
    rows = judged(group(episode(1.0, spoken), episode(0.0, quiet)), floor=0.2).rows
    assert sum(rows[0].engine_logprobs) == pytest.approx(-1.5 + math.log(0.75))
    assert rows[0].engine_logprobs[1:] == spoken.logprobs[1:]
    assert rows[1].engine_logprobs == quiet.logprobs


def test_a_floored_episode_weighs_the_product_of_its_choices() -> None:
    def said(p: float) -> Call:
        return call("hinter", choice=Choice.FLOOR, silence_logprob=math.log(p))

    two = episode(1.0, said(0.9), said(0.9))
    one = episode(0.0, said(0.5))
    ratio = (0.1 / 0.2) ** 2
    (credited,) = judged(group(two, one), floor=0.2).groups
    assert credited.tokens == pytest.approx((6 * ratio + 3 * 1.0) / (ratio + 1.0))


def test_weighted_means_by_hand() -> None:
    assert weighted_mean([100, 300], [0.2, 1.8]) == pytest.approx((20 + 540) / 2)
    assert weighted_mean([100, 300], [0.0, 0.0]) == 200, "of silence that became certain"


def test_free_choice_has_no_weights_and_silence_is_a_row_as_any_other() -> None:
    free = silence(Choice.FREE, 0.3)
    batch = judged(group(episode(1.0, free), episode(0.0, call("hinter"))), floor=0.2)
    assert [row.weight for row in batch.rows] == [1.0, 1.0]
    assert batch.rows[0].silent and batch.rows[0].output_ids == MARKER
    assert batch.groups[0].tokens == pytest.approx(2.5)
    assert batch.groups[0].gain is None


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("message", [0, 1, 2, 3, 4, 5]),
        ("agent", [0, 1, 0, 2, 3, 2]),
        ("episode", [0, 0, 0, 1, 1, 1]),
    ],
)
def test_what_a_ratio_is_taken_over(sequence: str, expected: list[int]) -> None:
    turns = (call("hinter"), call("critic"), call("actor"), call("hinter"))
    batch = judged(group(episode(1.0, *turns), episode(0.0, *turns)), sequence=sequence)
    assert [row.sequence for row in batch.rows] == expected


def test_weights_of_two_policies_never_share_a_sequence() -> None:
    turns = (call("hinter", policy="a"), call("critic", policy="b"))
    batch = judged(group(episode(1.0, *turns)), sequence="episode")
    assert [row.sequence for row in batch.rows] == [0, 1]


def test_parts_of_the_users_own_are_added() -> None:
    played = group(episode(1.0, call("hinter", 3)), episode(1.0, call("hinter", 5)))
    parts = {"short": lambda e: 0.1 * (e.usage.generated < 4)}
    (credited,) = judged(played, user_parts=parts, advantage="dr_grpo").groups
    assert [part.total for part in credited.rewards] == pytest.approx([1.1, 1.0])
    assert credited.advantages["hinter"] == pytest.approx((0.05, -0.05))


def test_gdpo_sees_the_parts_apart() -> None:
    played = group(
        episode(1.0, call("hinter", 20)),
        episode(1.0, call("hinter", 10)),
        episode(0.0, call("hinter", 1)),
    )
    values = judged(played, lambda_tokens=0.1, advantage="gdpo").groups[0].advantages["hinter"]
    assert values[1] > values[0] > 0 > values[2]


def test_step_metrics_by_hand() -> None:
    played = group(spoken(1.0, 0.25, 6), spoken(0.0, 0.25, 10), silent=(quiet(1.0, 0.25),))
    dead = group(spoken(0.0, 0.75, 6, (5, 5)), silent=(quiet(0.0, 0.75),), task="u")
    numbers = step_metrics(judged(played, dead, lambda_tokens=0.1).groups)
    assert numbers["accuracy/sampled"] == pytest.approx(1 / 3)
    assert numbers["accuracy/silent_arm"] == pytest.approx(0.5)
    assert numbers["accuracy/policy"] == pytest.approx((0.25 * 1.0 + 0.75 * 0.5 + 0.0) / 2)
    assert numbers["tokens/hinter"] == pytest.approx((6 + 10 + 6) / 3)
    assert numbers["silence/hinter"] == pytest.approx((0.25 + 0.25 + 0.75) / 3)
    assert numbers["silence/hinter/easy"] == numbers["silence/hinter"]
    assert numbers["reward/tokens"] == pytest.approx(-0.1 * 10 / 10 / 3)
    assert (numbers["groups/mixed"], numbers["groups/too_hard"]) == (0.5, 0.5)
    assert list(numbers) == sorted(numbers)


def test_empty_messages_are_counted_and_silence_is_not_one() -> None:
    empty = episode(0.0, call("hinter", text="  \n"), call("actor", text=""))
    mute = episode(0.0, silence(Choice.FREE, 0.5))
    assert empty_share(judged(group(empty, mute)).groups) == 1.0
    assert empty_share(judged(group(empty, episode(0.0, call("hinter")))).groups) == 0.5
    assert empty_share(judged(group(mute)).groups) == 0.0


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (lambda episode: None, "reward part `calm` must return a number, not None"),
        (lambda episode: episode.nothing, "reward part `calm`: AttributeError: .*nothing"),
    ],
)
def test_a_reward_part_that_is_wrong_is_named(part: Any, said: str) -> None:
    with pytest.raises(RunError, match=said):
        judged(group(episode(1.0, call("hinter"))), user_parts={"calm": part})
