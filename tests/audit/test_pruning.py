"""Smaller teams: what the audit speaks for, checked on other tasks, and written as a config."""

import asyncio
import itertools
import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tacit.audit.audit_tables import prune_tables
from tacit.audit.auditing import BASE
from tacit.audit.proposals import Proposal, cut_of, proposals_of
from tacit.audit.pruning import _with_weights, check_all, other_tasks
from tacit.audit.rivals import learned, learned_proposals, removed
from tacit.audit.team_player import TeamPlayer
from tacit.cli.tables import Grid
from tacit.config import Config, Cut, TeamConfig
from tacit.config.file import load_config, parse_config
from tacit.engine.base import Request
from tacit.errors import ConfigError, EngineError, RunError
from tacit.learn.assemble import check_training
from tacit.run.folder import RunFolder
from tacit.team.roster import Roster
from tacit.team.setting import Setting
from tacit.team.team import Team
from tacit.types import Episode, Message, Task
from tests.helpers.commands import tacit_
from tests.helpers.planted import TEAM, roster, tasks_of
from tests.helpers.scripted_teams import TASK, play, scripted

DEBATE = TeamConfig.model_validate({"topology": "debate", "agents": {"debater": {"count": 3}}})


def part(name: str, mean: float, kind: str = "agent", verdict: str = "undecided") -> dict[str, Any]:
    return {"name": name, "kind": kind, "verdict": verdict, "value": {"mean": mean}}


def player(folder: Path, team: Roster | None = None) -> TeamPlayer:
    return TeamPlayer(config=Config(team=TEAM), run=RunFolder(folder), roster=team or roster())


def plays(team: Roster, task: Task) -> Callable[[str], list[Episode]]:
    """The audit's plays by name, each of one task."""

    def played(name: str) -> list[Episode]:
        kind = "round" if name.startswith("without round") else "agent"
        cut = cut_of(part(name.removeprefix("without "), 0, kind))
        setting = Setting(without=frozenset() if name == BASE else frozenset({cut}))
        return [asyncio.run(play(team, task, setting))]

    return played


def test_the_worst_parts_go_first_and_what_helps_stays() -> None:
    parts = [part("vital", 0.4, verdict="helps"), part("useless", 0.0), part("harmful", -0.2)]
    first, second, alone, *rules = proposals_of(parts, TEAM, plays(roster(), tasks_of(0, 1)[0]))
    assert first.without == Cut.of(["harmful"]) and second.without == Cut.of(["harmful", "useless"])
    assert alone.without == Cut.of(["useless"])
    assert [rule.stop for rule in rules] == ["agreed", "agreed"]
    assert rules[1].without == first.without


def debate() -> Callable[[str], list[Episode]]:
    """Plays of a debate of three, each with an answer of its own in each of two rounds."""
    numbers = itertools.count()
    script = {"debater": lambda request: f"I say {next(numbers)}."}
    return plays(scripted("debate", script, debater={"count": 3}), TASK)


def test_one_agent_of_a_role_stays_and_nothing_is_cut_twice() -> None:
    parts = [
        part("debater 1 to debater 2", -0.3, "edge"),
        part("debater 1", -0.2),
        part("debater 2", -0.1),
        part("debater 3", 0.0),
    ]
    cuts = [one.without for one in proposals_of(parts, DEBATE, debate()) if not one.stop]
    assert cuts[0] == {Cut(agent="debater 1", reader="debater 2")}
    assert cuts[1:3] == [Cut.of(["debater 1"]), Cut.of(["debater 1", "debater 2"])]
    assert cuts[3] == Cut.of(["debater 2"])


def test_the_last_agent_of_a_role_stays_beside_what_is_gone_already() -> None:
    rest = DEBATE.model_copy(update={"without": [*Cut.of(["debater 1", "debater 3"])]})
    assert not [
        one for one in proposals_of([part("debater 2", -0.2)], rest, debate()) if not one.stop
    ]


def test_what_a_shorter_talk_no_longer_has_is_not_cut_besides() -> None:
    """After a debate without its first round nobody has read anybody."""
    parts = [part("round 0", -0.3, "round"), part("debater 1 to debater 2", -0.2, "edge")]
    cuts = [one.without for one in proposals_of(parts, DEBATE, debate()) if not one.stop]
    assert cuts == [{Cut(round=0)}]


def test_a_part_is_known_by_its_name() -> None:
    assert cut_of(part("round 2", 0, "round")) == Cut(round=2)
    assert cut_of(part("a to b", 0, "edge")) == Cut(agent="a", reader="b")


def test_a_proposal_becomes_a_config() -> None:
    team = DEBATE.model_copy(update={"without": [Cut(round=1)]})
    one = Proposal(name="x", without=Cut.of(["debater 3"]), stop="agreed")
    config = one.config(Config(name="mine", team=team))
    assert config.name == "mine-pruned" and config.team
    assert config.team.without == [Cut(round=1), Cut(agent="debater 3")]
    assert config.team.stop == "agreed"


