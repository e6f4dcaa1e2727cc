"""The command line. Heavy imports are inside the commands, so that `--help` is fast."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tacit import __version__
from tacit.errors import ConfigError, TacitError

if TYPE_CHECKING:
    from tacit.config import Config

T = TypeVar("T")

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Train, audit and serve teams of language-model agents that say only what is worth it."""


Source = Annotated[str, typer.Argument(help="A YAML config, a run folder, or a recipe's name.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[a.b=c]...", help="Settings, such as seed=1.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Run folder; default runs/NAME.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Details = Annotated[bool, typer.Option("--details", help="Print every paired test.")]
Which = Annotated[
    str, typer.Option("--checkpoint", help="For a trained run: best, last or a step.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only estimate tokens, money and time, from a sample.")
]


class Precision(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


EVAL = "Evaluate a team on held-out tasks: accuracy with intervals, tokens by agent, silence."
COMPARE = (
    "Compare several teams on the same tasks, with paired tests and the accuracy-tokens frontier."
)


@app.command("compare", help=COMPARE)
@app.command("eval", help=EVAL)
def measure(
    context: typer.Context,
    source: Source,
    overrides: Overrides = None,
    out: Out = None,
    as_json: AsJson = False,
    details: Details = False,
    dry: DryRun = False,
    checkpoint: Which = "best",
) -> None:
    """Both commands measure teams: `eval` the config's own alone, `compare` all of them."""
    from tacit.cli.commands import checkpoint_of, measured_in, run_evaluation
    from tacit.cli.tables import show_result
    from tacit.run.folder import RunFolder

    command = str(context.command.name)
    config, alone = _config(source, overrides), command == "eval"
    if alone and config.team is None:
        raise ConfigError(f"{source}: `tacit eval` needs a `team:` (for `teams:` use compare)")
    trained = checkpoint_of(source, checkpoint)
    folder = out or measured_in(source, config.name, trained, command)
    if dry:
        return _dry_run(config, as_json=as_json, trained=trained, folder=folder, alone=alone)
    result = _await(run_evaluation(config, folder, alone=alone, trained=trained))
    show_result(result, RunFolder(folder), as_json=as_json, details=details)


@app.command()
def train(
    source: Source,
    overrides: Overrides = None,
    out: Out = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN[:best|:last]", help="Start from this run's weights."),
    ] = None,
    as_json: AsJson = False,
    details: Details = False,
    dry: DryRun = False,
) -> None:
    """Train a team. To resume, give the same command again, or the run folder."""
    from tacit.cli.commands import finished, folder_of, start_of
    from tacit.cli.tables import show_result
    from tacit.run.folder import RunFolder

    config = _config(source, overrides)
    folder = out or folder_of(source, config.name)
    start = start or start_of(source, folder)
    if dry:
        return _dry_run(config, as_json=as_json, training=True, folder=folder, start=start)
    run, teams = RunFolder(folder), ("untrained", *config.teams, "trained")
    result = finished(run, config, teams) if start is None else None
    if not (result and (result.get("stopped") or result.get("steps") == config.train.steps)):
        from tacit.cli.training import run_training  # after the config, which answers at once

        result = _await(run_training(config, folder, start))
    if "paused" not in result:
        show_result(result, run, as_json=as_json, details=details)


@app.command()
def plan(
    source: Source,
    overrides: Overrides = None,
    actor: Annotated[
        str | None, typer.Option(help="Size of the Actor's model: 70B, a folder or a config.json.")
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option(metavar="MODEL=SIZE", help="Size of any other model.")
    ] = None,
    gpu: Annotated[str, typer.Option(help="H200, B200, H100, A100, A100-40, L40S, L4.")] = "H200",
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs in each node.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 1,
    network: Annotated[float, typer.Option(min=0.1, help="Gbit/s between nodes.")] = 400.0,
    gpu_price: Annotated[
        float | None, typer.Option(min=0, help="Price of one GPU for an hour.")
    ] = None,
    fill: Annotated[
        float, typer.Option(min=0.01, max=1, help="Mean answer length as a share of max_tokens.")
    ] = 0.7,
    question_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a question.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Estimate a training run: memory, time, money, bottleneck. Loads no model."""
    ring = _ring("plan")
    site = ring.Site(
        card=ring.find_card(gpu),
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        network_per_s=network * 1e9 / 8,
        gpu_price=gpu_price,
        question=question_tokens,
        fill=fill,
    )
    ring.run_plan(source, overrides or (), site, actor=actor, sizes=size or (), as_json=as_json)


@app.command()
def search(
    source: Source,
    overrides: Overrides = None,
    out: Out = None,
    as_json: AsJson = False,
    details: Details = False,
    dry: DryRun = False,
) -> None:
    """Search for a good team under a budget, then train it. The same command resumes."""
    from tacit.cli.commands import folder_of

    config = _config(source, overrides)
    ring, folder = _ring("search"), out or folder_of(source, config.name)
    if dry:
        _await(ring.dry_run(config, folder, as_json=as_json))
        return
    result = _await(ring.run_search(config, folder))
    if "paused" not in result:
        ring.show_search(result, folder, as_json=as_json, details=details)


@app.command()
def audit(
    source: Source,
    overrides: Overrides = None,
    out: Out = None,
    as_json: AsJson = False,
    dry: DryRun = False,
    checkpoint: Which = "best",
    details: Annotated[
        bool, typer.Option("--details", help="Also show where the tokens go, with examples.")
    ] = False,
    program: Annotated[
        str | None, typer.Option(help="For a recording: `module:function` that runs the app.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="For a recording: its task set or .jsonl file.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of those tasks; default test.")] = None,
    instead: Annotated[
        str | None, typer.Option(help="What a left-out agent says; default nothing.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="Server to ask; default the recorded one.")] = None,
    key_env: Annotated[
        str | None, typer.Option(help="Environment variable with that server's key.")
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Runs of the app in parallel; default 8.")
    ] = None,
) -> None:
    """Measure what each agent, round and message costs and is worth, by playing without it."""
    ring, key = _ring("audit"), os.environ.get(key_env) if key_env else None
    if key_env and not key:
        raise ConfigError(f"--key-env: the environment variable {key_env} is not set")
    app: dict[str, Any] = {"program": program, "tasks": tasks, "split": split, "instead": instead}
    app |= {"to": to, "key": key, "at_once": at_once}
    work = ring.audit_source(source, overrides or (), out, checkpoint=checkpoint, dry=dry, app=app)
    ring.show_audit(_await(work), as_json=as_json, details=details)


@app.command()
def prune(
    run: Annotated[Path, typer.Argument(help="The folder of an audit.")],
    tasks: Annotated[int, typer.Option(min=1, help="The most tasks to check with.")] = 512,
    rivals: Annotated[
        bool, typer.Option("--rivals", help="Also check AgentPrune's and AgentDropout's cuts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Propose smaller teams after an audit, check them on other tasks, write the best config."""
    ring = _ring("prune")
    ring.show_prune(_await(ring.run_prune(run, tasks, rivals=rivals)), as_json=as_json)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder; default in the run.")] = None,
    merged: Annotated[bool, typer.Option("--merged", help="Whole model, no adapter.")] = False,
    gguf: Annotated[bool, typer.Option("--gguf", help="Write a GGUF file for llama.cpp.")] = False,
    checkpoint: Annotated[str, typer.Option(help="best, last or a step.")] = "best",
    role: Annotated[str | None, typer.Option(help="Only the weights of this role.")] = None,
    dtype: Annotated[
        Precision, typer.Option(help="Precision of the whole model; auto is that of the run.")
    ] = Precision.auto,
) -> None:
    """Export trained weights as a peft adapter, a model folder or a GGUF file."""
    from tacit.run.folder import RunFolder

    RunFolder.existing(run)
    ring = _ring("export")  # after the run folder, which is read at once
    order = ring.Order(
        checkpoint=checkpoint, role=role, merged=merged, gguf=gguf, dtype=dtype.value
    )
    for folder in ring.export_run(run, order, out):
        typer.echo(f"wrote {folder}; its README.md says what it is and how to use it")


@app.command()
def play(
    question: Annotated[str, typer.Argument(help="What to ask the team.")],
    source: Annotated[str, typer.Option("--team", help="Config, run or recipe.")] = "pocket-hint",
    overrides: Overrides = None,
    answer: Annotated[str | None, typer.Option(help="The answer to grade by.")] = None,
    view: Annotated[
        list[str] | None, typer.Option(help="Private text for one agent: `hinter=the notes`.")
    ] = None,
) -> None:
    """Show one conversation as it happens."""
    from tacit.cli.commands import play_once, trained_run, views_of
    from tacit.cli.conversation import show_call, show_played, show_views

    config, run = _config(source, overrides), trained_run(source)
    views = views_of(view or (), config)
    show_views(views)
    show_played(_await(play_once(config, question, answer, run, show_call, views)), answer)


@app.command()
def serve(
    source: Source,
    overrides: Overrides = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    name: Annotated[str | None, typer.Option(help="Model id; default the config's name.")] = None,
    actor_url: Annotated[str | None, typer.Option(help="URL of the Actor to help.")] = None,
    actor_model: Annotated[str | None, typer.Option(help="Model id to ask that URL for.")] = None,
    actor_key_env: Annotated[
        str, typer.Option(help="Environment variable with the Actor's key.")
    ] = "OPENAI_API_KEY",
    key_env: Annotated[
        str, typer.Option(help="Environment variable with the clients' key or keys.")
    ] = "TACIT_API_KEY",
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Accept clients without a key.")
    ] = False,
    instruction: Annotated[
        str | None, typer.Option(help="Answer format; default that of the config's tasks.")
    ] = None,
    places: Annotated[int, typer.Option(min=1, help="Requests processed at the same time.")] = 64,
    waiting: Annotated[int, typer.Option(min=0, help="Requests that may wait for a place.")] = 256,
    rate: Annotated[float | None, typer.Option(min=1, help="Requests per minute and key.")] = None,
    body_kb: Annotated[int, typer.Option(min=1, help="Largest request body, in KB.")] = 1024,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds per request.")] = 120.0,
    request_budget: Annotated[
        str, typer.Option(metavar="tokens=N,turns=N,money=X", help="Budget of each request.")
    ] = "",
    conversation_budget: Annotated[
        str, typer.Option(metavar="tokens=N,turns=N,money=X", help="Budget of each conversation.")
    ] = "",
    answer_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens reserved for each answer.")
    ] = 256,
    conversations: Annotated[int, typer.Option(min=1, help="Conversations to remember.")] = 10_000,
    conversation_hours: Annotated[
        float, typer.Option(min=0.01, help="Hours to remember a conversation.")
    ] = 24.0,
    stop_when: Annotated[
        str, typer.Option(help="When to end the talk: agreed, repeating or both.")
    ] = "",
    grace: Annotated[float, typer.Option(min=0, help="Seconds to finish when stopped.")] = 30.0,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse fields without effect.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log each request.")] = False,
) -> None:
    """Put a team, trained or not, behind an OpenAI-compatible URL."""
    given = {name: value for name, value in locals().items() if name not in ("source", "overrides")}
    config = _config(source, overrides)
    from tacit.cli.commands import trained_run

    ring = _serving_ring("serve")
    asyncio.run(ring.run_serve(config, ring.ServeOptions(**given), trained_run(source)))


