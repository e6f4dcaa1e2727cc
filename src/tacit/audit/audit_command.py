"""The work behind `tacit audit` of a config or a run."""

import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.audit.audit_tables import audit_tables, estimate_lines
from tacit.audit.auditing import FILE, PROBE, Audit, estimate
from tacit.audit.team_player import TeamPlayer
from tacit.cli.commands import checkpoint_of, measured_in, open_rosters
from tacit.cli.terminal import EpisodeBar, episode_progress, note, out as console, print_json
from tacit.config import Config
from tacit.config.file import apply_override, load_config, parse_config
from tacit.economy.ledger import load_prices
from tacit.errors import ConfigError
from tacit.run.folder import RunFolder
from tacit.run.opening import draws, prices_of, tasks_of, teams_of
from tacit.run.spending import Spending
from tacit.traffic.audit_traffic import audit_traffic
from tacit.types import Episode


def audit_source(
    source: str,
    overrides: Sequence[str],
    out: Path | None,
    *,
    checkpoint: str = "best",
    dry: bool = False,
    app: Mapping[str, Any] | None = None,
) -> Coroutine[Any, Any, dict[str, Any]]:
    """The audit of a config, a recipe, a run folder, a recording or a file of spans.

    `app` says how the app of a recording is run again.
    """
    path = Path(source)
    given = [name.replace("_", "-") for name, value in (app or {}).items() if value]
    given = ["key-env" if name == "key" else name for name in given]
    if path.suffix in (".json", ".jsonl") or (path / "recording.json").exists():
        if out or checkpoint != "best":
            raise ConfigError("a recording is audited in its own folder, and has no checkpoints")
        if given and "program" not in given:
            raise ConfigError(f"--{given[0]} says how an app is run again: add --program")
        return _of_an_app(path, overrides, app or {}, dry)
    if given:
        raise ConfigError(f"--{given[0]} is for recordings, and `{source}` is none")
    config = load_config(source, overrides)
    trained = checkpoint_of(source, checkpoint)
    folder = out or measured_in(source, config.name, trained, "audit")
    return run_audit(config, folder, trained=trained, dry=dry)


async def _of_an_app(
    path: Path, overrides: Sequence[str], app: Mapping[str, Any], dry: bool
) -> dict[str, Any]:
    try:
        from tacit.audit.apps import AppOptions, audit_recording, audit_spans
    except ModuleNotFoundError as error:
        raise ConfigError(f"recordings need {error.name}: pip install 'tacit[serve]'") from None
    tree: dict[str, Any] = {}
    for one in overrides:
        apply_override(tree, one)
    config = parse_config(tree)
    if dry and not app.get("program"):
        raise ConfigError("--dry-run: nothing is played without --program, so nothing is spent")
    if not path.is_dir():
        return audit_spans(path, load_prices(config.prices) if config.prices else None)
    options = AppOptions(**{name: value for name, value in app.items() if value is not None})
    held = RunFolder(path).held() if options.program else nullcontext()  # it may still grow
    with held, bars() as listen:
        return await audit_recording(path, config, options, listen, note, dry)


def show_audit(result: Mapping[str, Any], *, as_json: bool = False, details: bool = False) -> None:
    if as_json:
        print_json(result)
        return
    dry = "tokens_most" in result
    for one in estimate_lines(result) if dry else audit_tables(result, details=details):
        console.print(one)
    if folder := result.get("folder"):
        console.print(f"as a page: tacit report {shlex.quote(folder)}", soft_wrap=True)


async def run_audit(
    config: Config, folder: Path, *, trained: Path | None = None, dry: bool = False
) -> dict[str, Any]:
    """Audit the config's own team; what was played is kept, and a second start goes on from it.

    `trained` is the folder of a checkpoint to play with. A dry run plays a few tasks, which count
    for the audit as well.
    """
    if config.team is None:
        raise ConfigError("an audit is of one team: the config needs `team:`")
    (name,) = (name for name, team in teams_of(config).items() if team is config.team)
    samples = any(draws(config, config.team, role) for role in config.team.agents)
    if config.audit.samples > 1 and not samples:
        raise ConfigError(
            f"audit.samples is {config.audit.samples}, but nobody samples: the plays of a task "
            "would all be the same; give an agent a `temperature`"
        )
    tasks, prices = tasks_of(config.tasks, config.judge), prices_of(config)
    run = RunFolder.check(folder, config)
    with run.held():
        spending = Spending(run, prices, config.spend_cap)
        async with open_player(config, run, name, trained, spending) as player:
            audit = Audit(
                player=player,
                tasks=tasks[:PROBE] if dry else tasks,
                settings=config.audit,
                confidence=config.evaluation.confidence,
                prices=prices,
                samples=samples,
                say=note,
            )
            await audit.run()
            if dry:
                return estimate(audit, len(tasks), config.spend_cap)
            messages = await audit.telling()
        result = {
            "name": config.name,
            "seed": config.seed,
            "team": config.team.model_dump(mode="json", exclude_defaults=True),
            "checkpoint": str(trained.resolve()) if trained else None,
            "currency": prices.currency if prices else None,
            **audit.to_json(messages),
            "traffic": asdict(audit_traffic(audit.base, prices)),
            "spend": spending.to_json(),
        }
        run.write_json(FILE, result)
    return result | {"folder": str(folder)}


@asynccontextmanager
async def open_player(
    config: Config, run: RunFolder, name: str, trained: Path | None, spending: Spending
) -> AsyncIterator[TeamPlayer]:
    """The config's own team, ready to play into this folder."""
    assert config.team is not None
    account = spending.account(note)
    async with open_rosters(config, {name: config.team}, trained, account) as (rosters, grader):
        run.begin(config)
        with bars() as listen:
            cap, roster = spending.cap(), rosters[name]
            yield TeamPlayer(
                config=config, run=run, roster=roster, grader=grader, cap=cap, listen=listen
            )


@contextmanager
def bars() -> Iterator[Callable[[str, int], Callable[[Episode], None]]]:
    """A progress bar for each name, made anew when a further rung begins."""
    shown: dict[str, EpisodeBar] = {}
    with episode_progress() as progress:

        def listen(name: str, total: int) -> Callable[[Episode], None]:
            if name in shown:
                shown[name].remove()
            shown[name] = EpisodeBar(progress, name, total)
            return shown[name].add

        yield listen