def test_training_is_refused_if_whoever_is_trained_is_left_out() -> None:
    """As in what prune writes if it cuts the only one."""
    agents = {"hinter": {"trained": True}, "actor": {}}
    tree = {"name": "arithmetic", "split": "train"}
    team = {"topology": "hint_actor", "agents": agents}
    config = parse_config({"team": team, "tasks": tree, "train_tasks": tree})
    check_training(config)
    with pytest.raises(ConfigError, match=r"team\.without leaves out every trained agent"):
        check_training(Proposal(name="x", without=Cut.of(["hinter"])).config(config))


async def test_only_what_loses_less_than_a_point_passes(tmp_path: Path) -> None:
    good, bad = (Proposal(name=role, without=Cut.of([role])) for role in ("harmful", "vital"))
    checked = await check_all(player(tmp_path), [good, bad], tasks_of(1, 256), 0.95)
    first, second = checked
    assert first.passed and first.difference.low > 0 and first.share < 1
    assert not second.passed and second.difference.high < -0.2
    assert second.tasks == 64, "what clearly fails plays no more tasks"


async def test_looks_of_earlier_starts_widen_the_intervals(tmp_path: Path) -> None:
    """The same command with more tasks looks at the same plays again."""
    useless, tasks = Proposal(name="x", without=Cut.of(["useless"])), tasks_of(1, 90)
    widths = []
    for folder, counts in (("a", [90]), ("b", [70, 80, 90]), ("c", [90, 90])):
        for count in counts:
            one = await check_all(player(tmp_path / folder), [useless], tasks[:count], 0.95)
        widths.append(one[0].difference.high - one[0].difference.low)
        assert one[0].tasks == 90
    once, several, again = widths
    assert several > 1.1 * once and again == once, "the same look is one"


async def test_what_fails_does_not_pass(tmp_path: Path) -> None:
    """Neither a team of which no play succeeds, nor one that fails now and then."""
    scripts = {"planner": {"": "1 plan"}, "cheer": {"": "go"}, "actor": {"": "42"}}
    here = player(tmp_path / "a", scripted(f"{__name__}:fragile", scripts))
    without = [Proposal(name=role, without=Cut.of([role])) for role in ("planner", "cheer")]
    (checked,) = await check_all(here, without, tasks_of(0, 8), 0.95)
    assert checked.name == "cheer" and not checked.failed
    (note,) = here.notes
    assert note.startswith("planner cannot play: no episode succeeded out of 8: TopologyError: ")
    told = [str(one) for one in prune_tables({"proposals": [], "chosen": None, "notes": [note]})]
    assert f"note: {note}" in told
    here = player(tmp_path / "b", scripted(f"{__name__}:moody", scripts | {"actor": moods}))
    (checked,) = await check_all(here, without[1:], tasks_of(0, 64), 0.95)
    assert 0 < checked.failed < 64 and checked.difference.low > -0.01 and not checked.passed
    (table, *_) = prune_tables({"proposals": [asdict(checked)], "chosen": None})
    assert isinstance(table, Grid) and "failed" in table.headers


async def fragile(task: Task, team: Team) -> Message:
    """Breaks if the planner says nothing."""
    plan, cheer = await team.planner.ask(task.question), await team.cheer.ask(task.question)
    said = [Message("", str(int(plan.text.split()[0]))), cheer]
    return await team.actor.ask(task.question, messages=said, round=1, final=True)


async def moody(task: Task, team: Team) -> Message:
    """Without cheer it breaks on every fourth task, and is right on the others."""
    cheer = await team.cheer.ask(task.question)
    if cheer.silent and int(task.id.removeprefix("t/")) % 4 == 0:
        raise RuntimeError("no cheer")
    return await team.actor.ask(task.question, messages=[cheer], round=1, final=True)


def moods(request: Request) -> str:
    return "no" if "go" in request.messages[-1].content else "yes"


