"""The work behind `tacit prune`: check smaller teams on tasks that the audit did not use.

A proposal passes if the lower bound of its reward minus the whole team's, pair by pair, is above
−1 point. The confidence is shared among all proposals and looks, since the best of several is taken
and each look may end the check. Looks of earlier starts, with fewer tasks, count as well; several
starts together may still err more often. Of those that pass, the one that saves most is written.
"""

import hashlib
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from tacit.audit.audit_command import open_player
from tacit.audit.audit_tables import prune_tables
from tacit.audit.auditing import BASE, FILE, rungs_of
from tacit.audit.proposals import Proposal, proposals_of
from tacit.audit.rivals import learned_proposals
from tacit.audit.team_player import TeamPlayer
from tacit.audit.worth import adjusted, by_task, pairs_of
from tacit.cli.terminal import out as console, print_json
from tacit.config import Config, TeamConfig
from tacit.errors import ConfigError
from tacit.evaluation.statistics import Estimate
from tacit.run.folder import RunFolder, write_atomically
from tacit.run.opening import prices_of, tasks_of
from tacit.run.spending import Spending
from tacit.tasks import drop_leaks
from tacit.types import Episode, Task


def show_prune(result: Mapping[str, Any], *, as_json: bool = False) -> None:
    if as_json:
        print_json(result)
        return
    for one in prune_tables(result):
        console.print(one)


LOSS = 0.01
"""What a smaller team may lose, in reward."""
SHARE = attrgetter("share")
WHOLE = "whole"
CHECK, LOOKS = "prune", "looks.json"
"""The folder of the check, inside the audit's, and which intervals it has looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A proposal on tasks that the audit did not use."""

    name: str
    difference: Estimate
    """Its reward minus that of the whole team."""
    tasks: int
    reward: float
    generated: float
    """Tokens per episode, and their share of the whole team's."""
    read: float
    share: float
    failed: int
    """Plays that came to no grade: a team that has such does not pass."""
    passed: bool


async def run_prune(folder: Path, most: int, *, rivals: bool = False) -> dict[str, Any]:
    """Check what the audit in this folder speaks for, on up to `most` other tasks."""
    if (folder / "recording.json").exists():
        raise ConfigError(
            f"`{folder}` is of an app, whose control flow is its own: change it there"
        )
    run, config = RunFolder.existing(folder)
    if not (run.path / FILE).exists() or config.team is None:
        raise ConfigError(f"`{folder}` holds no audit of a team: run `tacit audit` first")
    audit, base = run.read_json(FILE), list(run.episodes(BASE))
    trained = _weights(audit)
    known = proposals_of(audit["parts"], config.team, lambda name: list(run.episodes(name)))
    if not (known or rivals):
        raise ConfigError("the audit speaks for no smaller team: every part that it found helps")
    used = {episode.task_id for episode in base}
    tasks = other_tasks(config, used, most)
    check = RunFolder.check(folder / CHECK, config)
    with check.held():
        spending = Spending(check, prices_of(config), config.spend_cap)
        async with open_player(config, check, WHOLE, trained, spending) as player:
            if rivals:
                seen = [t for t in tasks_of(config.tasks, config.judge) if t.id in used]
                known += await learned_proposals(player, seen, base, audit["spent"])
            checked = await check_all(player, known, tasks, config.evaluation.confidence)
    more = {"notes": player.notes, "spend": spending.to_json()}
    return _written(run, config, known, checked, trained, more)


def _weights(audit: Mapping[str, Any]) -> Path | None:
    """The checkpoint that the audit played with; None if the team is not trained."""
    if not (known := audit.get("checkpoint")):
        return None
    if not Path(known).is_dir():
        raise ConfigError(
            f"the weights that the audit played with, `{known}`, are gone: audit again"
        )
    return Path(known)


def other_tasks(config: Config, used: Collection[str], most: int) -> list[Task]:
    """Tasks of the same source that neither the audit nor training used."""
    own, learned = config.tasks, config.train_tasks
    trained = tasks_of(learned, config.judge) if learned else []
    mixed = learned is not None and (own.name, own.split) == (learned.name, learned.split)
    limit = len(used) + most + len(trained) * mixed
    every = tasks_of(own.model_copy(update={"limit": limit}), config.judge)
    seen = [*trained, *(task for task in every if task.id in used)]
    rest, _ = drop_leaks([task for task in every if task.id not in used], seen)
    if not rest:
        raise ConfigError(
            "the audit and the training used every task of their source: audit fewer with "
            "tasks.limit=…, so that some are left to check a smaller team on"
        )
    return rest[:most]


