"""Agents that call tools: bounded, recorded, never heard, and safe from what tools do."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tacit.cli import conversation
from tacit.config import Config, TeamConfig
from tacit.economy.ledger import ledger
from tacit.engine.base import Request
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.engine.scripted import Script
from tacit.errors import ConfigError
from tacit.run.folder import EPISODE
from tacit.run.opening import is_greedy
from tacit.team.roster import build_roster
from tacit.team.setting import Setting
from tacit.team.tools import OUT_OF_CALLS, ToolContext, find_tool
from tacit.tools.function import tool_of
from tacit.types import Call, ChatMessage, Choice, Episode, Task, ToolCall, ToolSpec
from tests.helpers.outside_tools import COUNTED, INJECTION, add
from tests.helpers.scripted_teams import SILENT, TASK, play, scripted, user

HERE = "tests.team.test_tools"
OUTSIDE = "tests.helpers.outside_tools"
ADD = f"{OUTSIDE}:add"


def solo(script: Script, *tools: str, **settings: Any) -> Any:
    names = [name if name in ("python", "lookup") else f"{OUTSIDE}:{name}" for name in tools]
    return scripted("solo", {"actor": script}, actor={"tools": names, **settings})


def observations(call: Call) -> list[ChatMessage]:
    return [message for message in call.messages if message.role == "tool"]


async def observed(*calls: ToolCall, tools: tuple[str, ...], **settings: Any) -> str:
    """What the agent is told after calling."""
    episode = await play(solo([calls, r"\boxed{42}"], *tools, **settings))
    assert episode.grade and episode.grade.right, episode.error
    return "\n".join(message.content for message in observations(episode.calls[-1]))


async def test_a_tool_call_is_a_call_of_its_own_and_its_result_is_read_by_the_next() -> None:
    asked = ToolCall("add", '{"a": 17, "b": 25}', "id1")
    episode = await play(solo([asked, r"\boxed{42}"], "add"))
    first, last = episode.calls
    assert first.tool_calls == (asked,) and not first.is_turn and not first.withheld
    assert last.messages[: len(first.messages)] == first.messages
    assert last.messages[-2:] == (
        ChatMessage("assistant", first.text, (asked,)),
        ChatMessage("tool", "42", (asked,)),
    )
    assert episode.answer == r"\boxed{42}" and episode.turns == 1
    assert first.usage.observed == 0 and last.usage.observed == 1
    assert episode.usage.spent == episode.usage.generated + 1
    assert EPISODE.validate_json(EPISODE.dump_json(episode)) == episode


async def test_nobody_hears_a_tool_call_or_what_the_tool_said() -> None:
    asked = ToolCall("add", '{"a": 17, "b": 25}')
    roster = scripted(
        "hint_actor",
        {"hinter": [asked, "Add the tens."], "actor": ["42"]},
        hinter={"tools": [ADD]},
    )
    episode = await play(roster)
    assert "<hint>\nAdd the tens.\n</hint>" in user(episode.calls[2])
    assert not [m for m in episode.calls[2].messages if "tool_call" in m.content]
    (row, actor) = ledger([episode])
    assert (row.calls, row.tool_calls, row.turns, row.choices, row.silence) == (2, 1, 1, 1, 0.0)
    assert row.usage.observed == 1 and actor.usage.observed == 0


async def test_only_the_first_call_may_choose_silence() -> None:
    rules: list[Any] = []

    def script(request: Request) -> Any:
        rules.append(request.silence)
        return ToolCall("add", '{"a": 1}') if len(rules) == 1 else SILENT

    roster = scripted("hint_actor", {"hinter": script, "actor": ["42"]}, hinter={"tools": [ADD]})
    episode = await play(roster, setting=Setting(choices={"hinter": Choice.SPEAK}))
    first, second, actor = episode.calls
    assert rules[0].choice is Choice.SPEAK and rules[1] is None
    assert (first.choice, second.choice) == (Choice.SPEAK, Choice.FREE)
    assert first.may_be_silent and not second.may_be_silent
    assert second.unheard and not second.silent and not second.is_turn
    assert "<hint>" not in user(actor)


async def test_silence_runs_no_tool() -> None:
    roster = scripted("hint_actor", {"hinter": [SILENT], "actor": ["42"]}, hinter={"tools": [ADD]})
    first, _ = (await play(roster)).calls
    assert first.silent and not first.tool_calls


async def test_calls_are_bounded_and_then_whatever_is_said_is_the_message() -> None:
    again = ToolCall("add", '{"a": 1}')
    requests: list[Request] = []

    def script(request: Request) -> Any:
        requests.append(request)
        return (again, again)

    episode = await play(solo(script, "add", max_tool_calls=3))
    told = [m.content for m in observations(episode.calls[-1])]
    assert told == ["2", "2", "2", f"Not run.\n{OUT_OF_CALLS}"]
    assert [len(call.tool_calls) for call in episode.calls] == [2, 2, 0]
    assert [r.may_call for r in requests] == [True, True, False]
    assert episode.answer == episode.calls[-1].text


async def test_calls_are_bounded_over_an_episode_not_a_message() -> None:
    again = ToolCall("add", '{"a": 1}')
    replies = [again, "draft", "better"]
    roster = scripted(
        "self_refine",
        {"actor": lambda request: replies.pop(0)},
        actor={"tools": [ADD], "max_tool_calls": 1},
    )
    episode = await play(roster)
    assert [len(call.tool_calls) for call in episode.calls][:2] == [1, 0]
    assert len(episode.calls) >= 3


async def test_the_seed_of_each_call_differs_and_the_first_is_as_without_tools() -> None:
    seeds: list[int] = []

    def script(request: Request) -> Any:
        seeds.append(request.seed)
        return ToolCall("add", '{"a": 1}') if len(seeds) == 1 else "42"

    await play(solo(script, "add"))
    await play(scripted("solo", {"actor": script}))
    assert len({*seeds[:2]}) == 2 and seeds[2] == seeds[0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (ToolCall("add", '{"a": "one"}'), "Error: a: Input should be a valid integer"),
        (ToolCall("add", '{"a": 1, "c": 2}'), "Error: c: Extra inputs are not permitted"),
        (ToolCall("add", "{}"), "Error: a: Field required"),
        (ToolCall("add", "{a: 1"), "Error: the arguments are not JSON"),
        (ToolCall("add", "[1]"), "Error: the arguments must be a JSON object"),
        (ToolCall("add", "[" * 100_000), "Error: RecursionError"),
        (ToolCall("ad", "{}"), "Error: there is no tool `ad`; did you mean `add`?"),
        (ToolCall("", '{"a": 1}'), "Error: that is not a tool call; known: add"),
        (ToolCall("", '{"name": "say "hi""}'), "Error: the call is not JSON: Expecting ',' delim"),
    ],
)
async def test_bad_arguments_cost_one_observation(call: ToolCall, said: str) -> None:
    assert (await observed(call, tools=("add",))).startswith(said)


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("crash", "Error: KeyError: 'no such thing'"),
        ("leave", "Error: SystemExit: 3"),
        ("unsayable", "Error: Unsayable"),
        ("unsayable_exit", "Error: SystemExit"),
        ("hang_later", "Error: `hang_later` did not answer within 1 s"),
        ("leave_later", "Error: SystemExit: 3"),
        ("late_inside", "Error: TimeoutError: the database did not answer within 3 ms"),
        ("wordless", "Error: MemoryError"),
        ("hang", "Error: `hang` did not answer within 1 s"),
        ("block", "Error: `block` did not answer within 1 s"),
        ("vanish", "Error: the process of the tool ended with status 3"),
        ("raw", "café \ufffd\ufffd\ufffd[31m\ufffd31m\ufffd \ufffd\ufffd\ufffd"),
        ("half", "half ? of it"),
        ("own_object", '{"sum": 3, "of": "{1}"}'),
    ],
)
async def test_a_crash_or_an_endless_tool_costs_one_observation(tool: str, said: str) -> None:
    assert await observed(ToolCall(tool), tools=(tool,), tool_timeout=1.0) == said


async def test_a_module_keeps_what_it_holds_but_not_in_this_process() -> None:
    first, second = [await observed(ToolCall("count"), tools=("count",)) for _ in range(2)]
    assert int(second) == int(first) + 1 and COUNTED == [0]
    assert await observed(ToolCall("counted"), tools=("counted",)) == second


async def test_one_that_holds_up_its_process_holds_up_nothing_else() -> None:
    def search(words: str) -> Any:
        call = ToolCall("search", json.dumps({"words": words}))
        return observed(call, tools=("search",), tool_timeout=1.0)

    assert await search("a") == "True"
    async with asyncio.timeout(60):  # more of them than a pipe holds
        beside = [search("a" * 40_000) for _ in range(30)]
        first, *others = await asyncio.gather(search("a" * 60 + "b"), *beside)
        assert first == "Error: `search` did not answer within 1 s"
        assert {*others} <= {"True", first}
        assert await search("a") == "True"


async def test_what_a_tool_started_ends_with_its_process_and_does_not_hide_its_end() -> None:
    program = int(await observed(ToolCall("fork"), tools=("fork",)))
    told = await observed(ToolCall("vanish"), tools=("vanish",))
    assert told == "Error: the process of the tool ended with status 3"
    assert await observed(ToolCall("add", '{"a": 1}'), tools=("add",)) == "2"
    assert await ended(program)


async def test_a_process_that_a_call_outlived_ends_and_takes_no_more_calls() -> None:
    first = await observed(ToolCall("process"), tools=("process",))
    await observed(ToolCall("hang"), tools=("hang",), tool_timeout=0.1)
    assert await observed(ToolCall("process"), tools=("process",)) != first
    assert await ended(int(first))


async def ended(pid: int) -> bool:
    """Within half a minute; a process that nobody has waited for yet has ended, too."""
    for _ in range(300):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.1)
    return False


def test_a_functions_process_ends_with_the_run() -> None:
    script = f"""
