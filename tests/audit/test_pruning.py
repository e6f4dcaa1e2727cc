"""Smaller teams: what the audit speaks for, checked on other tasks, and written as a config."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.audit.auditing import BASE
from tacit.audit.proposals import Proposal, cut_of, proposals_of
from tacit.audit.pruning import check_all
from tacit.audit.rivals import learned, removed
from tacit.audit.team_player import TeamPlayer
from tacit.config import Config, Cut, TeamConfig
from tacit.config.file import load_config
from tacit.run.folder import RunFolder
from tacit.team.roster import Roster
from tacit.team.setting import Setting
from tacit.types import Episode, Task
from tests.helpers.commands import tacit_
from tests.helpers.planted import TEAM, roster, tasks_of
from tests.helpers.scripted_teams import TASK, play, scripted

DEBATE = TeamConfig.model_validate({"topology": "debate", "agents": {"debater": {"count": 3}}})


def part(name: str, mean: float, kind: str = "agent", verdict: str = "undecided") -> dict[str, Any]:
    return {"name": name, "kind": kind, "verdict": verdict, "value": {"mean": mean}}


def player(folder: Path) -> TeamPlayer:
    return TeamPlayer(config=Config(team=TEAM), run=RunFolder(folder), roster=roster())


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


async def test_only_what_loses_less_than_a_point_passes(tmp_path: Path) -> None:
    good, bad = (Proposal(name=role, without=Cut.of([role])) for role in ("harmful", "vital"))
    checked = await check_all(player(tmp_path), [good, bad], tasks_of(1, 256), 0.95)
    first, second = checked
    assert first.passed and first.difference.low > 0 and first.share < 1
    assert not second.passed and second.difference.high < -0.2
    assert second.tasks == 64, "what clearly fails plays no more tasks"


async def test_a_rival_learns_to_keep_what_helps(tmp_path: Path) -> None:
    """AgentPrune's way, on passages from each helper to the actor."""
    here, tasks = player(tmp_path), tasks_of(2, 256)
    base = await here.play("base", tasks)
    cuts = [Cut(agent=role, reader="actor") for role in ("harmful", "vital")]
    logits = await learned(here, tasks, base, cuts, 10**9, "AgentPrune")
    harmful, vital = (logits[cut] for cut in cuts)
    assert harmful < vital and removed(logits, 0.5) == {cuts[0]}


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
