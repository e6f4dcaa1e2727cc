"""`tacit plan`: what a training run will take, by arithmetic alone. Loads no model and no torch."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tacit.pocket
from tacit.cli.terminal import Grid, out, print_json
from tacit.config import Config, TeamConfig
from tacit.config.file import load_config
from tacit.errors import ConfigError
from tacit.plan.cards import GIB, find_card
from tacit.plan.costs import LEFT_OUT
from tacit.plan.forecast import duration
from tacit.plan.model_shapes import Shape, shape_of
from tacit.plan.planning import make_plan
from tacit.plan.site import Plan, Site
from tacit.registry import check_name
from tacit.team.roster import check_team

__all__ = ["Site", "find_card", "run_plan"]


def run_plan(
    source: str,
    overrides: Iterable[str],
    site: Site,
    *,
    actor: str | None = None,
    sizes: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Plan a recipe and print it."""
    config = load_config(source, overrides)
    if config.team is None:
        raise ConfigError(f"{source}: `tacit plan` needs a `team:` to train")
    check_team(config.team)
    shapes = shapes_of(config, config.team, actor, sizes)
    plan = make_plan(config, config.team, shapes, site)
    if as_json:
        return print_json(plan.to_json())
    show(plan, config, shapes, site)


def shapes_of(
    config: Config, team: TeamConfig, actor: str | None, sizes: Sequence[str]
) -> dict[str, Shape]:
    """The shape of each model that is loaded, as it is told or found on disk."""
    used = config.models_used(config.all_teams.values())
    names = [name for name in used if config.model_named(name).engine != "api"]
    told = dict(_told(size, names) for size in sizes)
    if actor is not None:
        told[_actors_model(config, team, names)] = actor
    return {name: shape_of(told[name]) if name in told else _found(config, name) for name in names}


def _told(size: str, names: Sequence[str]) -> tuple[str, str]:
    name, _, asked = size.partition("=")
    if not asked:
        raise ConfigError(f"--size {size}: write NAME=70B, or NAME=FOLDER")
    check_name("model of --size", name, names)
    return name, asked


def _actors_model(config: Config, team: TeamConfig, names: Sequence[str]) -> str:
    """The model of the role `actor`, or the only one."""
    name = team.agents["actor"].model if "actor" in team.agents else ""
    if not name and len(names) == 1:
        name = names[0]
    if name in names:
        return name
    reason = "is behind an API" if name else "is not one of several models"
    raise ConfigError(f"--actor: the Actor {reason}; give --size NAME=70B for {', '.join(names)}")


def _found(config: Config, name: str) -> Shape:
    path = config.model_named(name).path
    folder = Path(tacit.pocket.__file__).parent / "model" if path == "pocket" else Path(path)
    if not (folder.expanduser() / "config.json").is_file():
        raise ConfigError(
            f"models.{name}: `{path}` is no folder with a config.json here, so say how large it "
            f"is: --size {name}=7B"
        )
    return shape_of(str(folder))


# --- printing -------------------------------------------------------------------------------------


def show(plan: Plan, config: Config, shapes: Mapping[str, Shape], site: Site) -> None:
    gpus = f"{site.gpus} × {site.card.name}"
    gpus += f" on {site.nodes} nodes" if site.nodes > 1 else ""
    models = [f"{name} {_size(shape.weights)}" for name, shape in shapes.items()]
    models += [f"{name} behind an API" for name in plan.api]
    out.print(f"{config.name} on {gpus}: {', '.join(models)}")
    out.print(_phases(plan))
    out.print(_memory(plan, site))
    for line in (*_lines(plan, config, site), *(f"{note}." for note in plan.notes)):
        out.print(line)


def _size(weights: int) -> str:
    return f"{weights / 1e9:.3g}B" if weights >= 1e9 else f"{weights / 1e6:.3g}M"


def _phases(plan: Plan) -> Grid:
    rows = []
    for name, seconds in plan.phases.items():
        causes = sorted(plan.causes.get(name, {}).items(), key=lambda pair: -pair[1])
        most = ", ".join(f"{cause} {part / seconds:.0%}" for cause, part in causes[:2] if part)
        rows.append([name, most, f"{seconds:.2f}", f"{seconds / plan.step_s:.0%}"])
    rows.append(["step", "", f"{plan.step_s:.2f}", ""])
    headers = ["phase", "mainly", "seconds", "share"]
    return Grid(headers, rows, names=2, title="One training step (estimated)")


def _memory(plan: Plan, site: Site) -> Grid:
    rows = [[name, f"{part / GIB:.1f}"] for name, part in plan.memory.items()]
    rows.append(["total", f"{sum(plan.memory.values()) / GIB:.1f}"])
    rows.append([f"{site.card.name} has", f"{site.card.memory_gib:.1f}"])
    return Grid(["part", "GiB"], rows, title="Memory of each GPU (estimated)")


def _lines(plan: Plan, config: Config, site: Site) -> list[str]:
    phase, cause = plan.bottleneck
    lines = [f"bottleneck: {phase}" + (f", mainly {cause}" if cause else "")]
    play, update = plan.phases["play"], plan.phases["update"]
    if plan.generated:
        lines.append(f"{plan.generated / play:,.0f} tokens/s of play, {plan.generated:,.0f} a step")
    lines.append(f"{plan.learned / update:,.0f} tokens/s of learning, {plan.learned:,.0f} a step")
    lines.append(
        f"{plan.steps} steps and evaluations: {duration(plan.run_s)}, "
        f"{plan.gpu_hours:.2f} GPU-hours"
    )
    if plan.gpu_money is not None:
        lines.append(f"{plan.gpu_money:,.2f} for GPUs at {site.gpu_price:g} an hour")
    for name, need in plan.api.items():
        lines.append(
            f"{config.model_named(name).model}: {need.calls:,.0f} calls, {need.prompt:,.0f} tokens "
            f"read, {need.generated:,.0f} generated"
        )
    if plan.api_money is not None:
        lines.append(f"{plan.api_money:,.2f} {plan.currency} for API tokens")
    lines.append(
        f"Assumed: answers fill {site.fill:.0%} of their cap (--fill), questions have "
        f"{site.question} tokens (--question-tokens)."
    )
    speed, memory = LEFT_OUT["tokens/s"], LEFT_OUT["memory"]
    lines.append(
        f"On one H200, this is off by up to {speed:.0%} in tokens/s and {memory:.0%} in memory for "
        "configurations left out of the fit."
    )
    return lines
