"""Playing a step's groups: both arms where they are asked for, and no failed episode in any."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tacit.config import Config, TeamConfig
from tacit.config.file import parse_config
from tacit.economy.reward import Multipliers
from tacit.engine.base import Request
from tacit.errors import ConfigError, RunError
from tacit.grading import grade
from tacit.learn.assemble import check_training
from tacit.learn.credit import Credit
from tacit.learn.metrics import step_metrics
from tacit.learn.task_sampler import TaskSampler
from tacit.learn.track import TRACKERS, Trackers, check_trackers
from tacit.rollout.groups import Player, check_budget, choosing_roles, several_choices
from tacit.run.opening import is_greedy
from tacit.silence import open_silence
from tacit.silence.arms import alternatives
from tacit.team.roster import Roster
from tacit.team.team import Team
from tacit.types import Choice, Message, Task
from tests.helpers.scripted_teams import scripted

Script = Callable[[Request], str]


def tasks(count: int) -> list[Task]:
    return [
        Task(id=f"t{i}", question=f"What is {i} + 1?", answer=str(i + 1), grader="math")
        for i in range(count)
    ]


def player_of(roster: Roster, config: Config) -> Player:
    assert config.team is not None
    silence = open_silence(config.silence, choosing=bool(choosing_roles(config.team)))
    fixed = {role for role in config.team.agents if is_greedy(config, config.team, role)}
    return Player(roster, grade, config, silence, fixed)


def make(
    hint: Script | str = "add one", *, exploration: str = "arms", actor: Any = None, **train: Any
) -> Player:
    agents = {"hinter": {"trained": True}, "actor": actor or {}}
    team = {"topology": "hint_actor", "agents": agents}
    tree = {"team": team, "silence": {"exploration": exploration}, "train": {"group": 3, **train}}
    config: Config = parse_config(tree)
    said = hint if callable(hint) else (lambda request: hint)
    scripts = {"hinter": said, "actor": lambda request: r"\boxed{1}"}
    roster = scripted("hint_actor", scripts, **agents)
    return player_of(roster, config)


async def test_arms_play_a_group_that_speaks_and_one_that_is_silent() -> None:
    player = make()
    (one, two) = await player.play(tasks(2), step=1)
    assert [len(one.episodes), len(one.silent)] == [3, 1]
    assert (one.task_id, two.task_id) == ("t0", "t1")
    assert all(episode.calls[0].choice is Choice.SPEAK for episode in one.episodes)
    assert one.silent[0].calls[0].silent
    assert len({episode.sample for episode in (*one.episodes, *one.silent)}) == 4
    assert one.episodes[0].grade is not None and one.episodes[0].grade.right
    assert two.episodes[0].grade is not None and not two.episodes[0].grade.right


async def test_a_silent_arm_that_cannot_differ_is_played_once() -> None:
    player = make()
    once: Any = next(agent.engine for agent in player.roster.agents if agent.role == "actor")
    actor = once.engine
    (first,) = await player.play(tasks(1), step=1)
    assert actor.calls == 3 + 1
    (again,) = await player.play(tasks(1), step=2)
    assert actor.calls == 3 + 1 + 3
    assert again.silent == first.silent


async def test_a_draft_that_all_episodes_share_is_computed_once_a_step() -> None:
    """The critic's comments differ; what it comments on cannot."""
    agents = {"critic": {"trained": True}, "actor": {}}
    team = {"topology": "critic_actor", "agents": agents}
    config: Config = parse_config(
        {"team": team, "silence": {"exploration": "none"}, "train": {"group": 4}}
    )
    said = count()
    scripts = {"critic": lambda request: f"remark {next(said)}", "actor": lambda r: r"\boxed{1}"}
    roster = scripted("critic_actor", scripts, **agents)
    player = player_of(roster, config)
    once: Any = next(agent.engine for agent in player.roster.agents if agent.role == "actor")
    # an engine of tokens: what it is asked is known by its ids
    once.encode = lambda messages, tools=(): tuple(hash(m.content) for m in messages)
    for step in (1, 2):
        before = once.engine.calls
        (group,) = await player.play(tasks(1), step=step)
        assert len(group.episodes) == 4
        assert once.engine.calls - before == 1 + 4, "a draft, and four revisions"


