"""Programs outside: their calls are an episode's turns, whatever they do and however they fail."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from openai import APIStatusError, AsyncOpenAI, OpenAI

from tacit.cli.training import run_training
from tacit.config import AgentConfig, Cut, ModelConfig, TeamConfig
from tacit.engine.base import Request
from tacit.engine.factory import open_engine
from tacit.errors import ConfigError, EngineError, PromptTooLong, Refused, RunError
from tacit.rollout.play import Job, play_all
from tacit.serve.team_backend import TeamBackend
from tacit.tasks import load_tasks
from tacit.team.prompts import PARTS, SILENCE_SENTENCE
from tacit.team.roster import Roster, build_roster, check_team
from tacit.team.setting import Setting
from tacit.types import Choice, Episode, Task
from tests.helpers.scripted_teams import SILENT, TASK, play, scripted, system, user
from tests.helpers.serving import ASKED, running
from tests.helpers.training_runs import tiny_config

OUTSIDE = "tacit.external:app"
SEEN: dict[str, Any] = {}
"""What a program of this file noticed, for its test to look at."""


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    SEEN.clear()
    yield
    torch.use_deterministic_algorithms(False)


def says(client: OpenAI, model: str, *texts: str, **more: Any) -> str:
    """One call: the last text is the user's, those before it the system's."""
    roles = ["system"] * (len(texts) - 1) + ["user"]
    messages: Any = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]
    reply = client.chat.completions.create(model=model, messages=messages, **more)
    return reply.choices[0].message.content or ""


def hint_then_answer(base_url: str, task: Task) -> str:
    """What the topology hint_actor does, word for word, as a program of one's own."""
    with OpenAI(base_url=base_url, api_key="any") as client:
        hint = says(client, "hinter", PARTS["hinter"], task.question)
        heard = f"\n\nA teammate's hint:\n<hint>\n{hint}\n</hint>" if hint else ""
        return says(client, "actor", task.instruction, task.question + heard)


def outside(program: str, scripts: Any, options: Any = None, **agents: Any) -> Roster:
    named = {"program": f"{__name__}:{program}", **(options or {})}
    return scripted(OUTSIDE, scripts, options=named, **agents)


def pocket_rosters(engine: Any, **topologies: Any) -> list[Roster]:
    agents = {
        "hinter": AgentConfig(max_tokens=40, silent=True, trained=True),
        "actor": AgentConfig(max_tokens=16),
    }
    return [
        build_roster(
            TeamConfig(topology=topology, agents=agents, options=options),
            dict.fromkeys(agents, engine),
        )
        for topology, options in topologies.items()
    ]


def drawn(episodes: list[Episode]) -> list[Any]:
    """All of an episode but its times."""
    return [
        (
            [
                (c.agent, c.part, c.messages, c.prompt_ids, c.output_ids, c.logprobs, c.silent,
                 c.choice, c.silence_logprob, c.path_tokens, c.usage)
                for c in episode.calls
            ],
            episode.answer, episode.grade, episode.error, episode.path_tokens,
        )
        for episode in episodes
    ]  # fmt: skip


async def test_a_prompt_too_long_is_a_wrong_answer_only_where_something_was_said() -> None:
    def actor(request: Request) -> str:
        raise PromptTooLong("actor: too long")

    for hint in ("on and on", SILENT):
        scripts = {"hinter": [hint], "actor": actor}
        episode = await play(outside("hint_then_answer", scripts, hinter={"silent": True}))
        assert episode.error is not None and "actor: too long" in episode.error
        assert episode.overflowed is (hint != SILENT)


async def test_it_plays_the_very_episodes_of_a_topology() -> None:
    """Greedy, forced to speak and forced to be silent: every id and every log-probability."""
    engine = open_engine("pocket", ModelConfig())
    rosters = pocket_rosters(
        engine, **{OUTSIDE: {"program": f"{__name__}:hint_then_answer"}, "hint_actor": {}}
    )
    tasks = load_tasks("arithmetic", split="test", limit=4)
    try:
        for choice in (Choice.FREE, Choice.SPEAK, Choice.SILENT):
            jobs = [Job(task, Setting(choices={"hinter": choice})) for task in tasks]
            theirs, ours = [await play_all(roster, jobs) for roster in rosters]
            assert all(episode.grade for episode in ours)
            assert drawn(theirs) == drawn(ours)
            assert {e.calls[0].silent for e in theirs} == {choice is Choice.SILENT}
    finally:
        await engine.close()