import asyncio
from tacit.team.tools import OUT_OF_CALLS, ToolContext, find_tool
from tacit.tools import function
from tests.helpers.scripted_teams import TASK

async def call():
    context = ToolContext(task=TASK, agent="actor")
    asyncio.create_task(find_tool("{OUTSIDE}:hang").call({{}}, context))
    print(await find_tool("{OUTSIDE}:process").call({{}}, context))

asyncio.run(call())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(ran.stdout), 0)


async def test_a_module_that_only_this_process_can_import_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = "def once() -> str:\n    return 'once'\n"
    (tmp_path / "imported_once.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'lock')!r})\n{tool}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="`imported_once` in a process of its own: the process"):
        await find_tool("imported_once:once").call({}, ToolContext(task=TASK, agent="actor"))


async def test_a_flood_is_cut_in_its_middle() -> None:
    said = await observed(ToolCall("flood"), tools=("flood",), max_observation=300)
    assert said.startswith("beginx") and said.endswith("xend") and len(said) < 350
    assert "[… 4,999,708 characters left out …]" in said


async def test_what_a_tool_said_stays_quoted_data() -> None:
    said = await observed(ToolCall("inject"), tools=("inject",))
    assert said == INJECTION.replace("<", "&lt;")


async def test_a_tool_sees_its_callers_view_and_no_other() -> None:
    task = replace(
        TASK,
        answer="the reference",
        level="needed",
        views={"hinter": "mine", "actor": "theirs"},
        data={"visible": ["assert shown"], "tests": "assert hidden", "speak": {"hinter": True}},
    )
    roster = scripted(
        "hint_actor",
        {"hinter": [ToolCall("seen"), "x"], "actor": ["42"]},
        hinter={"tools": [f"{OUTSIDE}:seen"]},
    )
    episode = await play(roster, task)
    (said,) = observations(episode.calls[1])
    assert said.content.startswith("hinter of sum/1 sees 'mine' in ToolContext(")
    assert TASK.question in said.content and "assert shown" in said.content
    secrets = ("theirs", "the reference", "needed", "assert hidden", "speak")
    assert not [secret for secret in secrets if secret in said.content]


async def test_a_tool_cannot_change_the_task_for_those_after_it() -> None:
    task = replace(TASK, data={"visible": ["assert shown"]})
    episode = await play(solo([ToolCall("own"), "42"], "FORGET"), task)
    assert [message.content for message in observations(episode.calls[-1])] == ["gone"]
    assert task.data == {"visible": ["assert shown"]}


async def test_a_view_is_searched_instead_of_read_where_there_is_lookup() -> None:
    task = replace(TASK, views={"actor": "17 is big.\n\nParis is far.", "hinter": "Oslo is near."})
    search = ToolCall("lookup", '{"query": "Paris Oslo"}')
    episode = await play(solo([search, "42"], "lookup"), task)
    first, last = episode.calls
    assert "Paris" not in user(first) and "only the tool `lookup` shows you" in user(first)
    assert [m.content for m in observations(last)] == ["Paris is far."]
    plain = await play(scripted("solo", {"actor": ["42"]}), task)
    assert "Paris is far." in user(plain.calls[0])


async def test_another_tool_called_lookup_hides_no_view() -> None:
    task = replace(TASK, views={"actor": "Paris is far."})
    tools = {"tools": [f"{OUTSIDE}:OTHER_LOOKUP"]}
    episode = await play(scripted("solo", {"actor": ["42"]}, actor=tools), task)
    assert "Paris is far." in user(episode.calls[0])


async def test_a_searched_view_stays_out_of_the_prompt_when_no_calls_are_left() -> None:
    task = replace(TASK, views={"actor": "17 is big.\n\nParis is far."})
    replies = [ToolCall("lookup", '{"query": "Paris"}'), "draft", "better"]
    roster = scripted(
        "self_refine",
        {"actor": lambda request: replies.pop(0) if replies else "42"},
        actor={"tools": ["lookup"], "max_tool_calls": 1},
    )
    later = (await play(roster, task)).calls[2:]
    assert later and not [call for call in later if "17 is big." in user(call)]
    assert f"shows you)\n{OUT_OF_CALLS}" in user(later[0])


async def test_parallel_branches_count_their_calls_apart() -> None:
    """Which of two agents finishes first must not decide who may call."""
    roster = scripted(
        "self_consistency",
        {"actor": lambda request: "42" if observed_any(request) else ToolCall("add", '{"a": 1}')},
        actor={"tools": [ADD], "max_tool_calls": 1},
        options={"samples": 3},
    )
    episode = await play(roster)
    assert [len(call.tool_calls) for call in episode.calls] == [1, 0] * 3


def observed_any(request: Request) -> bool:
    return any(message.role == "tool" for message in request.messages)


async def test_a_final_answer_is_streamed_only_where_no_tool_can_be_called() -> None:
    heard: list[str] = []
    setting = Setting()
    setting = replace(setting, answering=replace(setting.answering, on_text=heard.append))
    await play(solo([ToolCall("add", '{"a": 1}'), "the answer"], "add"), setting=setting)
    assert heard == []
    script = [ToolCall("add", '{"a": 1}'), "the answer"]
    await play(solo(script, "add", max_tool_calls=1), setting=setting)
    assert "".join(heard) == "the answer"


def test_a_tool_is_described_by_its_function() -> None:
    spec = find_tool(ADD).spec
    assert spec == ToolSpec(
        name="add",
        description="Adds two numbers.",
        parameters={
            "additionalProperties": False,
            "properties": {"a": {"type": "integer"}, "b": {"default": 1, "type": "integer"}},
            "required": ["a"],
            "type": "object",
        },
    )
    assert "context" not in find_tool(f"{OUTSIDE}:seen").spec.parameters["properties"]
    python = find_tool("python")
    assert python.spec.name == "python" and list(python.spec.parameters["properties"]) == ["code"]
    title = tool_of(_titled).spec.parameters["properties"]
    assert title == {"title": {"type": "string"}}


def _titled(title: str) -> str:
    """Has a parameter called title."""
    return title


async def test_what_an_annotation_says_is_told_and_held_to() -> None:
    spec = find_tool(f"{OUTSIDE}:echo").spec
    word = {"description": "A short word.", "maxLength": 3, "type": "string"}
    assert spec.description == "Says a word again." and spec.parameters["properties"] == {
        "word": word
    }
    assert await observed(ToolCall("echo", '{"word": "hey"}'), tools=("echo",)) == "actor: hey"
    told = await observed(ToolCall("echo", '{"word": "hello"}'), tools=("echo",))
    assert told.startswith("Error: word: String should have at most 3 characters")


async def test_a_tool_object_of_ones_own() -> None:
    assert await observed(ToolCall("own", '{"x": [1]}'), tools=("OWN",)) == "{'x': [1]}"


def any_number(*words: str) -> str:
    """Takes any number of words."""
    return " ".join(words)


def any_names(**words: str) -> str:
    """Takes words by any names."""
    return " ".join(words.values())


def by_place(word: str, /) -> str:
    """Takes a word by its place."""
    return word


def hidden_name(_word: str) -> str:
    """Has a parameter that pydantic takes for private."""
    return _word


def of_a_class(team: "Calling") -> str:
    """Takes what no model can write."""
    return str(team)


PART = partial(add, 1)


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("pyton", "team.agents.actor.tools: unknown tool `pyton`: did you mean `python`?"),
        ("nowhere:tool", "team.agents.actor.tools: cannot import tool `nowhere:tool`"),
        (f"{HERE}:HERE", f"team.agents.actor.tools: tool `{HERE}:HERE` must be a function"),
        ("mcp/files", "team.agents.actor.tools: unknown MCP server `files`: there are none"),
        (f"{HERE}:any_number", "team.agents.actor.tools: tool `any_number`: `*words` cannot"),
        (f"{HERE}:any_names", "team.agents.actor.tools: tool `any_names`: `**words` cannot"),
        (f"{HERE}:by_place", "team.agents.actor.tools: tool `by_place`: `word` cannot"),
        (f"{HERE}:hidden_name", "team.agents.actor.tools: tool `hidden_name`: `_word` cannot"),
        (f"{HERE}:of_a_class", "team.agents.actor.tools: tool `of_a_class`: Unable to generate"),
        (f"{HERE}:PART", f"team.agents.actor.tools: tool `{HERE}:PART` must be a function"),
    ],
)
def test_a_tool_that_is_not_there_is_a_config_error(tool: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        scripted("solo", {"actor": ["42"]}, actor={"tools": [tool]})
    assert str(error.value).startswith(said)


def test_a_function_of_the_script_itself_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "add", add, raising=False)
    with pytest.raises(ConfigError, match="`add`: it must be in a module that another process can"):
        find_tool("__main__:add")


