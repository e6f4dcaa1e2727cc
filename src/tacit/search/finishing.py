"""What follows a search: the winner on tasks that the search did not see, and its training."""

import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.cli.commands import run_evaluation
from tacit.config import Config, SearchConfig, TeamConfig
from tacit.errors import ConfigError
from tacit.evaluation.measure import compare
from tacit.run.folder import RunFolder
from tacit.run.opening import measured_teams_of, prices_of
from tacit.run.spending import Spending
from tacit.search.candidate_player import cost_of
from tacit.search.search_state import State, candidate_of
from tacit.team.roster import helper_roles

CHECK, WINNER = "check", "winner"
"""Run folders inside the search's: an evaluation, and the winner as a run of its own."""


async def check_winner(config: Config, run: RunFolder, state: State) -> dict[str, Any]:
    """The start team, the best of the first pool and the winner, once, on the config's `tasks`."""
    assert state.winner and state.best_of_first
    names = dict.fromkeys([state.start, state.best_of_first, state.winner])
    teams = {name: candidate_of(state.entries[name], config).team for name in names}
    plain = {"without_helpers": False, "talk": False, "reworded": False}
    settings = config.evaluation.model_copy(update=plain)
    checked = _part(config, [run.path], team=None, teams=teams, evaluation=settings)
    folder = RunFolder(run.path / CHECK)
    summary = await run_evaluation(checked, folder.path)
    episodes = {name: list(folder.episodes(name)) for name in names}
    tests = {
        other: compare(episodes[other], episodes[state.winner], settings)
        for other in names
        if other != state.winner
    }
    cost = cost_of(config, prices_of(checked))
    state.spend["check"] = sum(cost(one) for mine in episodes.values() for one in mine)
    state.check = {
        "tasks": summary["teams"][state.winner]["tasks"],
        "teams": {
            name: {key: tree[key] for key in ("accuracy", "generated", "read", "money", "failed")}
            for name, tree in summary["teams"].items()
        },
        "winner_compared_with": {n: asdict(test) if test else None for n, test in tests.items()},
    }
    return summary


def trained_roles(config: Config, winner: TeamConfig) -> list[str]:
    """Roles to train: those that the config marks, by name, else helpers that may be silent."""
    marked = {
        role
        for team in config.all_teams.values()
        for role, agent in team.agents.items()
        if agent.trained
    }
    wanted: Iterable[str] = marked & winner.agents.keys() or helper_roles(winner)
    local = {r for r in wanted if config.model_named(winner.agents[r].model).engine != "api"}
    return [role for role in winner.agents if role in local]


def winner_config(config: Config, run: RunFolder, state: State) -> Config:
    """The winner as a team to train, beside the teams that it was checked against."""
    assert state.winner and state.best_of_first
    team = candidate_of(state.entries[state.winner], config).team
    learning = {"trained": True, "temperature": None, "top_p": 1.0, "top_k": 0}
    agents = dict(team.agents)
    for role in trained_roles(config, team):
        agents[role] = agents[role].model_copy(update=learning)
    others = dict.fromkeys([state.start, state.best_of_first])
    teams = {n: candidate_of(state.entries[n], config).team for n in others if n != state.winner}
    own = team.model_copy(update={"agents": agents})
    paid = [run.path, run.path / CHECK]
    return _part(config, paid, team=own, teams=teams, search=SearchConfig())


def open_winner(config: Config, run: RunFolder, state: State) -> Config:
    """Write the winner's run folder, with what the check has played of the teams beside it.

    The folder of another winner, of a search that has gone further since, is put aside.
    """
    mine, path = winner_config(config, run, state), run.path / WINNER
    if (path / "config.json").exists() and not _holds(path, mine):
        number = len(list(run.path.glob(f"{WINNER}-before-*"))) + 1
        path.rename(run.path / f"{WINNER}-before-{number}")
    folder = RunFolder.open(path, mine)
    for name in mine.teams:
        played = Path("episodes") / f"{name}.jsonl"
        if not (folder.path / played).exists():
            (folder.path / "episodes").mkdir(exist_ok=True)
            half = folder.path / "episodes" / f".{name}"
            shutil.copyfile(run.path / CHECK / played, half)
            half.replace(folder.path / played)
    return mine


def _holds(path: Path, config: Config) -> bool:
    teams = (RunFolder.existing(path)[1].team, config.team)
    first, second = (team.model_dump() if team else None for team in teams)
    return first == second


async def train_winner(config: Config, run: RunFolder, state: State) -> dict[str, Any] | None:
    """Train the winner in a run folder of its own; None, with the reason, where it cannot be."""
    from tacit.cli.training import run_training

    mine = open_winner(config, run, state)
    roles = [role for role, agent in mine.team.agents.items() if agent.trained] if mine.team else []
    if why := _why_not(config, mine, roles):
        state.training = {"roles": roles, "not_trained": why}
        return None
    result = await run_training(mine, run.path / WINNER)
    if "paused" in result:
        return result
    tests = result["trained_compared_with"].items()
    against = {state.winner if name == "untrained" else name: test for name, test in tests}
    state.training = {
        "roles": roles,
        "steps": result["steps"],
        "best_step": result["best_step"],
        "teams": {
            name: {key: result["teams"][name][key] for key in ("accuracy", "generated", "read")}
            for name in ("untrained", "trained")
        },
        "trained_compared_with": against,
    }
    _add_to_summary(run, result["teams"]["trained"], against)
    return result


def _why_not(config: Config, winner: Config, roles: list[str]) -> str | None:
    """Why the winner is not trained; None if it can be."""
    from tacit.learn.assemble import check_training

    if not config.search.train:
        return "search.train is off"
    if not roles:
        return "no role is marked `trained`, and no local one may be silent"
    try:
        check_training(winner)
    except ConfigError as error:
        return str(error)
    return None


def _add_to_summary(run: RunFolder, trained: dict[str, Any], against: dict[Any, Any]) -> None:
    """The trained winner beside the teams of the check, for the report of the search."""
    summary = run.read_json("summary.json")
    teams = {**summary["teams"], "trained": trained}
    whole = {**summary, "teams": teams, "trained_compared_with": against}
    run.write_json("summary.json", whole)


def _part(config: Config, paid: Iterable[Path], **changed: Any) -> Config:
    """The config of a run inside the search's, with what other folders have left of the cap."""
    if (cap := config.spend_cap) is not None:
        prices = prices_of(config)
        spent = sum(cap - Spending(RunFolder(path), prices, cap).left() for path in paid)
        changed["spend_cap"] = max(1e-9, cap - spent)
    part = config.model_copy(update=changed)
    try:
        measured_teams_of(part)
    except ConfigError:  # several samples, where nobody of these teams samples
        once = part.evaluation.model_copy(update={"samples": 1})
        return part.model_copy(update={"evaluation": once})
    return part