def ask_four_at_once(base_url: str, task: Task) -> str:
    """As a parallel graph does: in no particular order."""
    with OpenAI(base_url=base_url, api_key="any") as client, ThreadPoolExecutor(4) as pool:

        def ask(text: str) -> str:
            time.sleep(random.uniform(0.0, 0.05))
            return says(client, "hinter", text)

        hints = list(pool.map(ask, [task.question, task.question, "What is 1 + 1?", "Hello"]))
        return says(client, "actor", "\n".join(sorted(hints)))


async def test_what_is_drawn_depends_on_no_order_of_arrival() -> None:
    engine = open_engine("pocket", ModelConfig())
    (roster,) = pocket_rosters(engine, **{OUTSIDE: {"program": f"{__name__}:ask_four_at_once"}})
    tasks = load_tasks("arithmetic", split="test", limit=3)
    jobs = [Job(t, Setting(seed=5, sample=s, training=True)) for t in tasks for s in range(2)]
    try:
        all_at_once = await play_all(roster, jobs, concurrency=6)
        in_turn = await play_all(roster, jobs, concurrency=1)
    finally:
        await engine.close()
    assert list(map(said, all_at_once)) == list(map(said, in_turn))
    for episode in in_turn:
        hints, (answer,) = episode.calls[:4], episode.calls[4:]
        assert {call.agent for call in hints} == {"hinter"} and answer.agent == "actor"
        assert all(
            call.policy == "" and len(call.logprobs) == len(call.output_ids) for call in hints
        )
        twice = [call for call in hints if call.messages[-1].content == episode_question(episode)]
        assert len(twice) == 2 and twice[0].output_ids != twice[1].output_ids
        longest = max(call.path_tokens for call in hints)
        assert answer.path_tokens == longest + answer.usage.generated


def said(episode: Episode) -> Any:
    """What was drawn, in no order: who of four is heard after whom is the threads' affair."""
    calls = [(c.agent, c.prompt_ids, c.output_ids, c.logprobs, c.choice) for c in episode.calls]
    return sorted(calls[:4], key=str), calls[4:], episode.answer, episode.grade, episode.error


def episode_question(episode: Episode) -> str:
    tasks = {task.id: task.question for task in load_tasks("arithmetic", split="test", limit=3)}
    return tasks[episode.task_id]


def talkative_client(base_url: str, task: Task) -> str:
    """Every way of asking that clients have."""
    parts: Any = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    with OpenAI(base_url=base_url, api_key="any") as client:
        SEEN["models"] = [model.id for model in client.models.list()]
        stream = client.chat.completions.create(
            model="gpt-anything",
            messages=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": parts},
            ],
            extra_headers={"x-tacit-role": "hinter"},
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        SEEN["stream"] = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        SEEN["finish"] = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
        SEEN["usage"] = chunks[-1].usage
        reply = client.chat.completions.create(
            model="actor",
            messages=[
                {"role": "user", "content": "first"},
                {"role": "assistant", "content": "and"},
                {"role": "user", "content": "second"},
            ],
            max_tokens=2,
            temperature=0.3,
            extra_body={"tacit": True},
        )
    SEEN["reply"] = reply
    SEEN["task"] = task
    return reply.choices[0].message.content or ""


async def test_every_way_of_asking() -> None:
    scripts = {"hinter": ["think of tens"], "actor": [r"\boxed{42} it is, surely"]}
    episode = await play(outside("talkative_client", scripts, actor={"max_tokens": 3}))
    assert episode.error is None and episode.answer == r"\boxed{42} it"
    assert episode.grade and episode.grade.right
    hint, answer = episode.calls
    assert SEEN["models"] == ["hinter", "actor"]
    assert (SEEN["stream"], SEEN["finish"]) == ("think of tens", "stop")
    assert SEEN["usage"].completion_tokens == 3
    assert system(hint) == "Be brief." and user(hint) == "one\ntwo"
    assert [m.role for m in answer.messages] == ["user", "assistant", "user"]
    assert SEEN["reply"].choices[0].finish_reason == "length"
    assert SEEN["reply"].tacit["conversation"][0]["agent"] == "actor"
    assert SEEN["task"].question == TASK.question and SEEN["task"].answer == ""


async def test_silence_is_an_empty_reply_and_the_agent_is_told_how() -> None:
    roster = outside(
        "hint_then_answer", {"hinter": [SILENT], "actor": ["7"]}, hinter={"silent": True}
    )
    episode = await play(roster)
    hint, answer = episode.calls
    assert hint.silent and episode.turns == 1
    assert system(hint) == f"{PARTS['hinter']} {SILENCE_SENTENCE}"
    assert user(answer) == TASK.question
    muted = await play(roster, setting=Setting(without=Cut.of(["hinter", "actor"])))
    assert muted.calls == () and muted.answer == "" and muted.error is None