async def test_two_tools_of_one_name_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="have the same name"):
        await play(solo(["42"], "add", "add"))


def test_an_agent_with_tools_from_outside_may_answer_otherwise_next_time() -> None:
    for tools, greedy in (["python", "lookup"], True), ([ADD], False):
        team = {"topology": "solo", "agents": {"actor": {"tools": tools}}}
        config = Config.model_validate({"team": team})
        assert config.team and is_greedy(config, config.team, "actor") is greedy


def test_play_shows_calls_and_observations_as_what_they_are() -> None:
    asked = ToolCall("add", '{"a": 1}')
    episode = asyncio.run(play(solo([asked, "It is [bold]2[/bold]."], "add")))
    with conversation.out.capture() as shown:
        for call in episode.calls:
            conversation.show_call(call)
        conversation.show_played(episode, None)
    text = " ".join(shown.get().split())
    assert text.startswith("actor (") and ' calls tools <tool_call>{"name": "add"' in text
    assert "</tool_call> add told actor 2 actor (" in text and "It is [bold]2[/bold]." in text
    assert text.endswith("read (1 of them from tools)")


@pytest.fixture(scope="module")
def pocket() -> Iterator[LocalEngine]:
    engine = LocalEngine(load_model("pocket"), rows=8)
    yield engine
    asyncio.run(engine.close())