async def test_both_arms_go_through_the_same_drafts_where_those_are_drawn() -> None:
    agents = {"critic": {"trained": True}, "actor": {"trained": True}}
    team = {"topology": "critic_actor", "agents": agents}
    config: Config = parse_config(
        {"team": team, "silence": {"silent_samples": 3}, "train": {"group": 4}}
    )
    said = count()
    scripts = {"critic": lambda r: "a remark", "actor": lambda r: rf"\boxed{{{next(said)}}}"}
    roster = scripted("critic_actor", scripts, **agents)
    player = player_of(roster, config)
    for agent in player.roster.agents:
        # engines of tokens: what they are asked is known by its ids
        engine: Any = agent.engine
        engine.encode = lambda messages, tools=(): tuple(hash(m.content) for m in messages)
    seen = set()
    for step in (1, 2):
        (group,) = await player.play(tasks(1), step=step)
        spoken = [next(c for c in e.calls if c.agent == "critic") for e in group.episodes]
        silent = [next(c for c in e.calls if c.agent == "critic") for e in group.silent]
        assert all(call.silent for call in silent)
        assert [c.prompt_ids for c in silent] == [c.prompt_ids for c in spoken[:3]]
        seen |= {call.prompt_ids for call in spoken}
        assert len({e.sample for e in (*group.episodes, *group.silent)}) == 4 + 3
    assert len(seen) == 2 * 4, "drafts of their own in every episode and step"


async def test_where_the_rest_samples_the_silent_arm_is_played_several_times_anew() -> None:
    player = make(actor={"temperature": 0.7})
    (first,) = await player.play(tasks(1), step=1)
    assert len(first.silent) == player.config.silence.silent_samples == 4
    assert not player.remembered


@pytest.mark.parametrize(("exploration", "choice"), [("floor", "floor"), ("none", "free")])
async def test_without_arms_there_is_no_silent_arm(exploration: str, choice: str) -> None:
    (one,) = await make(exploration=exploration).play(tasks(1), step=1)
    assert one.silent == ()
    assert {episode.calls[0].choice.value for episode in one.episodes} == {choice}


async def test_failed_episodes_are_in_no_group() -> None:
    asked = 0

    def sometimes(request: Request) -> str:
        nonlocal asked
        asked += 1
        if asked % 3 == 0:
            raise RuntimeError("the engine broke")
        return "add one"

    groups = await make(sometimes).play(tasks(3), step=1)
    assert [len(group.episodes) for group in groups] == [2, 2, 2]
    assert all(e.error is None and e.grade for g in groups for e in (*g.episodes, *g.silent))


def counting_words(player: Player) -> Player:
    """Engines of tokens: what they are asked is measured by its words."""
    for agent in player.roster.agents:
        engine: Any = agent.engine
        engine.encode = lambda messages, tools=(): tuple(
            hash(word) for message in messages for word in message.content.split()
        )
    return player


async def test_talk_that_overflows_a_prompt_stays_in_its_group_with_its_cost() -> None:
    said = count()
    player = counting_words(
        make(
            lambda r: "add one" if next(said) % 3 else "blah " * 50, actor={"max_input_tokens": 20}
        )
    )
    for group in await player.play(tasks(1), step=1) + await player.play(tasks(1), step=2):
        assert [episode.overflowed for episode in group.episodes] == [True, False, False]
        credit = Credit(config=player.config, silence=player.silence, roles={"hinter": "hinter"})
        credit([group], Multipliers())
        assert [parts.task for parts in group.rewards] == [0.0, 1.0, 1.0]
        assert (group.rewards[0].raw.tokens, group.rewards[0].raw.turns) == (50, 1)
        assert group.tokens == pytest.approx((50 + 3 + 3) / 3)
        assert step_metrics([group])["episodes/overflowed"] == 1


async def test_silence_is_compared_only_where_there_was_a_choice() -> None:
    """A draft too long for the critic ends an episode before anybody chooses."""
    agents = {"critic": {"trained": True, "max_input_tokens": 60}, "actor": {"temperature": 1.0}}
    team = {"topology": "critic_actor", "agents": agents}
    config: Config = parse_config(
        {"team": team, "silence": {"silent_samples": 2}, "train": {"group": 3}}
    )
    assert config.team is not None
    drafts: list[str] = []

    def draft(request: Request) -> str:
        return drafts.pop(0) if drafts else r"\boxed{1}"

    scripts = {"critic": lambda r: "a remark", "actor": draft}
    roster = scripted("critic_actor", scripts, **agents)
    player = counting_words(player_of(roster, config))
    # Both arms share the first two drafts; only the spoken one has a third.
    for long, over, chose in ((0, 0, 3), (1, 1, 2), (2, 2, 0), (3, 3, 0)):
        drafts[:] = ["blah " * 50] * long
        (group,) = await player.play(tasks(1), step=1)
        assert sum(episode.overflowed for episode in group.episodes) == over
        assert sum(any(c.agent == "critic" for c in e.calls) for e in group.episodes) == chose
        assert sum(episode.overflowed for episode in group.silent) == min(long, 2)
        chosen = {i for i, one in enumerate(group.silent) if not one.overflowed}
        assert {i for _, plays in alternatives(group) for i in plays} <= chosen


