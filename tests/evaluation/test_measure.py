"""Summaries by hand, and evaluations that repeat to the bit and go on where they stopped."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.cli.tables import detail_lines
from tacit.config import Config, EvaluationConfig, TeamConfig
from tacit.economy.ledger import Price, PriceTable
from tacit.engine.base import Request
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.errors import ConfigError, EngineError, PromptTooLong, RunError
from tacit.evaluation.measure import Summary, compare, evaluate_team, frontier, scores, summarise
from tacit.evaluation.statistics import Estimate, bootstrap, wilson
from tacit.run.folder import RunFolder
from tacit.tasks import load_tasks
from tacit.team.roster import Roster, build_roster
from tacit.types import Call, Episode, Grade, Stop, Task, Usage
from tests.helpers.scripted_teams import scripted

SETTINGS = EvaluationConfig(resamples=500)


def task(name: str, answer: str = "42", level: str = "easy") -> Task:
    return Task(id=name, question="What?", answer=answer, grader="math", level=level)


def call(
    agent: str,
    part: str,
    text: str,
    *,
    prompt: int = 10,
    generated: int = 5,
    silent: bool = False,
    path: int = 0,
) -> Call:
    return Call(
        agent=agent,
        model="pocket",
        messages=(),
        text=text,
        stop=Stop.EOS,
        usage=Usage(prompt=prompt, generated=generated),
        part=part,
        silent=silent,
        may_be_silent=part in ("hinter", "critic", "guide"),
        path_tokens=path,
    )


def episode(
    name: str,
    right: bool | None,
    *calls: Call,
    sample: int = 0,
    level: str = "easy",
    answer: str = "",
) -> Episode:
    """`right=None` is a failed one."""
    return Episode(
        task_id=name,
        sample=sample,
        level=level,
        calls=calls,
        answer=answer,
        grade=None if right is None else Grade(reward=float(right), right=right),
        error="EngineError: gone" if right is None else None,
        seconds=2.0,
    )


def hint(text: str, **more: Any) -> Call:
    return call("hinter", "hinter", text, **more)


def actor(text: str, **more: Any) -> Call:
    return call("actor", "solver", text, **more)


TASKS = [task("a"), task("b"), task("c", level="hard"), task("d", level="hard")]
EPISODES = [
    episode("a", True, hint("<silent>", generated=2, silent=True), actor("42", path=7)),
    episode("b", False, hint("it is 42", generated=10), actor("41", path=15)),
    episode("c", True, hint("carry 1", generated=6), actor("42", path=11), level="hard"),
    episode("d", None, hint("it is 42", generated=1000), level="hard"),
]


def test_a_summary_by_hand() -> None:
    summary = summarise("hint", EPISODES, TASKS, SETTINGS)
    assert (summary.team, summary.tasks, summary.samples, summary.failed) == ("hint", 3, 1, 1)
    assert summary.accuracy == wilson(2, 3)
    assert summary.accuracy_by_level == {"easy": wilson(1, 2), "hard": wilson(1, 1)}
    assert summary.generated.mean == pytest.approx((7 + 15 + 11) / 3)
    assert summary.read == pytest.approx(20)
    assert summary.generated_per_solved == pytest.approx(33 / 2)
    assert summary.path_tokens == pytest.approx(11) and summary.path_seconds == 2.0
    assert summary.silence == pytest.approx(1 / 3), "of the hinter's calls: others must speak"
    assert summary.silent_accuracy == 1.0 and summary.spoken_accuracy == 0.5
    assert summary.majority is None and summary.any_right is None
    assert summary.money is None and summary.money_per_solved is None


def test_a_reward_that_says_more_than_right_and_wrong_is_summed_up_by_its_name() -> None:
    plain = summarise("t", EPISODES, TASKS, SETTINGS)
    assert (plain.reward, plain.reward_name) == (None, "")
    half = replace(EPISODES[1], grade=Grade(reward=0.5, right=False))
    mixed = [EPISODES[0], half, *EPISODES[2:]]
    found = summarise("t", mixed, TASKS, SETTINGS)
    assert found.reward_name == "reward" and found.accuracy == wilson(2, 3)
    assert found.reward == bootstrap([1.0, 0.5, 1.0], resamples=SETTINGS.resamples)
    spans = [replace(one, grader="span") for one in TASKS]
    assert summarise("t", mixed, spans, SETTINGS).reward_name == "F1"
    whole = summarise("t", EPISODES, spans, SETTINGS)
    assert whole.reward is not None and whole.reward.mean == whole.accuracy.mean
    assert summarise("t", mixed, [*TASKS[:2], *spans[2:]], SETTINGS).reward_name == "reward"


def test_teams_are_compared_by_their_rewards_too() -> None:
    half = replace(EPISODES[1], grade=Grade(reward=0.5, right=False))
    plain = compare(EPISODES, EPISODES, SETTINGS)
    assert plain is not None and plain.reward is None
    found = compare(EPISODES, [EPISODES[0], half, EPISODES[2]], SETTINGS)
    assert found is not None and found.difference.mean == 0.0
    assert found.reward is not None and found.reward.mean == pytest.approx(0.5 / 3)


def test_what_each_agent_did_by_hand() -> None:
    hinter, solver = summarise("hint", EPISODES, TASKS, SETTINGS).agents
    assert (hinter.agent, hinter.model, hinter.calls) == ("hinter", "pocket", 1.0)
    assert hinter.generated == pytest.approx(18 / 3) and hinter.prompt == pytest.approx(10)
    assert hinter.silence == pytest.approx(1 / 3)
    assert hinter.silence_by_level == {"easy": 0.5, "hard": 0.0}
    assert (hinter.choices, solver.choices) == (1.0, 0.0)
    assert solver.silence == 0.0 and solver.money is None


def test_where_nobody_could_be_silent_there_is_no_share_of_silence() -> None:
    assert summarise("solo", [episode("a", True, actor("42"))], TASKS, SETTINGS).silence is None


def test_cached_and_reasoning_tokens_are_shown_by_agent() -> None:
    told = Usage(prompt=100, generated=30, cached=60, reasoning=20)
    calls = [replace(actor("42"), usage=told), replace(actor("42"), usage=Usage(generated=10))]
    (agent,) = summarise("t", [episode("a", True, *calls)], TASKS, SETTINGS).agents
    assert (agent.prompt, agent.cached, agent.generated, agent.reasoning) == (100, 60, 40, 20)


def test_an_overflow_by_the_teams_own_talk_is_wrong_and_counted_with_its_cost() -> None:
    over = replace(episode("d", False, hint("on and on", generated=1000)), error="Overflow: actor")
    summary = summarise("t", [*EPISODES[:3], over], TASKS, SETTINGS)
    assert (summary.tasks, summary.failed, summary.overflowed) == (4, 0, 1)
    assert summary.accuracy == wilson(2, 4)
    assert summary.generated.mean == pytest.approx((7 + 15 + 11 + 1000) / 4)
    (line,) = detail_lines([summary])
    assert "1 episode wrong because the talk overflowed a prompt" in line


async def test_an_overflow_is_not_played_again(tmp_path: Path) -> None:
    def over(request: Request) -> str:
        raise PromptTooLong("a prompt of 90 tokens is over its max_input_tokens 60", limit=60)

    run = RunFolder.open(tmp_path, Config())
    for script in (over, lambda request: "42"):
        roster = scripted("hint_actor", {"hinter": ["a long hint"], "actor": script})
        (one,) = await evaluate_team("t", roster, TASKS[:1], SETTINGS, run)
        assert one.overflowed and scores([one]) == {"a": 0.0}


def test_failed_episodes_count_nowhere_but_in_their_number() -> None:
    without = [one for one in EPISODES if one.error is None]
    assert replace(summarise("t", EPISODES, TASKS, SETTINGS), failed=0) == summarise(
        "t", without, TASKS, SETTINGS
    )
    assert "d" not in scores(EPISODES)


def test_nothing_but_failures_is_no_number_and_no_crash() -> None:
    summary = summarise("t", EPISODES[3:], TASKS, replace_samples(2))
    assert (summary.tasks, summary.failed) == (0, 1)
    assert summary.accuracy == Estimate(0.0, 0.0, 1.0)
    assert summary.majority is None and summary.leaks is None and summary.agents == []
    assert summary.generated_per_solved is None
    json.dumps(summary.to_json(), allow_nan=False)


def replace_samples(samples: int) -> EvaluationConfig:
    return SETTINGS.model_copy(update={"samples": samples})


def test_money_by_hand() -> None:
    prices = PriceTable(date="2026-01-01", models={"pocket": Price(input=1.0, output=10.0)})
    summary = summarise("hint", EPISODES, TASKS, SETTINGS, prices)
    total = (60 * 1.0 + 33 * 10.0) / 1e6
    assert summary.money == pytest.approx(total / 3)
    assert summary.money_per_solved == pytest.approx(total / 2)
    assert [agent.money for agent in summary.agents] == pytest.approx(
        [(30 + 18 * 10) / 3e6, (30 + 15 * 10) / 3e6]
    )


def test_a_leak_is_a_helpers_message_that_holds_the_answer() -> None:
    assert summarise("hint", EPISODES, TASKS, SETTINGS).leaks == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("text", "answer", "leaks"),
    [
        ("so 42.", "42", True),
        (r"\boxed{42}", "42", True),
        ("142 and 420 and 4.42 and 42.5", "42", False),
        ("x42y", "42", False),
        (r"take \frac{1}{2}", r"\frac{1}{2}", True),
        ("", "42", False),
        ("anything", "", False),
    ],
)
def test_an_answer_inside_a_longer_number_is_no_leak(text: str, answer: str, leaks: bool) -> None:
    played = [episode("a", True, hint(text), actor("x"))]
    assert summarise("t", played, [task("a", answer)], SETTINGS).leaks == float(leaks)


def test_answers_of_those_who_are_asked_for_one_are_no_leaks() -> None:
    silent_critic = [actor("42"), call("critic", "critic", "<silent>", silent=True)]
    debate = [call(f"debater {i}", "debater", "42") for i in (1, 2, 3)]
    for calls in (silent_critic, debate, [actor("42")]):
        assert summarise("t", [episode("a", True, *calls)], TASKS, SETTINGS).leaks is None
    guided = [call("collaborator", "guide", "say 42"), *debate]
    assert summarise("t", [episode("a", True, *guided)], TASKS, SETTINGS).leaks == 1.0


def sampled(name: str, answers: list[str], reference: str = "42") -> list[Episode]:
    return [
        episode(name, text == reference, actor(text), sample=i, answer=text)
        for i, text in enumerate(answers)
    ]


def test_pass_and_majority_over_samples_by_hand() -> None:
    played = [
        *sampled("a", ["42", "7", "42"]),  # majority right
        *sampled("b", ["42", "7", "7"]),  # majority wrong
        *sampled("c", ["none", "42", "who knows"]),  # one vote, right
        *sampled("d", ["1", "42", "3"]),  # a tie: the earliest
    ]
    summary = summarise("t", played, TASKS, replace_samples(3))
    assert summary.accuracy.mean == pytest.approx((2 / 3 + 1 / 3 + 1 / 3 + 1 / 3) / 4)
    assert summary.majority == pytest.approx(2 / 4)
    assert summary.any_right == 1.0


def test_votes_count_equal_answers_however_they_are_written() -> None:
    half = task("a", answer="1/2")
    played = [
        episode("a", False, actor("x"), sample=0, answer=r"\boxed{3}"),
        episode("a", True, actor("x"), sample=1, answer=r"\boxed{0.5}"),
        episode("a", True, actor("x"), sample=2, answer=r"so \boxed{\frac{1}{2}}"),
    ]
    assert summarise("t", played, [half], replace_samples(3)).majority == 1.0


def test_a_failed_sample_does_not_make_the_others_worse() -> None:
    played = [*sampled("a", ["42", "42"]), episode("a", None, sample=2)]
    summary = summarise("t", played, TASKS, replace_samples(3))
    assert summary.accuracy.mean == 1.0 and summary.any_right == 1.0 and summary.failed == 1


def test_intervals_are_over_tasks_and_not_over_samples() -> None:
    def played(copies: int) -> list[Episode]:
        return [
            episode(name, i % 2 == 0, actor("x", generated=10 * i), sample=sample)
            for i, name in enumerate("abcd")
            for sample in range(copies)
        ]

    one, many = (summarise("t", played(n), TASKS, replace_samples(n)) for n in (1, 16))
    assert one.generated == many.generated == bootstrap([0.0, 10.0, 20.0, 30.0], resamples=500)
    assert one.accuracy == many.accuracy


def test_compare_uses_the_tasks_that_both_have() -> None:
    first = [episode("a", True), episode("b", False), episode("c", None), episode("d", False)]
    second = [episode("b", True), episode("a", True), episode("c", True)]
    result = compare(first, second, SETTINGS)
    assert result is not None
    assert (result.tasks, result.only_first, result.only_second) == (2, 0, 1)
    assert result.difference.mean == 0.5
    assert compare(first[:1], second[2:], SETTINGS) is None


def test_the_frontier_holds_who_is_not_beaten_in_both() -> None:
    def team(name: str, accuracy: float, tokens: float) -> Summary:
        base = summarise(name, EPISODES, TASKS, SETTINGS)
        at = Estimate(accuracy, 0.0, 1.0)
        return replace(base, accuracy=at, generated=Estimate(tokens, 0.0, 1.0))

    teams = [
        team("dear", 0.9, 100),
        team("cheap", 0.5, 10),
        team("worse", 0.4, 20),
        team("same but dearer", 0.5, 11),
        team("dear and worse", 0.8, 120),
        team("tied but better", 0.6, 10),
    ]
    assert frontier(teams) == ["tied but better", "dear"]
    chatty = [replace(one, read=200.0 - one.generated.mean) for one in teams[:2]]
    assert frontier(chatty, read=True) == ["dear"], "both cost 200 tokens in all"
    assert frontier([]) == []


def test_a_summary_is_plain_json() -> None:
    tree = json.loads(json.dumps(summarise("t", EPISODES, TASKS, SETTINGS).to_json()))
    assert tree["accuracy"]["mean"] == pytest.approx(2 / 3)
    assert tree["agents"][0]["silence_by_level"] == {"easy": 0.5, "hard": 0.0}


# Playing


def sums(count: int) -> list[Task]:
    return load_tasks("arithmetic", split="test", limit=count)


async def evaluated(
    roster: Roster, folder: Path, tasks: list[Task], **settings: Any
) -> list[Episode]:
    run = RunFolder.open(folder, Config())
    return await evaluate_team("t", roster, tasks, EvaluationConfig(**settings), run, seed=5)


async def test_only_what_is_missing_is_played_again(tmp_path: Path) -> None:
    asked: list[str] = []
    broken = {3, 4}

    def script(request: Request) -> str | Exception:
        question = request.messages[-1].content
        asked.append(question)
        place = [t.question for t in tasks].index(question)
        return EngineError("down") if place in broken else r"\boxed{1}"

    tasks = sums(8)
    roster = scripted("solo", {"actor": script})
    first = await evaluated(roster, tmp_path / "run", tasks, samples=2)
    assert len(asked) == 16 and sum(e.error is not None for e in first) == 4
    broken.clear()
    asked.clear()
    second = await evaluated(roster, tmp_path / "run", tasks, samples=2)
    assert sorted(asked) == sorted([tasks[3].question, tasks[4].question] * 2)
    assert [(e.task_id, e.sample) for e in second] == [
        (task.id, sample) for task in tasks for sample in range(2)
    ]
    assert all(e.error is None for e in second)
    asked.clear()
    assert await evaluated(roster, tmp_path / "run", tasks, samples=2) == second
    assert asked == []


async def test_one_task_that_always_fails_does_not_spoil_the_rest(tmp_path: Path) -> None:
    tasks = sums(3)

    def script(request: Request) -> str | Exception:
        bad = request.messages[-1].content == tasks[1].question
        return EngineError("too long") if bad else "x"

    roster = scripted("solo", {"actor": script})
    for _ in range(2):
        episodes = await evaluated(roster, tmp_path / "run", tasks)
        assert [e.error is None for e in episodes] == [True, False, True]


async def test_a_server_that_is_down_stops_the_evaluation(tmp_path: Path) -> None:
    roster = scripted("solo", {"actor": lambda request: EngineError("connection refused")})
    with pytest.raises(RunError, match="connection refused"):
        await evaluated(roster, tmp_path / "run", sums(3))


async def test_progress_hears_of_every_episode_once(tmp_path: Path) -> None:
    roster = scripted("solo", {"actor": lambda request: "x"})
    run = RunFolder.open(tmp_path, Config())
    for _ in range(2):
        heard: list[str] = []
        await evaluate_team(
            "t",
            roster,
            sums(4),
            SETTINGS,
            run,
            on_episode=lambda one, heard=heard: heard.append(one.task_id),
        )
        assert sorted(heard) == sorted(task.id for task in sums(4))


async def test_a_torn_last_line_is_played_again(tmp_path: Path) -> None:
    roster = scripted("solo", {"actor": lambda request: "x"})
    whole = await evaluated(roster, tmp_path, sums(4))
    path = tmp_path / "episodes" / "t.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert [e.task_id for e in await evaluated(roster, tmp_path, sums(4))] == [
        e.task_id for e in whole
    ]
    assert all(json.loads(line) for line in path.read_bytes().splitlines())
    assert len(path.read_bytes().splitlines()) == 4


async def test_a_damaged_line_is_named_with_its_cure(tmp_path: Path) -> None:
    roster = scripted("solo", {"actor": lambda request: "x"})
    await evaluated(roster, tmp_path, sums(2))
    path = tmp_path / "episodes" / "t.jsonl"
    path.write_bytes(b"\0\0\0\n" + path.read_bytes())
    with pytest.raises(ConfigError, match=r"t\.jsonl line 1 is no episode: remove that line"):
        await evaluated(roster, tmp_path, sums(2))


@pytest.fixture
async def pocket() -> AsyncIterator[LocalEngine]:
    engine = LocalEngine(load_model("pocket"), rows=8)
    yield engine
    await engine.close()


TEAMS: dict[str, dict[str, Any]] = {
    "hint_actor": {
        "agents": {
            "hinter": {"max_tokens": 96, "temperature": 1.0},
            "actor": {"max_tokens": 24, "temperature": 0.7},
        }
    },
    "debate": {"agents": {"debater": {"count": 3, "max_tokens": 24, "temperature": 1.0}}},
    "dialogue": {
        "agents": {"agent": {"count": 2, "max_tokens": 32, "temperature": 1.0}},
        "options": {"rounds": 1},
    },
}


@pytest.mark.parametrize("topology", TEAMS)
async def test_concurrency_changes_no_transcript(
    topology: str, pocket: LocalEngine, tmp_path: Path
) -> None:
    config = TeamConfig.model_validate({"topology": topology, **TEAMS[topology]})
    roster = build_roster(config, dict.fromkeys(config.agents, pocket))
    one, many = [
        await evaluated(roster, tmp_path / str(n), sums(6), samples=2, concurrency=n)
        for n in (1, 64)
    ]
    assert [untimed(e) for e in one] == [untimed(e) for e in many]
    assert all(len(c.logprobs) == len(c.output_ids) > 0 for e in one for c in e.calls)
    said = {call.text for played in one for call in played.calls}
    assert len(said) > 10, "sampling gave nothing that could differ"


def untimed(one: Episode) -> Episode:
    """Everything but the seconds: ids, log-probabilities, order of calls, grades."""
    return replace(one, seconds=0.0, calls=tuple(replace(c, seconds=0.0) for c in one.calls))


@pytest.mark.parametrize(
    ("text", "answer", "held"),
    [
        ("Yes, they did.", "yes", True),
        ("It makes 1,000 in all", "1000", True),
        ("the result is -5", "5", False),
        ("three fifths, 3/5", "5", False),
    ],
)
def test_a_leak_is_the_answer_itself(text: str, answer: str, held: bool) -> None:
    from tacit.evaluation.measure import holds_answer

    assert holds_answer(text, answer) is held


async def test_episodes_of_another_task_of_the_same_id_are_not_reused(tmp_path: Path) -> None:
    roster = scripted("solo", {"actor": lambda request: r"\boxed{4}"})
    settings = EvaluationConfig(resamples=10)
    run = RunFolder(tmp_path)
    one = Task(id="mine/0", question="What is 2 + 2?", answer="4", grader="math")
    await evaluate_team("solo", roster, [one], settings, run)
    changed = replace(one, question="What is 2 + 3?", answer="5")
    with pytest.raises(ConfigError, match="not the task it was"):
        await evaluate_team("solo", roster, [changed], settings, run)


async def test_every_recorded_call_has_its_log_probability_and_every_episode_its_answer(
    pocket: LocalEngine, tmp_path: Path
) -> None:
    agents = {"hinter": {"max_tokens": 48}, "actor": {"max_tokens": 24}}
    config = TeamConfig.model_validate({"topology": "hint_actor", "agents": agents})
    roster = build_roster(config, dict.fromkeys(config.agents, pocket))
    tasks = load_tasks("arithmetic", split="test", limit=4)
    run = RunFolder.open(tmp_path, Config())
    await evaluate_team("team", roster, tasks, SETTINGS, run)
    for line in (tmp_path / "episodes" / "team.jsonl").read_text().splitlines():
        tree = json.loads(line)
        for one in tree["calls"]:
            assert one["logprob"] == pytest.approx(sum(one["logprobs"])) and one["logprob"] < 0
        assert tree["grade"]["answer"] and tree["grade"]["answer"] in tree["answer"]