@app.command()
def record(
    to: Annotated[str, typer.Option(metavar="URL", help="The model server that the app uses.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the recorded calls.")] = Path(
        "runs/recorded"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8300,
    key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the server's key.")
    ] = None,
    pause: Annotated[
        float, typer.Option(min=0, help="Seconds of quiet that end an unnamed episode.")
    ] = 30.0,
    program: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="Also run the app, once per task.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Its tasks: a set or a .jsonl file.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of the set; default test.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Run only the first tasks.")] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="In parallel; default 1.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print each call.")] = False,
) -> None:
    """Record who says what in your own app: it only needs another base URL."""
    given = dict(locals())
    ring = _serving_ring("record")
    asyncio.run(ring.run_record(ring.RecordOptions(**given)))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are overlaid.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; default report.html in the run.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print to the terminal instead.")] = False,
    conversations: Annotated[bool, typer.Option(help="Include what was said.")] = True,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one HTML page about a run: results, frontier, curves, who talks, conversations."""
    _ring("report").run_report(runs, out, text=text, conversations=conversations, show=show)


@app.command()
def watch(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or a folder of them. They may not exist yet.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8321,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Follow runs live in the browser, on the report's page with buttons to stop and save."""
    _ring("report").run_watch(runs, port, show=show)


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(help="The task set to count and show.")] = None,
    split: Annotated[str, typer.Option(help="Its split.")] = "test",
    folder: Annotated[str | None, typer.Option(help="Folder with its files.")] = None,
    samples: Annotated[int, typer.Option(min=0, help="Samples to show.")] = 2,
    topologies: Annotated[bool, typer.Option("--topologies", help="List topologies.")] = False,
) -> None:
    """List the task sets, or count one and show samples."""
    from tacit.cli.listing import list_tasks, list_topologies, show_tasks

    if topologies:
        list_topologies()
    elif name is None:
        list_tasks()
    else:
        show_tasks(name, split, folder, samples)


