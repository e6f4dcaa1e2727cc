"""What talk is worth, by hand: ranks, a random gate, and plays of the same tasks side by side."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from tacit.config import Config, EvaluationConfig
from tacit.config.file import parse_config
from tacit.engine.base import Request
from tacit.evaluation.measure import summarise
from tacit.evaluation.talk import Chosen, above_gate, auc, choosing, talk_of
from tacit.evaluation.teams import Measured, Measurement
from tacit.evaluation.variants import REWORD, reworded, trained_alone
from tacit.run.folder import RunFolder
from tacit.run.opening import Variants
from tacit.types import Call, Choice, Episode, Grade, Stop, Task, ToolCall, Usage
from tests.helpers.scripted_teams import SILENT, TASK, play, scripted, user

SETTINGS = EvaluationConfig(resamples=2000)


def test_the_area_under_the_curve_counts_ties_half() -> None:
    assert auc([3.0, 4.0], [1.0, 2.0]) == 1.0 and auc([1.0, 2.0], [3.0, 4.0]) == 0.0
    assert auc([1.0], [1.0, 1.0]) == 0.5
    # pairs: 2>1, 2=2, 2<3, 4>1, 4>2, 4>3: (1 + ½ + 0 + 3) of 6
    assert auc([2.0, 4.0], [1.0, 2.0, 3.0]) == pytest.approx(4.5 / 6)
    assert auc([float("inf"), 0.0], [float("inf")]) == pytest.approx(0.25)
    assert auc([], [1.0]) is None and auc([1.0], []) is None


def test_the_choice_beside_the_truth_by_hand() -> None:
    choices = [
        Chosen("a", needed=True, spoke=True, silence_logprob=-3.0),
        Chosen("a", needed=True, spoke=False, silence_logprob=-0.1),
        Chosen("a", needed=False, spoke=True, silence_logprob=-1.0),
        Chosen("b", needed=False, spoke=False, silence_logprob=-0.1),
        Chosen("b", needed=False, spoke=False, silence_logprob=-0.2),
    ]
    found = choosing(choices)
    assert (found.needed, found.idle, found.by) == (2, 3, "silence_logprob")
    assert found.auc == pytest.approx((3 + 0.5) / 6), "one is above all three, one ties with one"
    assert found.precision == 0.5 and found.recall == 0.5
    assert found.silent_needed == 0.5 and found.silent_idle == pytest.approx(2 / 3)
    blind = choosing([choice._replace(silence_logprob=None) for choice in choices])
    assert blind.by == "spoke"
    assert blind.auc == pytest.approx((1 + 0.5 + 1 + 0 + 0.5 + 0.5) / 6), "1 and 0 beside 1, 0, 0"


def table(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, np.float64)


def test_a_random_gate_by_hand() -> None:
    silent = table((1, 0, 0, 5, 9), (0, 0, 0, 5, 9))
    speaking = table((0, 1, 1, 8, 20), (1, 1, 1, 8, 20))
    free = table((1, 0, 1, 6, 15), (1, 1, 1, 8, 20))
    found = above_gate(free, silent, speaking, confidence=0.95, resamples=2000)
    assert found.mean == pytest.approx(1.0 - 0.5), "the gate: ½ of ½ and ½ of ½"
    # drawn twice the first, it is silent: q = 0 and the gate is right too; so for the second
    assert found.low == 0.0 and found.high == pytest.approx(0.5)
    always = above_gate(speaking, silent, speaking, confidence=0.95, resamples=100)
    assert (always.mean, always.low, always.high) == (0.0, 0.0, 0.0), "one that always speaks"


def call(agent: str, *, silent: bool = False, odds: float | None = None, free: bool = True) -> Call:
    return Call(
        agent=agent,
        model="m",
        messages=(),
        text="",
        stop=Stop.EOS,
        usage=Usage(prompt=10, generated=2 if silent else 6),
        silent=silent,
        may_be_silent=free,
        silence_logprob=odds,
    )


def episode(task: str, right: bool | None, *calls: Call, needed: bool | None = None) -> Episode:
    return Episode(
        task_id=task,
        sample=0,
        calls=(*calls, call("actor", free=False)),
        needed={} if needed is None else {"hinter": needed},
        grade=None if right is None else Grade(reward=float(right), right=right),
        error="lost" if right is None else None,
    )


OWN = [
    episode("a", True, call("hinter", odds=-4.0), needed=True),
    episode("b", True, call("hinter", silent=True, odds=-0.1), needed=False),
]
SILENTLY = [episode("a", False), episode("b", True)]
LOUDLY = [episode("a", True, call("hinter")), episode("b", False, call("hinter"))]


def test_plays_side_by_side_by_hand() -> None:
    talk = talk_of(OWN, {"silent": SILENTLY, "speaking": LOUDLY}, SETTINGS)
    assert talk is not None and (talk.tasks, talk.rate) == (2, 0.5)
    plays = talk.plays
    assert {name: play.accuracy for name, play in plays.items()} == {
        "free": 1.0, "silent": 0.5, "speaking": 0.5, "gate": 0.5,
    }  # fmt: skip
    assert {name: play.messages for name, play in plays.items()} == {
        "free": 0.5, "silent": 0.0, "speaking": 1.0, "gate": 0.5,
    }  # fmt: skip
    assert (plays["free"].generated, plays["free"].read) == (10.0, 20.0)
    assert (plays["gate"].generated, plays["gate"].read) == (9.0, 15.0)
    assert plays["free"].above is None
    assert plays["silent"].above is not None and plays["silent"].above.mean == 0.5
    assert talk.share_of_speaking == {
        "messages": 0.5, "generated": pytest.approx(10 / 12), "read": 1.0,
        "total": pytest.approx(30 / 32),
    }  # fmt: skip
    assert talk.choosing is not None and talk.choosing.auc == 1.0
    assert talk.choosing_by_agent == {"hinter": talk.choosing}
    assert talk.kept is None
    json.dumps(asdict(talk), allow_nan=False)


def marked(task: str, reward: float, *calls: Call) -> Episode:
    return replace(episode(task, False, *calls), grade=Grade(reward=reward, right=reward == 1))


def test_rewards_between_right_and_wrong_are_measured_beside_them_by_hand() -> None:
    own = [marked("a", 1.0, call("hinter")), marked("b", 0.5, call("hinter", silent=True))]
    quietly = [marked("a", 0.25), marked("b", 0.5)]
    loudly = [marked("a", 1.0, call("hinter")), marked("b", 0.0, call("hinter"))]
    again = [marked("a", 0.75, call("hinter")), own[1]]
    others = {"silent": quietly, "speaking": loudly, "reworded": again}
    tasks = [Task(id=name, question="?", answer="1", grader="span") for name in "ab"]
    talk = summarise("t", own, tasks, SETTINGS, others=others).talk
    assert talk is not None and talk.plays["free"].accuracy == 0.5
    assert {name: play.accuracy for name, play in talk.rewards.items()} == {
        "free": 0.75, "silent": 0.375, "speaking": 0.5, "reworded": 0.625, "gate": 0.4375,
    }  # fmt: skip
    above = {name: play.above for name, play in talk.rewards.items()}
    assert above.pop("free") is None
    assert {name: one and one.mean for name, one in above.items()} == pytest.approx(
        {"silent": 0.375, "speaking": 0.25, "reworded": 0.125, "gate": 0.3125}
    )
    assert talk.kept == 0.0 and talk.kept_reward == pytest.approx(0.25 / 0.375)
    whole = [replace(task, grader="math") for task in tasks]
    plain = summarise("t", OWN, whole, SETTINGS, others={"silent": SILENTLY}).talk
    assert plain is not None and plain.kept_reward is None and not plain.rewards


def test_what_is_kept_in_other_words_is_a_share_of_the_gain() -> None:
    told = talk_of(OWN, {"silent": SILENTLY, "reworded": LOUDLY}, SETTINGS)
    assert told is not None and told.kept == 0.0, "as good as silence"
    assert (told := talk_of(OWN, {"silent": SILENTLY, "reworded": OWN}, SETTINGS)) is not None
    assert told.kept == 1.0
    assert (told := talk_of(OWN, {"silent": OWN, "reworded": OWN}, SETTINGS)) is not None
    assert told.kept is None, "nothing was gained"


def test_whoever_calls_a_tool_first_has_chosen_to_speak() -> None:
    looking = replace(call("hinter"), tool_calls=(ToolCall("lookup"),))
    own = [episode("a", True, looking, call("hinter", free=False), needed=True)]
    talk = talk_of(own, {}, SETTINGS)
    assert talk is not None and talk.plays["free"].messages == 1 and talk.rate == 1
    assert talk.choosing is not None and talk.choosing.recall == 1


def test_only_tasks_that_every_play_has_a_grade_for_count() -> None:
    talk = talk_of(OWN, {"silent": [SILENTLY[0], episode("b", None)]}, SETTINGS)
    assert talk is not None and talk.tasks == 1 and talk.plays["silent"].accuracy == 0.0
    assert "gate" not in talk.plays and talk.share_of_speaking == {}


def test_without_a_truth_or_another_play_there_is_nothing_to_say() -> None:
    plain = [replace(one, needed={}) for one in OWN]
    assert talk_of(plain, {}, SETTINGS) is None and talk_of([], {}, SETTINGS) is None
    talk = talk_of(OWN, {}, SETTINGS)
    assert talk is not None and list(talk.plays) == ["free"] and talk.choosing is not None
    why = {"speaking": "an API model cannot be made to speak"}
    told = talk_of(plain, {}, SETTINGS, why)
    assert told is not None and told.missing == why and told.choosing is None


def test_an_agent_that_had_no_choice_is_not_judged() -> None:
    must = [episode("a", True, call("hinter", free=False), needed=True)]
    assert talk_of(must, {}, SETTINGS) is None
    talk = talk_of(must, {"silent": SILENTLY}, SETTINGS)
    assert talk is not None and talk.rate is None and talk.choosing is None


TASKS = [
    Task(id=name, question=f"{name}?", answer="1", grader="math", data={"speak": {"hinter": n}})
    for name, n in (("told", True), ("free", False))
]


def _hinter(request: Request) -> str:
    """Says the number where it is needed, nonsense where it is not, and is silent there if free."""
    asked = request.messages[-1].content
    choice = request.silence.choice if request.silence else None
    return "it is 1" if "told?" in asked else SILENT if choice is Choice.FREE else "it is 2"


def _actor(request: Request) -> str:
    asked = request.messages[-1].content
    return "1" if "it is 1" in asked or ("free?" in asked and "it is 2" not in asked) else "0"


async def test_a_team_is_played_silent_and_made_to_speak(tmp_path: Path) -> None:
    config = parse_config({"evaluation": {"resamples": 50}})
    roster = scripted("hint_actor", {"hinter": _hinter, "actor": _actor})
    both = frozenset({"hinter"})

    async def measured() -> tuple[Measurement, Measured]:
        run = RunFolder.open(tmp_path, Config())
        measurement = Measurement(config=config, run=run, tasks=TASKS)
        return measurement, await measurement.team("t", roster, Variants(both, both))

    measurement, one = await measured()
    talk = measurement.summary("t", one).talk
    assert talk is not None
    assert {name: play.accuracy for name, play in talk.plays.items()} == {
        "free": 1.0, "silent": 0.5, "speaking": 0.5, "gate": 0.5,
    }  # fmt: skip
    assert talk.choosing is not None and talk.choosing.auc == 1.0 and talk.choosing.by == "spoke"
    names = {path.stem for path in (tmp_path / "episodes").iterdir()}
    assert names == {"t", "t without helpers", "t made to speak"}
    before = [agent.engine.calls for agent in roster.agents]  # type: ignore[attr-defined]
    await measured()
    assert before == [agent.engine.calls for agent in roster.agents]  # type: ignore[attr-defined]
    assert one.variants == Variants(both, both)


async def test_where_speech_cannot_be_forced_the_rest_is_still_measured(tmp_path: Path) -> None:
    roster = scripted("hint_actor", {"hinter": _hinter, "actor": _actor})
    run, both = RunFolder.open(tmp_path, Config()), frozenset({"hinter"})
    measurement = Measurement(config=parse_config({}), run=run, tasks=TASKS)
    why = {"speaking": "hinter: an API model cannot be made to speak"}
    one = await measurement.team("t", roster, Variants(both, both, why))
    talk = measurement.summary("t", one).talk
    assert talk is not None and list(talk.plays) == ["free", "silent"]
    assert talk.missing["speaking"] == why["speaking"]


async def test_what_is_not_played_says_how_to_have_it(tmp_path: Path) -> None:
    roster = scripted("hint_actor", {"hinter": _hinter, "actor": _actor})
    both = frozenset({"hinter"})

    async def missing(reworded: bool, variants: Variants) -> dict[str, str] | None:
        run = RunFolder.open(tmp_path / str(reworded), Config())
        settings = {"resamples": 50, "reworded": reworded}
        config = parse_config({"evaluation": settings})
        measurement = Measurement(config=config, run=run, tasks=TASKS)
        talk = measurement.summary("t", await measurement.team("t", roster, variants)).talk
        return talk and talk.missing

    assert (found := await missing(False, Variants(both, both))) is not None
    assert found.keys() == {"alone", "reworded"}
    assert "trained" in found["alone"] and "evaluation.reworded=true" in found["reworded"]
    assert (found := await missing(True, Variants(both, both))) is not None
    assert found.keys() == {"alone"}, "the other was played"
    assert await missing(True, Variants(both)) == {}, "talk was not to be measured"


async def test_trained_weights_take_the_actors_place_only_on_its_own_model() -> None:
    roster = scripted(
        "hint_actor",
        {"hinter": ["a"], "actor": ["b"]},
        actor={"max_tokens": 7},
        prompts="role_last",
    )
    hinter, actor = roster.agents
    assert trained_alone(roster, {"hinter"}) is None, "nobody is trained"
    hinter.engine.policy = "team"
    assert trained_alone(roster, {"hinter"}) is None, "another model"
    hinter.engine.model = actor.engine.model
    alone = trained_alone(roster, {"hinter"})
    assert alone is not None
    (one,) = alone.agents
    assert one.engine is hinter.engine and one.name == "actor" and not one.may_be_silent
    assert (one.config.max_tokens, one.form) == (7, "role_last")
    assert trained_alone(roster, {"hinter", "actor"}) is None, "nobody is left to answer"
    asker = replace(actor, name="asker", role="asker")
    other = trained_alone(replace(roster, agents=(hinter, asker)), {"hinter"})
    assert other is not None
    played = await play(other, replace(TASK, views={"asker": "only its own"}))
    assert [call.agent for call in played.calls] == ["asker"]
    assert "only its own" in user(played.calls[0]), "with the view of the one it stands for"


async def test_messages_are_reworded_before_they_are_read_and_silence_is_not() -> None:
    def actor(request: Request) -> str:
        asked = request.messages[-1].content
        return "HALF OF 84" if asked.startswith(REWORD) else "42"

    for hint, heard in (("it is 42", True), (SILENT, False)):
        roster = scripted("hint_actor", {"hinter": [hint], "actor": actor})
        other = reworded(roster, {"hinter"})
        assert other is not None
        one = await play(other, TASK)
        assert [call.agent for call in one.calls] == ["hinter", "actor"], "rewording is not charged"
        assert one.calls[0].text == hint and "it is 42" not in user(one.calls[1])
        assert ("HALF OF 84" in user(one.calls[1])) is heard
    assert reworded(roster, {"hinter", "actor"}) is None, "nobody is frozen"
