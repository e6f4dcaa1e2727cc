"""What one call carries: its seed, how it samples, what may be too long, what is written down."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.config import AgentConfig, Config, TeamConfig
from tacit.engine.base import Completion, Request, derive_seed
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import ConfigError, EngineError
from tacit.run.folder import EPISODE, RunFolder
from tacit.team.prompts import PARTS
from tacit.team.roster import Roster, build_roster, check_team
from tacit.team.seat import Seat
from tacit.team.setting import Guard, Prompt, Setting
from tacit.team.team import Team
from tacit.types import Choice, Episode, Grade, Message, Task
from tests.helpers.scripted_teams import SILENT, TASK, play, scripted, system

SUM = Task(id="sum/2", question="What is 31 + 25?", answer="56", grader="math", level="easy")


class Listener:
    """A script that says the same to everyone and keeps the requests."""

    def __init__(self, reply: str = "x") -> None:
        self.reply = reply
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> str:
        self.requests.append(request)
        return self.reply

    @property
    def seeds(self) -> list[int]:
        return [request.seed for request in self.requests]


async def test_a_seed_is_made_of_run_step_task_sample_agent_and_call_number() -> None:
    actor, critic = Listener(), Listener()
    roster = scripted("critic_actor", {"actor": actor, "critic": critic}, options={"rounds": 2})
    await play(roster, TASK, Setting(seed=7, step=3, sample=2))
    expected = [derive_seed(7, 3, "sum/1", 2, "actor", number) for number in (1, 2, 3)]
    assert actor.seeds == expected
    assert critic.seeds == [derive_seed(7, 3, "sum/1", 2, "critic", number) for number in (1, 2)]
    assert len({*actor.seeds, *critic.seeds}) == 5


class Strict(Guard):
    """Keeps some from speaking and the others short; notes who was to answer, after whom."""

    def __init__(self, *silenced: str, after: int = 0) -> None:
        self.asked: list[tuple[str, bool, bool, list[str]]] = []
        self.silenced, self.after = silenced, after

    def most_tokens(
        self, seat: Seat, prompt: Prompt, *, answers: bool, final: bool, foreign: bool = False
    ) -> int:
        heard = [call.text for call in seat.team.heard]
        self.asked.append((seat.name, answers, final, heard))
        return 0 if seat.name in self.silenced and len(heard) >= self.after else 2


async def test_a_guard_keeps_agents_silent_or_short() -> None:
    guard, actor = Strict("hinter"), Listener("one two three")
    episode = await play(
        scripted("hint_actor", {"hinter": [], "actor": actor}), TASK, Setting(guard=guard)
    )
    assert actor.requests[0].messages[-1].content == TASK.question
    assert [(call.agent, call.text) for call in episode.calls] == [("actor", "one two")]
    assert guard.asked == [("hinter", False, False, []), ("actor", True, True, [])]


async def test_whoever_is_kept_from_answering_again_keeps_its_last_answer() -> None:
    debaters = iter([r"\boxed{1}", r"\boxed{2}", r"\boxed{1}"])
    roster = scripted("debate", {"debater": lambda request: next(debaters)}, debater={"count": 2})
    episode = await play(roster, TASK, Setting(guard=Strict("debater 2", after=2)))
    assert [call.agent for call in episode.calls] == ["debater 1", "debater 2", "debater 1"]
    seen = episode.calls[-1].messages[-1].content
    assert r"\boxed{2}" in seen and episode.answer == r"\boxed{1}"


async def test_a_guard_is_told_what_an_agents_branch_has_heard() -> None:
    guard, options = Strict(), {"rounds": 2}
    scripts = {"debater": lambda request: "a", "collaborator": lambda request: "b"}
    team = scripted("debate", scripts, debater={"count": 2}, options=options)
    await play(team, TASK, Setting(guard=guard))
    heard = [(name, answers, said) for name, answers, _, said in guard.asked]
    assert heard == [
        ("collaborator", False, []),
        *((f"debater {n}", True, ["b"]) for n in (1, 2)),
        *((f"debater {n}", True, ["b", "a", "a"]) for n in (1, 2)),
    ]


async def test_seeds_differ_with_everything_that_names_an_episode() -> None:
    actor = Listener()
    roster = scripted("solo", {"actor": actor})
    settings = [Setting(), Setting(seed=1), Setting(step=1), Setting(sample=1)]
    for setting in settings:
        await play(roster, TASK, setting)
    await play(roster, SUM)
    assert len(set(actor.seeds)) == 5
    await play(roster)
    assert actor.seeds[-1] == actor.seeds[0]


async def test_samples_drawn_together_have_seeds_of_their_own() -> None:
    actor = Listener()
    await play(scripted("self_consistency", {"actor": actor}, options={"samples": 6}))
    assert len(set(actor.seeds)) == 6


async def test_a_collaborator_does_not_change_the_draws_of_the_others() -> None:
    alone, advised = Listener(r"\boxed{1}"), Listener(r"\boxed{1}")
    await play(scripted("debate", {"debater": alone}, debater={"count": 3}))
    scripts = {"debater": advised, "collaborator": [SILENT]}
    await play(scripted("debate", scripts, debater={"count": 3}))
    assert advised.seeds == alone.seeds and len(set(alone.seeds)) == 6


async def two_chains(task: Task, team: Team) -> Message:
    """Two strands that ask the same agent several times each."""

    async def chain(tag: str) -> Message:
        first = await team.actor.ask(f"{tag} one")
        return await team.actor.ask(f"{tag} two", draft=first)

    await team.actor.ask("before")
    await team.together(chain("left"), chain("right"))
    return await team.actor.ask("after")


async def test_neither_seeds_nor_order_depend_on_which_strand_is_faster() -> None:
    async def transcript(slow: str) -> list[tuple[str, int]]:
        seeds: dict[str, int] = {}

        async def script(request: Request) -> str:
            said = request.messages[-1].content.partition("\n")[0]
            seeds[said] = request.seed
            for _ in range(20 if slow in said else 1):
                await asyncio.sleep(0)
            return said

        episode = await play(scripted("tests.team.test_team:two_chains", {"actor": script}))
        return [(call.text, seeds[call.text]) for call in episode.calls]

    left, right = await transcript("left"), await transcript("right")
    assert left == right
    said = ["before", "left one", "left two", "right one", "right two", "after"]
    assert [text for text, _ in left] == said
    assert len({seed for _, seed in left}) == 6


async def test_nothing_asked_together_is_no_message() -> None:
    await play(scripted("tests.team.test_team:asks_nobody", {"actor": ["x"]}))


async def asks_nobody(task: Task, team: Team) -> Message:
    assert await team.together() == []
    return await team.actor.ask(task.question)


@pytest.mark.parametrize(
    ("agent", "training", "temperature"),
    [
        ({}, False, 0.0),
        ({}, True, 0.0),
        ({"temperature": 0.3}, False, 0.3),
        ({"temperature": 0.3}, True, 0.3),
        ({"trained": True}, True, 1.0),
        ({"trained": True}, False, 0.0),
        ({"trained": True, "temperature": 0.8}, True, 0.8),
        ({"trained": True, "temperature": 0.8}, False, 0.0),
    ],
)
async def test_frozen_agents_are_greedy_and_trained_ones_explore_only_in_training(
    agent: dict[str, Any], training: bool, temperature: float
) -> None:
    actor = Listener()
    await play(scripted("solo", {"actor": actor}, actor=agent), TASK, Setting(training=training))
    assert actor.requests[0].sampling.temperature == temperature


async def test_where_samples_must_differ_the_role_has_a_temperature() -> None:
    for agent, temperature in (({}, 0.7), ({"temperature": 0.2}, 0.2), ({"trained": True}, 0.7)):
        actor = Listener()
        roster = scripted("self_consistency", {"actor": actor}, actor=agent)
        await play(roster)
        assert {r.sampling.temperature for r in actor.requests} == {temperature}


async def test_sampling_and_silence_settings_reach_the_engine() -> None:
    hinter, actor = Listener("hint"), Listener()
    settings = {"top_p": 0.9, "top_k": 5, "max_tokens": 17}
    roster = scripted("hint_actor", {"hinter": hinter, "actor": actor}, hinter=settings)
    setting = Setting(choices={"hinter": Choice.FLOOR}, floor=0.2)
    episode = await play(roster, TASK, setting)
    sampling, rule = hinter.requests[0].sampling, hinter.requests[0].silence
    assert (sampling.top_p, sampling.top_k, sampling.max_tokens) == (0.9, 5, 17)
    assert rule is not None and (rule.choice, rule.floor) == (Choice.FLOOR, 0.2)
    assert actor.requests[0].silence is None
    assert [call.choice for call in episode.calls] == [Choice.FLOOR, Choice.FREE]


async def test_silence_that_is_played_is_recorded_as_such() -> None:
    roster = scripted("hint_actor", {"hinter": ["never said"], "actor": ["x"]})
    episode = await play(roster, TASK, Setting(choices={"hinter": Choice.SILENT}))
    assert episode.calls[0].silent and episode.calls[0].choice is Choice.SILENT


@pytest.mark.parametrize("prompts", ["tagged", "role_last", "published"])
async def test_a_call_records_whether_it_could_have_been_silent(prompts: str) -> None:
    scripts = {"agent": ["one", SILENT, r"\\boxed{42}"]}
    roster = scripted(
        "dialogue", scripts, options={"rounds": 1}, prompts=prompts, agent={"count": 2}
    )
    episode = await play(roster)
    assert [call.may_be_silent for call in episode.calls] == [True, True, False]
    old = EPISODE.dump_python(episode, mode="json")
    for call in old["calls"]:
        del call["may_be_silent"]
    assert EPISODE.validate_python(old) == episode, (
        "calls recorded before this was are read as well"
    )


class Speller(ScriptedEngine):
    """Says a text, the marker unless told, with tokens of its choice."""

    def __init__(self, *ids: int, text: str = SILENT) -> None:
        super().__init__(lambda request: text)
        self.ids = ids

    def silence_ids(self) -> tuple[int, ...]:
        return (5, 6, 0)

    async def generate(self, request: Request) -> Completion:
        said = await super().generate(request)
        return replace(said, ids=self.ids, logprobs=(-1.0,) * len(self.ids))


async def spelled(choice: Choice, *ids: int, text: str = SILENT) -> tuple[Episode, str]:
    """A hint in these tokens; the episode, and what the Actor was shown."""
    config = TeamConfig(
        topology="hint_actor", agents={"hinter": AgentConfig(), "actor": AgentConfig()}
    )
    engines = {"hinter": Speller(*ids, text=text), "actor": ScriptedEngine(["x"])}
    setting = Setting(choices={"hinter": choice}, floor=0.1)
    episode = await play(build_roster(config, engines), TASK, setting)
    return episode, episode.calls[1].messages[-1].content


@pytest.mark.parametrize("text", [SILENT, f" {SILENT}"], ids=["read", "misread"])
@pytest.mark.parametrize("end", [0, 9], ids=["the turn's end", "another end"])
async def test_ids_alone_decide_what_silence_is(text: str, end: int) -> None:
    """A tokenizer may give the marker back with a blank before it."""
    episode, shown = await spelled(Choice.SILENT, 5, 6, end, text=text)
    assert episode.calls[0].silent and episode.turns == 1
    assert "<hint>" not in shown


@pytest.mark.parametrize("choice", [Choice.FLOOR, Choice.FREE])
async def test_a_marker_in_other_tokens_reaches_nobody_and_is_speech_to_the_learner(
    choice: Choice,
) -> None:
    episode, shown = await spelled(choice, 5, 7, 8, 0)
    hint, _ = episode.calls
    assert not hint.silent and hint.unheard and hint.logprobs == (-1.0,) * 4
    assert episode.turns == 1 and "<hint>" not in shown


@pytest.mark.parametrize("tail", [SILENT, f" {SILENT}\n", f"{SILENT} {SILENT}"])
async def test_a_message_is_cut_off_at_the_marker_that_it_ends_in(tail: str) -> None:
    episode, shown = await spelled(Choice.FREE, 5, 7, 0, text=f"Four inches. {tail}")
    hint, _ = episode.calls
    assert not hint.silent and not hint.unheard and episode.turns == 2
    assert "<hint>\nFour inches.\n</hint>" in shown
    assert hint.text.endswith(tail), "the record has what was said"


async def test_a_marker_inside_a_message_stays() -> None:
    _, shown = await spelled(Choice.FREE, 5, 7, 0, text=f"{SILENT} is not my answer")
    assert "is not my answer\n</hint>" in shown


async def test_only_a_trained_agents_calls_name_the_policy() -> None:
    roster = scripted("hint_actor", {"hinter": ["h"], "actor": ["x"]}, hinter={"trained": True})
    for agent in roster.agents:
        agent.engine.policy = "team"
    assert [call.policy for call in (await play(roster)).calls] == ["team", ""]


def test_a_team_knows_who_sits_in_it() -> None:
    scripts = {"debater": Listener(), "collaborator": Listener()}
    roster = scripted("debate", scripts, debater={"count": 3})
    team = roster.seat(TASK, Setting())
    assert [seat.name for seat in team.all("debater")] == ["debater 1", "debater 2", "debater 3"]
    assert isinstance(team.debater, Seat) and team.debater.name == "debater 1"
    assert team.has("collaborator") and team.collaborator.name == "collaborator"
    assert not team.has("actor") and team.all("actor") == []
    with pytest.raises(AttributeError, match="this team has no `actor`"):
        _ = team.actor


async def test_a_failure_in_one_strand_is_the_episodes_failure() -> None:
    scripts = {"debater": [r"\boxed{1}", EngineError("server: 503 overloaded"), r"\boxed{1}"]}
    episode = await play(scripted("debate", scripts, debater={"count": 3}))
    assert episode.error == "EngineError: debater: server: 503 overloaded"
    assert episode.grade is None and episode.answer == ""
    assert [call.agent for call in episode.calls] == ["debater 1", "debater 3"]


async def test_half_a_character_from_a_server_neither_breaks_the_run_nor_the_transcript(
    tmp_path: Path,
) -> None:
    scripts = {"hinter": ["smile \ud83d"], "actor": [r"\boxed{42}"]}
    episode = await play(scripted("hint_actor", scripts))
    run = RunFolder.open(tmp_path, Config())
    run.append_episode("t", episode)
    assert list(run.episodes("t")) == [episode]
    assert [call.text for call in episode.calls] == ["smile ?", r"\boxed{42}"]


async def returns_text(task: Task, team: Team) -> str:
    return (await team.actor.ask(task.question)).text


async def test_a_topology_that_returns_no_message_is_told_so() -> None:
    roster = scripted("tests.team.test_team:returns_text", {"actor": ["x"]})
    said = "it must return the answering Message, not str"
    assert (await play(roster)).error == f"TopologyError: returns_text: {said}"


async def asks_a_scout(task: Task, team: Team) -> Message:
    said = await team.scout.ask(task.question)
    return await team.judge_of_it.ask(task.question, messages=[said])


async def test_a_helper_of_an_own_role_is_not_told_how_to_answer() -> None:
    scripts = {"scout": ["add"], "judge_of_it": ["42"]}
    roster = scripted("tests.team.test_team:asks_a_scout", scripts, scout={"silent": True})
    helper, answers = (await play(roster)).calls
    assert TASK.instruction not in system(helper) and PARTS["hinter"] in system(helper)
    assert TASK.instruction in system(answers)
    told = scripted(
        "tests.team.test_team:asks_a_scout", scripts, scout={"silent": True, "system": "Scout."}
    )
    assert system((await play(told)).calls[0]).startswith("Scout. ")


async def with_options(task: Task, team: Team, depth: int, style: str = "dry") -> Message:
    return await team.actor.ask(task.question)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"team.options: tests.team.test_team:with_options needs `depth: …`"),
        ({"depth": "two"}, r"team.options.depth: input should be a valid integer, got 'two'"),
        ({"depth": 0}, r"team.options.depth: must be at least 1, got 0"),
        ({"depth": 1, "stile": "x"}, r"team.options.stile: .* did you mean `style`\?"),
    ],
)
def test_options_are_held_against_the_functions_own_signature(
    options: dict[str, Any], message: str
) -> None:
    config = TeamConfig(
        topology="tests.team.test_team:with_options",
        agents={"actor": AgentConfig()},
        options=options,
    )
    with pytest.raises(ConfigError, match=message):
        check_team(config)


@pytest.fixture
async def pocket() -> AsyncIterator[LocalEngine]:
    engine = LocalEngine(load_model("pocket"))
    yield engine
    await engine.close()


def solo_on(engine: LocalEngine, **agent: Any) -> Any:
    config = TeamConfig(topology="solo", agents={"actor": AgentConfig(max_tokens=24, **agent)})
    return build_roster(config, {"actor": engine})


async def test_a_prompt_over_the_agents_limit_fails_before_the_call(pocket: LocalEngine) -> None:
    length = len((await play(solo_on(pocket), SUM)).calls[0].prompt_ids)
    fits = await play(solo_on(pocket, max_input_tokens=length), SUM)
    assert fits.error is None and len(fits.calls) == 1
    over = await play(solo_on(pocket, max_input_tokens=length - 1), SUM)
    size = f"a prompt of {length} tokens is over its max_input_tokens {length - 1}"
    alone = "the question alone does not fit: raise that limit"
    assert over.error == f"PromptTooLong: actor: {size}; {alone}"
    assert over.calls == () and over.grade is None


async def test_a_view_that_does_not_fit_is_said_to_be_the_reason(pocket: LocalEngine) -> None:
    length = len((await play(solo_on(pocket), SUM)).calls[0].prompt_ids)
    noted = replace(SUM, views={"actor": "31 is odd. " * 20})
    for limit, said in (
        (length, "its view does not fit beside the question: shorten it or raise that limit"),
        (length - 1, "the question alone does not fit: raise that limit"),
    ):
        episode = await play(solo_on(pocket, max_input_tokens=limit), noted)
        assert episode.error and episode.error.endswith(f"max_input_tokens {limit}; {said}")
        assert episode.grade is None and not episode.overflowed


async def test_a_prompt_over_the_models_context_is_a_failed_episode(pocket: LocalEngine) -> None:
    long = Task(id="long", question="What is 31 + 25? " * 500, answer="56", grader="math")
    episode = await play(solo_on(pocket), long)
    assert episode.error is not None and episode.error.startswith("PromptTooLong: pocket")
    assert episode.grade is None


def hint_on(engines: Mapping[str, LocalEngine], **actor: Any) -> Roster:
    agents = {"hinter": AgentConfig(), "actor": AgentConfig(max_tokens=8, **actor)}
    return build_roster(TeamConfig(topology="hint_actor", agents=agents), engines)


def hint(choice: Choice) -> Setting:
    return Setting(choices={"hinter": choice})


async def test_a_prompt_made_too_long_by_what_was_said_is_a_wrong_answer_with_its_cost(
    pocket: LocalEngine,
) -> None:
    small = LocalEngine(load_model("pocket"), context=60)
    for engines, limit, says in (
        (dict.fromkeys(("hinter", "actor"), pocket), 60, "is over its max_input_tokens 60"),
        ({"hinter": pocket, "actor": small}, None, "exceed the context of 60"),
    ):
        roster = hint_on(engines, max_input_tokens=limit)
        silent = await play(roster, SUM, hint(Choice.SILENT))
        assert silent.error is None and len(silent.calls) == 2
        over = await play(roster, SUM, hint(Choice.SPEAK))
        assert over.error is not None and over.error.startswith("Overflow: ")
        assert over.error.endswith(f"{says}, because of what was said before")
        assert over.grade == Grade(reward=0.0, right=False) and over.overflowed
        assert [call.agent for call in over.calls] == ["hinter"]
        assert over.turns == 1 and over.usage.generated > 0
    await small.close()


async def test_a_question_that_fits_nowhere_is_nobodys_doing_whatever_was_said(
    pocket: LocalEngine,
) -> None:
    roster = hint_on(dict.fromkeys(("hinter", "actor"), pocket), max_input_tokens=5)
    for choice in (Choice.SILENT, Choice.SPEAK):
        episode = await play(roster, SUM, hint(choice))
        assert episode.error is not None and "the question alone does not fit" in episode.error
        assert episode.grade is None and not episode.overflowed


async def long_winded(task: Task, team: Team) -> Message:
    """Asks for more than the question before anybody has spoken."""
    return await team.actor.ask(task.question * 20)


async def test_a_prompt_that_the_topology_itself_made_too_long_is_no_wrong_answer(
    pocket: LocalEngine,
) -> None:
    config = TeamConfig(
        topology="tests.team.test_team:long_winded",
        agents={"actor": AgentConfig(max_input_tokens=60, max_tokens=8)},
    )
    episode = await play(build_roster(config, {"actor": pocket}), SUM)
    assert episode.error is not None and episode.error.startswith("PromptTooLong: actor")
    assert episode.grade is None


async def hint_to_three(task: Task, team: Team) -> Message:
    said = await team.hinter.ask(task.question)
    short, over, other = team.actor, team.narrow, team.actor
    return (
        await team.together(
            short.ask(task.question, hint=said),
            over.ask(task.question, hint=said),
            other.ask(task.question),
        )
    )[0]


async def test_what_was_asked_together_with_an_overflow_is_counted(pocket: LocalEngine) -> None:
    config = TeamConfig(
        topology="tests.team.test_team:hint_to_three",
        agents={
            "hinter": AgentConfig(),
            "actor": AgentConfig(max_tokens=8),
            "narrow": AgentConfig(max_tokens=8, max_input_tokens=60),
        },
    )
    roster = build_roster(config, dict.fromkeys(config.agents, pocket))
    episode = await play(roster, SUM)
    assert episode.overflowed
    assert [call.agent for call in episode.calls] == ["hinter", "actor", "actor"]


async def test_a_call_is_written_down_as_it_was_served(pocket: LocalEngine) -> None:
    call = (await play(solo_on(pocket), SUM)).calls[0]
    assert call.prompt_ids == pocket.encode(call.messages)
    assert len(call.output_ids) == len(call.logprobs) == call.usage.generated > 0
    assert call.usage.prompt == len(call.prompt_ids)
    assert all(logprob <= 0 for logprob in call.logprobs)
    assert call.model == "pocket" and call.seconds > 0 and call.part == "solver"
