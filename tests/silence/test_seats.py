"""Several agents that choose: what one message is worth, the rest as drawn."""

import math
from typing import Any

import pytest

from tacit.config import Config
from tacit.config.file import parse_config
from tacit.economy.group import Group
from tacit.economy.reward import Multipliers
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.grading import grade
from tacit.learn.credit import Batch, Credit
from tacit.rollout.groups import Player
from tacit.silence import open_silence
from tacit.silence.arms import PRIOR_PLAYS
from tacit.tasks import load_tasks
from tacit.team.roster import build_roster
from tacit.types import Call, Choice, Episode, Grade, Stop, Usage

MARKER = (1, 2)


def call(agent: str, choice: Choice, p: float, *, silent: bool = False) -> Call:
    ids = MARKER if silent else (20, 21, 22)
    return Call(
        agent=agent,
        model="tiny",
        messages=(),
        text="" if silent else "a word",
        stop=Stop.EOS,
        usage=Usage(prompt=10, generated=len(ids)),
        prompt_ids=(7, int(agent[-1])),
        output_ids=ids,
        logprobs=(-0.5,) * len(ids),
        policy="team",
        silent=silent,
        choice=choice,
        silence_logprob=math.log(p),
    )


def episode(reward: float, sample: int, *calls: Call) -> Episode:
    graded = Grade(reward=reward, right=reward >= 0.5)
    return Episode(task_id="t", sample=sample, calls=calls, grade=graded)


def pair(
    sample: int, picked: str, rewards: tuple[float, float], other: Call, p: float = 0.4
) -> tuple[Episode, Episode]:
    spoken, silent = rewards
    return (
        episode(spoken, sample, call(picked, Choice.SPEAK, p), other),
        episode(silent, sample + 1, call(picked, Choice.SILENT, p, silent=True), other),
    )


def judged(*pairs: tuple[Episode, Episode], **silence: Any) -> Batch:
    config = Config.model_validate({"silence": {"exploration": "arms", **silence}})
    strategy = open_silence(config.silence, choosing=True, several=True)
    spoken, silent = zip(*pairs, strict=True)
    group = Group(task_id="t", episodes=spoken, silent=silent)
    credit = Credit(config=config, silence=strategy, roles={f"h {n}": "h" for n in (1, 2, 3)})
    return credit([group], Multipliers())


def test_the_gain_of_a_context_is_the_mean_over_the_pairs_that_picked_it() -> None:
    drawn = call("h 2", Choice.FLOOR, 0.5)
    batch = judged(
        pair(0, "h 1", (1.0, 0.0), drawn),
        pair(2, "h 1", (1.0, 1.0), drawn),
        pair(4, "h 3", (0.0, 1.0), drawn),
    )
    gains = {point.prompt_ids[1]: point.gain for point in batch.choices}
    assert gains == {
        1: pytest.approx(2 / (2 + PRIOR_PLAYS) * -0.5),
        3: pytest.approx(1 / (1 + PRIOR_PLAYS) * 1.0),
    }
    assert all(point.marker_ids == MARKER for point in batch.choices)


def test_messages_are_trained_given_speech_and_silence_only_by_its_step() -> None:
    spoke, quiet = call("h 2", Choice.FLOOR, 0.05), call("h 3", Choice.FLOOR, 0.05, silent=True)
    batch = judged(pair(0, "h 1", (1.0, 0.0), spoke), pair(2, "h 1", (0.0, 0.0), quiet))
    assert [(row.prompt_ids[1], row.silent) for row in batch.rows] == [
        (1, False), (2, False), (1, False),
    ]  # fmt: skip
    assert all(row.marker == MARKER for row in batch.rows)
    weights = [row.weight for row in batch.rows]
    assert weights == [1.0, pytest.approx(0.95 / 0.9), 1.0], "speech was drawn at 0.9, not at 0.95"


def test_costs_and_accuracy_are_those_that_the_policy_expects() -> None:
    drawn = call("h 2", Choice.FLOOR, 0.5)
    (group,) = judged(
        pair(0, "h 1", (1.0, 0.0), drawn, p=0.25), pair(2, "h 3", (0.0, 1.0), drawn, p=0.75)
    ).groups
    assert group.right == pytest.approx((0.75 * 1.0 + 0.75 * 1.0) / 2)
    assert group.tokens == pytest.approx(3 + (0.25 * 2 + 0.75 * 3 + 0.75 * 2 + 0.25 * 3) / 2)