def ask_the_second(base_url: str, task: Task) -> str:
    with OpenAI(base_url=base_url, api_key="any") as client:
        return says(client, "debater 2", "your turn")


async def test_agents_of_one_role_are_asked_by_their_names() -> None:
    roster = outside("ask_the_second", {"debater": ["mine"]}, debater={"count": 3})
    assert [call.agent for call in (await play(roster)).calls] == ["debater 2"]


async def async_program(base_url: str, task: Task) -> str:
    async with AsyncOpenAI(base_url=base_url, api_key="any") as client:
        asks = [
            client.chat.completions.create(
                model="actor", messages=[{"role": "user", "content": str(number)}]
            )
            for number in range(3)
        ]
        replies = await asyncio.gather(*asks)
    return " ".join(sorted(str(reply.choices[0].message.content) for reply in replies))


async def test_a_program_may_be_async() -> None:
    def echo(request: Request) -> str:
        return f"<{request.messages[-1].content}>"

    episode = await play(outside("async_program", {"actor": echo}))
    assert episode.answer == "<0> <1> <2>" and len(episode.calls) == 3


def refusals(base_url: str, task: Task) -> str:
    told = {}
    with OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        for name, more in {
            "model": {"model": "actr"},
            "tools": {"tools": [{"type": "function", "function": {"name": "f"}}]},
            "n": {"n": 2},
            "role": {"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]},
            "image": {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        }.items():
            asked: Any = {"model": "actor", "messages": [{"role": "user", "content": "x"}], **more}
            with pytest.raises(APIStatusError) as error:
                client.chat.completions.create(**asked)
            told[name] = error.value.status_code, error.value.body["message"]  # type: ignore[index]
    SEEN["told"] = told
    return "done"


async def test_what_cannot_be_done_is_refused_by_name_and_costs_nothing() -> None:
    episode = await play(outside("refusals", {"actor": ["x"]}))
    assert episode.answer == "done" and episode.calls == () and episode.error is None
    assert SEEN["told"] == {
        "model": (404, "the team has no agent `actr`: did you mean `actor`?"),
        "tools": (400, "`tools` is not supported"),
        "n": (400, "`n` is not supported"),
        "role": (400, "a message of role `tool` cannot be read"),
        "image": (400, "agents read text only"),
    }


def hides_failures(base_url: str, task: Task) -> str:
    with OpenAI(base_url=base_url, api_key="any") as client:
        try:
            return says(client, "actor", "x")
        except APIStatusError:
            return "I do not know."


@pytest.mark.parametrize("program", ["hint_then_answer", "hides_failures"])
async def test_a_failed_call_fails_the_episode_once_and_whatever_the_program_does(
    program: str,
) -> None:
    scripts = {"hinter": ["a hint"], "actor": [EngineError("the server is gone")] * 9}
    roster = outside(program, scripts)
    episode = await play(roster)
    assert episode.error == "EngineError: actor: the server is gone" and episode.grade is None
    assert [call.agent for call in episode.calls] == ["hinter"] * (program == "hint_then_answer")
    (actor,) = [agent.engine for agent in roster.agents if agent.role == "actor"]
    assert actor.calls == 1, "the client must not ask again"  # type: ignore[attr-defined]


async def test_a_server_that_refuses_us_stops_the_run() -> None:
    def refused(request: Request) -> str:
        raise Refused("actor: no money left")

    with pytest.raises(Refused, match="no money left"):
        await play(outside("hint_then_answer", {"hinter": ["a hint"], "actor": refused}))


def breaks(base_url: str, task: Task) -> str:
    raise KeyError("no such node")


def returns_a_number(base_url: str, task: Task) -> int:
    return 42


async def test_a_program_that_breaks_is_a_failure_with_its_own_words() -> None:
    episode = await play(outside("breaks", {"actor": ["x"]}))
    assert episode.error == f"EngineError: {__name__}:breaks: KeyError: 'no such node'"
    with pytest.raises(RunError, match=r"no episode succeeded out of 8: .*no such node"):
        await play_all(outside("breaks", {"actor": ["x"]}), [Job(TASK, Setting())] * 8)
    with pytest.raises(ConfigError, match="must return its answer as text, not int"):
        await play(outside("returns_a_number", {"actor": ["x"]}))


def hangs(base_url: str, task: Task) -> str:
    with OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        says(client, "actor", "x")
        SEEN["release"].wait(20)
        try:
            says(client, "actor", "too late")
        except Exception as error:
            SEEN["late"] = error
        SEEN["over"].set()
    return "late"


async def test_a_program_that_hangs_is_let_go_and_can_no_longer_speak() -> None:
    SEEN["release"], SEEN["over"] = threading.Event(), threading.Event()
    episode = await play(outside("hangs", {"actor": ["x", "y"]}, {"seconds": 0.5}))
    assert episode.error == f"EngineError: {__name__}:hangs did not finish within 0.5 seconds"
    assert len(episode.calls) == 1
    SEEN["release"].set()
    assert SEEN["over"].wait(20)
    assert "late" in SEEN, "the endpoint is closed behind the last episode"


def asks_twice(base_url: str, task: Task) -> str:
    with OpenAI(base_url=base_url, api_key="any") as client:
        says(client, "hinter", "one")
        return says(client, "hinter", "two")


async def test_arms_judge_one_choice_in_an_episode() -> None:
    roster = outside(
        "asks_twice", {"hinter": ["a", "b", "c"]}, hinter={"silent": True, "trained": True}
    )
    assert (await play(roster)).error is None
    spoken = Setting(training=True, choices={"hinter": Choice.SPEAK})
    with pytest.raises(ConfigError, match=r"asked `hinter` more than once.*use `floor`"):
        await play(roster, setting=spoken)


@pytest.mark.parametrize(
    ("options", "agent", "message"),
    [
        ({}, {}, "needs `program: …`"),
        ({"program": "solve"}, {}, "write `module:function`, not `solve`"),
        ({"program": "nowhere:solve"}, {}, "cannot import program `nowhere:solve`"),
        ({"program": f"{__name__}:SEEN"}, {}, "must be a function"),
        ({"program": f"{__name__}:breaks"}, {"system": "Be brief."}, "actor.system: the program"),
        ({"program": f"{__name__}:breaks", "second": 3}, {}, "did you mean `seconds`?"),
    ],
)
def test_a_config_is_refused_before_any_model_loads(options: Any, agent: Any, message: str) -> None:
    config = TeamConfig(topology=OUTSIDE, agents={"actor": AgentConfig(**agent)}, options=options)
    with pytest.raises(ConfigError, match=message):
        check_team(config)


def test_a_team_outside_is_served_as_one_model() -> None:
    scripts = {"hinter": ["think of tens"], "actor": [r"\boxed{42}"]}
    backend = TeamBackend("team", outside("hint_then_answer", scripts), "Box it.")
    with running(backend) as server:
        reply = server.post(ASKED | {"tacit": True}).json()
    assert reply["choices"][0]["message"]["content"] == r"\boxed{42}"
    assert reply["usage"]["completion_tokens"] == 4
    assert [said["agent"] for said in reply["tacit"]["conversation"]] == ["hinter", "actor"]


async def test_a_team_outside_is_trained_and_the_same_again(tmp_path: Path) -> None:
    """Token ids and log-probabilities that the learner takes: its own agree, and weights move."""
    team = {
        "topology": OUTSIDE,
        "options": {"program": f"{__name__}:hint_then_answer"},
        "agents": {
            "hinter": {"max_tokens": 32, "trained": True, "silent": True},
            "actor": {"max_tokens": 16},
        },
    }
    steps = {"steps": 2, "evaluate_every": 0, "tasks_per_step": 2, "group": 4}
    config = tiny_config(team=team, train=steps, silence={"warmup_steps": 0})
    await run_training(config, tmp_path / "one")
    await run_training(config, tmp_path / "two")
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("one", "two")]
    assert metrics[0] == metrics[1]
    lines = [json.loads(line) for line in metrics[0].splitlines()]
    steps_ = [line for line in lines if "train/mismatch_ratio" in line]
    assert len(steps_) == 2 and any(line["train/gradient_norm"] > 0 for line in steps_)
    assert all(line["train/mismatch_ratio"] == pytest.approx(1.0, abs=1e-3) for line in steps_)
    episodes = (tmp_path / "one" / "episodes" / "train.jsonl").read_text().splitlines()
    spoken = [call for line in episodes for call in json.loads(line)["calls"] if call["policy"]]
    assert len(spoken) == 2 * 2 * 4 and {call["choice"] for call in spoken} == {"speak"}
    assert all(call["silence_logprob"] < 0 for call in spoken)