def test_trained_tasks_of_the_same_source_leave_others_to_check_on(tmp_path: Path) -> None:
    rows = [{"id": str(n), "question": f"{min(n, 18)} + 1?", "answer": "2"} for n in range(20)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = {"name": str(tmp_path / "q.jsonl"), "limit": 4}
    config = parse_config({"tasks": tree, "train_tasks": tree | {"offset": 4, "limit": 10}})
    left = other_tasks(config, {"0", "1", "2", "3"}, 8)
    assert [task.id for task in left] == ["14", "15", "16", "17", "18", "19"]
    left = other_tasks(config, {"0", "1", "2", "18"}, 8)
    assert "19" not in [task.id for task in left], "it asks what the audit has asked"


def test_the_command_with_the_weights_that_were_checked() -> None:
    team = DEBATE.model_copy(update={"without": [Cut(agent="debater 3")], "stop": "agreed"})
    command = _with_weights(Path("runs/my run/checkpoints/step-000025"), team)
    assert shlex.split(command) == [
        *("tacit", "eval", "runs/my run", "--checkpoint", "25", "--out", "runs/my run/pruned"),
        *('team.without=[{"agent": "debater 3"}]', "team.stop=agreed"),
    ]


def test_what_passed_and_is_not_smaller_is_not_said_to_be_worse() -> None:
    value = {"mean": 0.1, "low": 0.0, "high": 0.2}
    numbers = {"reward": 0.5, "generated": 9.0, "read": 90.0, "tasks": 64, "failed": 0}
    one = {"name": "x", "difference": value, "share": 1.2, "passed": True, **numbers}
    told = list(prune_tables({"proposals": [one], "chosen": None}))
    assert "no fewer tokens" in str(told[-1])


async def test_a_rival_learns_to_keep_what_helps(tmp_path: Path) -> None:
    """AgentPrune's way, on passages from each helper to the actor."""
    here, tasks = player(tmp_path), tasks_of(2, 256)
    base = await here.play("base", tasks)
    cuts = [Cut(agent=role, reader="actor") for role in ("harmful", "vital")]
    logits = await learned(here, tasks, base, cuts, 10**9, "AgentPrune")
    harmful, vital = (logits[cut] for cut in cuts)
    assert harmful < vital and removed(logits, 0.5) == {cuts[0]}


async def test_rivals_remove_as_much_as_their_authors_code(tmp_path: Path) -> None:
    """Of 12 passages: a quarter and a quarter of what is left, 44 %; a fifth twice, 36 %."""
    numbers = itertools.count()
    script = {"debater": lambda request: f"I say {next(numbers)}."}
    team = scripted("debate", script, debater={"count": 4})
    base = [await play(team, TASK)]
    pruned, dropped = await learned_proposals(player(tmp_path, team), [TASK], base, tokens=0)
    assert len(pruned.without) == 5 and all(cut.reader for cut in pruned.without)
    passages = [cut for cut in dropped.without if cut.reader]
    assert len(passages) == 4 and len(dropped.without) == 5, "and one agent in one round"


async def test_a_rival_goes_on_from_masks_with_which_the_team_cannot_play(tmp_path: Path) -> None:
    scripts = {"planner": {"": "1 plan"}, "cheer": {"": "go"}, "actor": {"": "yes"}}
    here, tasks = player(tmp_path, scripted(f"{__name__}:fragile", scripts)), tasks_of(0, 16)
    base = await here.play("base", tasks)
    assert all(one.right for one in base)
    planner, cheer = cuts = [Cut(agent=role, round=0) for role in ("planner", "cheer")]
    logits = await learned(here, tasks, base, cuts, 10**9, "AgentDropout agents")
    assert logits[planner] > max(0.0, logits[cheer]), "without the planner all is lost"
    told = [
        note.partition(" cannot play: no episode succeeded out of 8: ")[0] for note in here.notes
    ]
    assert sorted(told) == [
        "AgentDropout agents without `cheer` in round 0, `planner` in round 0",
        "AgentDropout agents without `planner` in round 0",
    ]


async def test_a_server_that_is_down_stops_a_rival(tmp_path: Path) -> None:
    def down(request: Request) -> str:
        raise EngineError("nobody answers")

    scripts: dict[str, Any] = {"planner": {"": "1 plan"}, "cheer": {"": "go"}, "actor": down}
    here = player(tmp_path, scripted(f"{__name__}:fragile", scripts))
    cut = [Cut(agent="cheer", reader="actor")]
    with pytest.raises(RunError, match="EngineError: nobody answers"):
        await learned(here, tasks_of(0, 8), [], cut, 10**9, "AgentPrune")


@pytest.mark.slow
def test_audit_then_prune_of_a_pocket_team(tmp_path: Path) -> None:
    """A critic that has not learned anything is cut, and the config that is written plays."""
    config = tmp_path / "team.yaml"
    config.write_text(
        "name: critics\ntasks: {name: arithmetic, split: test, limit: 64}\n"
        "team:\n  topology: critic_actor\n"
        "  agents: {actor: {max_tokens: 16}, critic: {max_tokens: 48}}\n"
    )
    run = tmp_path / "run"
    out = tacit_(tmp_path, "audit", str(config), "--out", str(run)).stdout
    assert "critic" in out and (run / "audit.json").exists()
    again = tacit_(tmp_path, "audit", str(config), "--out", str(run)).stdout
    assert again == out, "what was played is not played again"
    pruned = tacit_(tmp_path, "prune", str(run), "--tasks", "96").stdout
    assert "without `critic`" in pruned
    team = load_config(str(run / "critics-pruned.yaml")).team
    assert team and team.without == [Cut(agent="critic")]


def test_pruning_needs_an_audit(tmp_path: Path) -> None:
    failed = tacit_(tmp_path, "prune", str(tmp_path))
    assert failed.returncode == 2 and "is not a run folder" in failed.stderr
    (tmp_path / "recording.json").write_text("{}")
    failed = tacit_(tmp_path, "prune", str(tmp_path))
    assert failed.returncode == 2 and "is of an app" in failed.stderr