async def check_all(
    player: TeamPlayer, proposals: Sequence[Proposal], tasks: Sequence[Task], confidence: float
) -> list[Checked]:
    """Play the whole team and each proposal on ever more tasks, until it passes or fails."""
    rungs, left, run = rungs_of(len(tasks), 64), list(proposals), player.run
    known = run.read_json(LOOKS) if (run.path / LOOKS).exists() else []
    looks = {*map(tuple, known), *((size, file_name(one)) for size in rungs for one in left)}
    run.write_json(LOOKS, sorted(looks))
    strict = 1 - (1 - confidence) / max(1, len(looks))
    done: dict[str, Checked] = {}
    for size in rungs:
        whole = await player.play(WHOLE, tasks[:size]) if left else []
        for proposal in list(left):
            name, roster = proposal.name, player.roster
            so = replace(player, roster=replace(roster, stop=proposal.stop or roster.stop))
            plays = await so.tried(file_name(proposal), tasks[:size], proposal.without, whole, name)
            if plays is not None:
                done[name] = _checked(name, whole, plays, strict)
            if plays is None or done[name].passed or done[name].difference.high < -LOSS:
                left.remove(proposal)
    return list(done.values())


def file_name(proposal: Proposal) -> str:
    """Readable, and different for different proposals."""
    what = f"{sorted(map(str, proposal.without))} {proposal.stop}"
    digest = hashlib.blake2b(what.encode(), digest_size=4).hexdigest()
    return f"{proposal.name.replace('`', '').replace('/', '-')[:80]} {digest}"


def _checked(
    name: str, whole: Sequence[Episode], plays: Sequence[Episode], confidence: float
) -> Checked:
    pairs = pairs_of(plays, whole)
    differences = list(by_task(pairs).values())
    difference, _ = adjusted(differences, confidence)
    count, failed = max(1, len(pairs)), sum(one.grade is None for one in plays)
    total = sum(other.usage.total for _, other in pairs)
    return Checked(
        name=name,
        difference=difference,
        tasks=len(differences),
        reward=sum(one.grade.reward for one, _ in pairs if one.grade) / count,
        generated=sum(one.usage.generated for one, _ in pairs) / count,
        read=sum(one.usage.prompt for one, _ in pairs) / count,
        share=sum(one.usage.total for one, _ in pairs) / max(1, total),
        failed=failed,
        passed=difference.low > -LOSS and not failed,
    )


def _written(
    run: RunFolder,
    config: Config,
    proposals: Sequence[Proposal],
    checked: Sequence[Checked],
    trained: Path | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    assert config.team is not None
    passed = sorted((one for one in checked if one.passed and one.share < 1), key=SHARE)
    chosen = next((p for p in proposals if passed and p.name == passed[0].name), None)
    path = None
    if chosen:
        tree = chosen.config(config).model_dump(mode="json", exclude_defaults=True)
        path = run.path / f"{config.name}-pruned.yaml"
        head = f"# {config.name}, {chosen.name}: {_sentence(passed[0])}\n"
        write_atomically(path, (head + yaml.safe_dump(tree, sort_keys=False)).encode())
    result = {
        "name": config.name,
        "proposals": [asdict(one) for one in sorted(checked, key=SHARE)],
        "chosen": chosen.name if chosen else None,
        "config": str(path) if path else None,
        "weights": _with_weights(trained, chosen.team(config.team)) if trained and chosen else None,
        **more,
    }
    run.write_json("prune.json", result)
    return result


def _with_weights(trained: Path, team: TeamConfig) -> str:
    """The command that plays the smaller team as it was checked; a config holds no weights."""
    step = trained.name.removeprefix("step-").lstrip("0") or "0"
    cuts = json.dumps([cut.model_dump(exclude_none=True) for cut in team.without])
    run = trained.parents[1]
    words = ["tacit", "eval", str(run), "--checkpoint", step, "--out", str(run / "pruned")]
    words += [f"team.without={cuts}", *([f"team.stop={team.stop}"] if team.stop else [])]
    return shlex.join(words)


def _sentence(one: Checked) -> str:
    low, high = 100 * one.difference.low, 100 * one.difference.high
    return (
        f"{100 * one.share:.0f} % of the tokens, {100 * one.difference.mean:+.1f} points "
        f"[{low:+.1f}, {high:+.1f}] on {one.tasks} tasks that the audit did not use"
    )