def test_an_episode_whose_other_play_failed_is_left_out() -> None:
    strategy = open_silence(Config().silence, choosing=True, several=True)
    task = load_tasks("arithmetic", split="test", limit=1)[0]
    drawn = call("h 2", Choice.FLOOR, 0.5)
    (a, b), (c, _) = (pair(n, "h 1", (1.0, 0.0), drawn) for n in (0, 2))
    group = strategy.group(task, [a, c], [b])
    assert group is not None and (group.episodes, group.silent) == ((a,), (b,))
    assert strategy.group(task, [c], [b]) is None


@pytest.mark.parametrize(("seats", "pairs"), [(1, 4), (2, 8), (9, 12)])
async def test_the_others_say_the_same_in_both_plays(seats: int, pairs: int) -> None:
    """With the pocket model: only what follows the picked agent's message differs."""
    config = parse_config(
        {
            "team": {
                "topology": "holders",
                "agents": {
                    "holder": {"count": 3, "trained": True, "max_tokens": 6},
                    "asker": {"max_tokens": 4},
                },
            },
            "silence": {"exploration": "arms", "seats": seats},
            "train": {"group": 4},
        }
    )
    engine = LocalEngine(load_model("pocket"), policy="team", rows=8)
    roster = build_roster(config.team, {"holder": engine, "asker": engine})
    strategy = open_silence(config.silence, choosing=True, several=True)
    player = Player(roster, grade, config, strategy, fixed={"asker"})
    task = load_tasks("arithmetic_notes", split="test", limit=2, holders=3)[1]
    (group,) = await player.play([task], step=1)
    await engine.close()
    assert len(group.episodes) == len(group.silent) == pairs
    for one, other in zip(group.episodes, group.silent, strict=True):
        (picked,) = [c.agent for c in one.calls if c.choice is Choice.SPEAK]
        for a, b in zip(one.calls[:3], other.calls[:3], strict=True):
            assert a.agent == b.agent
            if a.agent == picked:
                assert not a.silent and b.silent and b.choice is Choice.SILENT
            else:
                assert (a.choice, a.output_ids, a.logprobs) == (
                    Choice.FLOOR, b.output_ids, b.logprobs,
                )  # fmt: skip
    picked_by = [c.agent for e in group.episodes for c in e.calls if c.choice is Choice.SPEAK]
    assert set(picked_by) == {"holder 1", "holder 2", "holder 3"}


def test_an_agent_asked_twice_is_expected_to_choose_twice() -> None:
    """It speaks in both rounds or in none, and the policy would mostly speak in one of them."""
    first, second = (call("h 1", Choice.SPEAK, p) for p in (0.9, 0.1))
    spoken = episode(1.0, 0, first, second)
    quiet = (call("h 1", Choice.SILENT, p, silent=True) for p in (0.9, 0.1))
    (group,) = judged((spoken, episode(1.0, 1, *quiet))).groups
    assert group.tokens == pytest.approx(0.5 * 6 + 0.5 * 4)


def test_either_play_counts_by_the_chance_of_the_choices_in_it() -> None:
    """What others drew in the silent play has odds of its own."""
    here, there = call("h 2", Choice.FLOOR, 0.5), call("h 2", Choice.FLOOR, 0.01, silent=True)
    pair_ = (
        episode(1.0, 0, call("h 1", Choice.SPEAK, 0.5), here),
        episode(0.0, 1, call("h 1", Choice.SILENT, 0.5, silent=True), there),
    )
    (group,) = judged(pair_).groups
    weight = 0.01 / 0.1  # drawn with the floor's probability, ten times the policy's own
    assert group.right == pytest.approx(0.5 / (0.5 + 0.5 * weight))


def test_who_was_silent_by_the_floor_is_in_no_baseline_of_what_was_said() -> None:
    quiet = call("h 2", Choice.FLOOR, 0.5, silent=True)
    batch = judged(pair(0, "h 1", (1.0, 0.0), quiet), pair(2, "h 1", (1.0, 0.0), quiet))
    assert {row.prompt_ids[1] for row in batch.rows} == {1}
    assert all(row.advantage == 0.0 for row in batch.rows)