class Calling:
    """The pocket model, whose texts are taken for tool calls: it would not call by itself."""

    def __init__(self, engine: LocalEngine, calls: int) -> None:
        self.model, self.policy, self.version = engine.model, engine.policy, engine.version
        self._engine, self._left = engine, calls
        self.requests: list[Request] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, request: Request) -> Any:
        self.requests.append(request)
        done = await self._engine.generate(request)
        self._left -= 1
        calls = (ToolCall("add", '{"a": 41}', "call00001"),) if self._left >= 0 else ()
        return replace(done, tool_calls=calls)


async def test_with_a_real_model_ids_are_appended_exactly(pocket: LocalEngine) -> None:
    engine = Calling(pocket, 2)
    config = TeamConfig.model_validate(
        {
            "topology": "solo",
            "agents": {"actor": {"tools": [ADD], "temperature": 1.0, "max_tokens": 64}},
        }
    )
    task = Task(id="t", question="What is 3 + 4?", answer="7", grader="math")
    episode: Episode = await play(build_roster(config, {"actor": engine}), task)
    first, second, third = episode.calls
    for before, after in ((first, second), (second, third)):
        begun = before.prompt_ids + before.output_ids
        assert after.prompt_ids[: len(begun)] == begun
        more = after.prompt_ids[len(begun) :]
        tokenizer = pocket._loaded.tokenizer
        said = '\n<|im_start|>user\n<observation from="add">\n42\n</observation><|im_end|>\n'
        assert tokenizer.decode(more) == said + "<|im_start|>assistant\n"
        assert after.usage.observed == len(more)
        assert after.usage.prompt == len(after.prompt_ids)
    assert first.usage.observed == 0
    assert episode.usage.observed == second.usage.observed + third.usage.observed


async def test_observations_that_no_longer_fit_are_the_teams_own_overflow(
    pocket: LocalEngine,
) -> None:
    config = TeamConfig.model_validate(
        {
            "topology": "solo",
            "agents": {
                "actor": {
                    "tools": [ADD],
                    "max_input_tokens": 240,
                    "max_tool_calls": 50,
                }
            },
        }
    )
    task = Task(id="t", question="What is 3 + 4?", answer="7", grader="math")
    episode = await play(build_roster(config, {"actor": Calling(pocket, 50)}), task)
    assert episode.overflowed and "max_input_tokens 240" in (episode.error or "")
