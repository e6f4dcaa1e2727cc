"""The library's four verbs: the commands of the same names as functions that print no tables.

Each takes a config, a recipe's name, a YAML file or a run folder, and blocks until it is done. They
also work inside a running event loop, as in a notebook.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tacit.cli.commands import (
    checkpoint_of,
    folder_of,
    measured_in,
    play_once,
    run_evaluation,
    start_of,
    trained_run,
)
from tacit.config import Config
from tacit.config.file import load_config, parse_config
from tacit.errors import ConfigError
from tacit.types import Episode

T = TypeVar("T")
Source = str | Path | Mapping[str, Any] | Config


def train(source: Source, *overrides: str, out: Path | str | None = None) -> dict[str, Any]:
    """Train a team in a run folder, or resume it; returns the run's summary.

    Example: train("pocket-hint", "train.steps=40", out="runs/mine")["teams"]["trained"]
    """
    from tacit.cli.training import run_training

    config, name = _read(source, overrides)
    folder = Path(out) if out else folder_of(name, config.name)
    return _finish(run_training(config, folder, start_of(name, folder)))


def evaluate(
    source: Source, *overrides: str, out: Path | str | None = None, checkpoint: str = "best"
) -> dict[str, Any]:
    """Play the config's own team on its held-out tasks, a trained run with its weights.

    Example: evaluate("runs/pocket-hint", "tasks.limit=50")["teams"]["trained"]["accuracy"]
    """
    config, name = _read(source, overrides)
    if config.team is None:
        raise ConfigError("evaluate: the config has no `team:` (for `teams:` use compare)")
    return _measure(config, name, out, checkpoint, "eval")


def compare(
    source: Source, *overrides: str, out: Path | str | None = None, checkpoint: str = "best"
) -> dict[str, Any]:
    """Play every team of the config on the same tasks, with paired tests and the frontier."""
    config, name = _read(source, overrides)
    return _measure(config, name, out, checkpoint, "compare")


def play(
    source: Source,
    question: str,
    *overrides: str,
    answer: str | None = None,
    views: Mapping[str, str] | None = None,
) -> Episode:
    """Play one conversation; it is graded if `answer` gives the reference.

    `views` holds what single agents are shown beside the question.

    Example: [call.text for call in play("pocket-hint", "What is 37 + 48 - 15?").calls]
    """
    config, name = _read(source, overrides)
    return _finish(play_once(config, question, answer, trained_run(name), views=views))


def _measure(
    config: Config, name: str, out: Path | str | None, checkpoint: str, what: str
) -> dict[str, Any]:
    trained = checkpoint_of(name, checkpoint)
    folder = Path(out) if out else measured_in(name, config.name, trained, what)
    return _finish(run_evaluation(config, folder, trained=trained, alone=what == "eval"))


def _read(source: Source, overrides: tuple[str, ...]) -> tuple[Config, str]:
    """The config, and its path or recipe's name, if it has one."""
    if isinstance(source, str | Path):
        return load_config(source, overrides), str(source)
    if overrides:
        raise ConfigError("overrides change a file or a recipe; change this config itself")
    return source if isinstance(source, Config) else parse_config(source), ""


def _finish(work: Coroutine[Any, Any, T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(asyncio.run, work).result()