@app.command()
def recipes() -> None:
    """List the recipes that come with the package."""
    from tacit.cli.listing import list_recipes

    list_recipes()


@app.command("doctor")
def check(
    source: Annotated[
        str | None, typer.Argument(help="A config to check; default the pocket model.")
    ] = None,
) -> None:
    """Check this machine, start and check a config's tools and models, and say how to fix them."""
    from tacit.config import Config

    config = _config(source) if source else Config()
    healthy = asyncio.run(_ring("doctor").run_doctor(config))
    raise typer.Exit(0 if healthy else 1)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("tacit.yaml"),
) -> None:
    """Write a commented config to start from."""
    from tacit.config.file import find_config
    from tacit.run.folder import write_atomically

    if path.exists():
        raise ConfigError(f"`{path}` exists already: name another file")
    write_atomically(path, find_config("template").read_bytes())
    typer.echo(f"wrote {path}; try: tacit eval {path}")


RINGS = {
    "plan": "tacit.plan.plan_command",
    "dry_run": "tacit.plan.dry_run",
    "doctor": "tacit.doctor.checkup",
    "audit": "tacit.audit.audit_command",
    "prune": "tacit.audit.pruning",
    "export": "tacit.export.exporting",
    "report": "tacit.report.reporting",
    "search": "tacit.search.searching",
    "serve": "tacit.serve.serving",
    "record": "tacit.external.recording",
}
"""The module behind the commands of each ring; imported by name when the command is given."""