async def test_a_task_that_only_failed_is_left_out() -> None:
    def not_that_one(request: Request) -> str:
        if "What is 1 + 1?" in request.messages[-1].content:
            raise RuntimeError("the engine broke")
        return "add one"

    groups = await make(not_that_one).play(tasks(3), step=1)
    assert [group.task_id for group in groups] == ["t0", "t2"]


async def test_a_step_in_which_everything_failed_says_why() -> None:
    def broken(request: Request) -> str:
        raise RuntimeError("the engine broke")

    with pytest.raises(RunError, match="the engine broke"):
        await make(broken).play(tasks(2), step=1)


async def two_helpers(task: Task, team: Team) -> Message:
    hints = await team.together(team.left.ask(task.question), team.right.ask(task.question))
    return await team.actor.ask(task.question, messages=hints)


HELPERS = {role: {"trained": True, "silent": True} for role in ("left", "right")}


@pytest.mark.parametrize(
    ("topology", "agents"),
    [
        ("dialogue", {"agent": {"count": 2, "trained": True}}),
        ("tests.rollout.test_groups:two_helpers", {"actor": {}, **HELPERS}),
    ],
)
def test_arms_compare_one_agent_at_a_time_where_several_choose(
    topology: str, agents: dict[str, Any]
) -> None:
    tree = {
        "train_tasks": {"name": "arithmetic"},
        "team": {"topology": topology, "agents": agents},
    }
    team = check_training(parse_config(tree))
    assert several_choices(team)
    assert open_silence(Config().silence, choosing=True, several=True).pairs


@pytest.mark.parametrize(
    ("topology", "agents", "options", "several"),
    [
        ("hint_actor", {"hinter": {"trained": True}, "actor": {}}, {}, False),
        ("critic_actor", {"critic": {"trained": True}, "actor": {}}, {"rounds": 1}, False),
        ("critic_actor", {"critic": {"trained": True}, "actor": {}}, {"rounds": 2}, True),
        ("holders", {"holder": {"trained": True}, "asker": {}}, {}, False),
        ("holders", {"holder": {"trained": True}, "asker": {}, "inquirer": {}}, {}, True),
    ],
)
def test_a_topology_says_whether_it_asks_an_agent_several_times(
    topology: str, agents: dict[str, Any], options: dict[str, Any], several: bool
) -> None:
    team = TeamConfig.model_validate({"topology": topology, "agents": agents, "options": options})
    assert several_choices(team) is several


def test_budgets_that_silence_would_exceed_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"budget\.tokens = 90 is below .* \(95\.5\)"):
        check_budget("tokens", 90, 95.5)
    check_budget("tokens", 95.5, 95.5)


@given(st.integers(1, 9), st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 3))
def test_tasks_come_in_the_same_order_from_any_position(
    count: int, takes: list[int], seed: int
) -> None:
    whole, parts, position = TaskSampler(tasks(count), seed), [], 0
    for take in takes:
        again = TaskSampler(tasks(count), seed, position)
        taken = whole.take(take)
        assert taken == again.take(take)
        assert len({task.id for task in taken}) == len(taken) == min(take, count)
        position = whole.position
        assert position == again.position
        parts += taken
    if all(count % take == 0 for take in takes) and len(set(takes)) == 1:
        for start in range(0, len(parts) - count + 1, count):
            epoch = parts[start : start + count]
            assert sorted(task.id for task in epoch) == [f"t{i}" for i in range(count)]


def test_a_task_that_was_played_in_a_step_is_not_taken_again_for_it() -> None:
    for seed in range(8):  # other orders of the epoch that begins in between
        sampler = TaskSampler(tasks(5), seed, position=3)
        first = {task.id for task in sampler.take(2)}
        more = {task.id for task in sampler.take(4, besides=first)}
        assert len(more) == 3 and not more & first
        assert sampler.take(2, besides=first | more) == []


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    def order(sampler: TaskSampler) -> list[str]:
        return [task.id for task in sampler.take(30)]

    first = TaskSampler(tasks(30), seed=0)
    epochs = [order(first), order(first), order(TaskSampler(tasks(30), seed=1))]
    assert len({tuple(epoch) for epoch in epochs}) == 3


class Failing:
    def __init__(self, *_: Any) -> None:
        self.logged = 0

    def log(self, metrics: Any, step: int) -> None:
        self.logged += 1
        if step == 2:
            raise OSError("the server is gone")

    def close(self) -> None: ...


def test_a_tracker_that_fails_is_left_out_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Failing] = []

    def tracker(*arguments: Any) -> Failing:
        made.append(Failing(*arguments))
        return made[-1]

    monkeypatch.setitem(TRACKERS, "failing", tracker)
    check_trackers(["failing"])
    fan = Trackers(["failing"], "run", "folder", {})
    for step in (1, 2, 3):
        fan.log({"reward": 1.0}, step)
    fan.close()
    assert made[0].logged == 2
    assert capsys.readouterr().err.count("tracker failing failed and is left out") == 1