def _config(source: str, overrides: list[str] | None = None) -> "Config":
    from tacit.config.file import load_config

    return load_config(source, overrides or ())


def _ring(name: str) -> Any:
    return import_module(RINGS[name])


def _serving_ring(name: str) -> Any:
    try:
        return _ring(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}: pip install 'tacit[serve]'") from None


def _dry_run(config: Any, *, training: bool = False, **options: Any) -> None:
    _await(_ring("dry_run").dry_run(config, training=training, **options))


class _Stopped(Exception):
    """Ctrl-C or SIGTERM. Typer would exit on KeyboardInterrupt without our message."""


def _await(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(_until_terminated(work))
    except KeyboardInterrupt:
        raise _Stopped(signal.SIGINT) from None
    except asyncio.CancelledError:
        raise _Stopped(signal.SIGTERM) from None


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Let SIGTERM cancel the work, as Ctrl-C already does."""
    me = asyncio.current_task()
    assert me is not None
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    return await work


def main() -> None:
    """Run the command line. The user's own mistakes give one sentence and exit code 2."""
    sys.path.append(str(Path.cwd()))  # for `module:name` in a config
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals that cannot show a λ
    try:
        app()
    except TacitError as error:
        typer.echo(f"tacit: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except OSError as error:
        typer.echo(f"tacit: {_explained(error)}", err=True)
        sys.exit(1)
    except RuntimeError as error:
        from tacit.engine.memory import ADVICE, ran_out

        if not ran_out(error):
            raise
        typer.echo(f"tacit: {ADVICE}", err=True)
        sys.exit(1)
    except (_Stopped, KeyboardInterrupt) as stop:
        typer.echo("tacit: stopped; the same command goes on from what was saved", err=True)
        sys.exit(128 + (stop.args[0] if stop.args else signal.SIGINT))


def _explained(error: OSError) -> str:
    """An operating system's error as a sentence; raises it again if it is unexpected."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room, and the same command goes on"
    if error.filename is None:
        raise error
    return f"`{error.filename}` cannot be used: {error.strerror}"
