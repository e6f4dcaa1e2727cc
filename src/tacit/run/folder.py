"""A run on disk: plain JSON files that survive being killed at any moment.

Whole files are written beside their place and renamed into it; lines are appended one write each,
and a torn last line is passed over when reading.
"""

import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import TypeAdapter, ValidationError

from tacit.config import Config, Section
from tacit.config.file import saved_config
from tacit.errors import ConfigError
from tacit.types import Episode

EPISODE: TypeAdapter[Episode] = TypeAdapter(Episode)

WITHOUT = " without helpers"
"""What is added to a team's name for its plays with the helpers left out."""
LOCK = ".lock"
HISTORY = "started.jsonl"
LEFT_OVER = {"cache", "spend.jsonl", HISTORY, LOCK}
"""What a run leaves that was refused or killed before it began: answers, what they cost, …"""
MANNERS = {
    "concurrency",
    "requests_per_minute",
    "tokens_per_minute",
    "timeout",
    "deadline",
    "retries",
    "rows",
    "kv_gib",
}
"""Settings of a model that say how fast it is asked, not what it answers."""
LEARNING = ("train_tasks", "reward", "budget", "silence", "policy", "optimizer", "loss")
"""Sections that only training uses; of `train` itself all but the next."""
EXTENDING = {
    "steps",
    "patience",
    "dead_steps",
    "empty_share",
    "evaluate_every",
    "checkpoint_every",
    "save_episodes",
    "trackers",
    "concurrency",
    "microbatch_tokens",
    "gradient_checkpointing",
}
"""Settings of `train` that say how long, how fast and how closely watched, not what is learned."""

Request = Literal["stop", "save"]
"""What may be asked of a run under way: stop after this step, save a checkpoint now."""


class RunFolder:
    """`config.json`, `episodes/*.jsonl`, `evals/*.json`, `summary.json` and what training adds."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | Path, config: Config) -> "RunFolder":
        """Start or continue a run; a folder that holds another experiment is left alone."""
        run = cls.check(path, config)
        resolved = config.model_dump(mode="json")
        if not (run.path / "config.json").exists() or run.read_json("config.json") != resolved:
            run.write_json("config.json", resolved)
        return run

    @classmethod
    def check(cls, path: str | Path, config: Config) -> "RunFolder":
        """Refuse what `open` would refuse, and write nothing: for before models load."""
        run = cls(path)
        if run.path.exists() and not run.path.is_dir():
            raise ConfigError(f"`{path}` is a file: name a folder with --out")
        if (run.path / "config.json").exists():
            _, before = cls.existing(path)  # a setting that was not there yet had its default
            then, now = (run._decisive(one, before) for one in (before, config))
            if changed := ", ".join(_changes(then, now)):
                weights = f"; `--from {path}` starts with its weights" if run.trains else ""
                raise ConfigError(
                    f"`{path}` holds a run with another config ({changed} differ): "
                    f"name another folder with --out{weights}"
                )
        elif run.path.exists() and any(
            not _is_torn(file, "config.json") and file.name not in LEFT_OVER
            for file in run.path.iterdir()
        ):
            raise ConfigError(
                f"`{path}` is not a run folder and not empty: name another with --out"
            )
        return run

    @classmethod
    def existing(cls, path: str | Path) -> tuple["RunFolder", Config]:
        run = cls(path)
        if not (run.path / "config.json").exists():
            raise ConfigError(f"`{path}` is not a run folder: it has no config.json")
        return run, saved_config(run.read_json("config.json"), f"{path}/config.json")

    @property
    def trains(self) -> bool:
        """Whether training was begun here, which it is with the first evaluation."""
        begun = ("checkpoints", "metrics.jsonl", "episodes/eval-000000.jsonl")
        return any((self.path / name).exists() for name in begun)

    def _decisive(self, config: Config, before: Config) -> dict[str, Any]:
        """The settings that the results in this folder depend on; `before` is how they were made.

        A team that was not played may change, and so may what only training uses until it begins.
        """
        played = {path.stem for path in (self.path / "episodes").glob("*.jsonl")}
        teams = [team for name, team in config.teams.items() if name in played]
        teams += [config.team] if before.team and config.team else []
        names = {agent.model for team in teams for agent in team.agents.values()}
        names |= {config.judge.model} if config.judge else set()
        whole = config.model_dump(mode="json")
        kept = ["seed", "tasks", "judge", *(["team"] if before.team else [])]
        tree: dict[str, Any] = {
            "teams": {name: team for name, team in whole["teams"].items() if name in played},
            "models": {name: _without(config.model_named(name), MANNERS) for name in names},
        }
        if self.trains:
            kept += [*LEARNING, *(["prices"] if config.reward.shape == "priced" else [])]
            tree["train"] = _without(config.train, EXTENDING)
            tree["evaluation"] = {"samples": config.evaluation.samples}
        return tree | {name: whole[name] for name in kept}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, no other process works in this folder; one that would is refused."""
        made = [one for one in (self.path, *self.path.parents) if not one.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self.path / LOCK
        with lock.open("a") as file:
            if not _locked(file):
                raise ConfigError(
                    f"`{self.path}` is in use by another process: wait until it is done, "
                    "or name another folder with --out"
                )
            try:
                yield
            finally:
                with suppress(OSError):
                    lock.unlink()
                    for folder in made:
                        folder.rmdir()  # as far as nothing came of it

    def write_json(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(self.path / name, text.encode())

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path / name} is damaged: {error}") from None

    def append(self, name: str, line: bytes) -> None:
        """Add one line in one write, so that being killed tears at most the last one."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab", buffering=0) as file:
            file.write(line + b"\n")

    def changes(self, config: Config) -> dict[str, list[Any]]:
        """Setting → what it was when the run was last taken up, and what it is now."""
        if not (self.path / "config.json").exists():
            return {}
        before = self.existing(self.path)[1].model_dump(mode="json")
        return _changes(before, config.model_dump(mode="json"))

    def begin(self, config: Config, **more: Any) -> None:
        """Note in the history that the run begins or goes on, and what changed; then its config."""
        changed = self.changes(config)
        self.log_start(**more, **({"changed": changed} if changed else {}))
        self.open(self.path, config)

    def origin(self) -> str | None:
        """The checkpoint of another run that this one began with."""
        starts = (json.loads(line) for line in read_lines(self.path / HISTORY))
        return next((str(start["from"]) for start in starts if start.get("from")), None)

    def log_start(self, **more: Any) -> None:
        """Add when, how and with which versions the run was started or taken up again."""
        start = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "versions": _versions(),
            "host": platform.node(),
            "pid": os.getpid(),
            **more,
        }
        self.append(HISTORY, json.dumps(start).encode())

    def ask(self, request: Request) -> None:
        """Leave word for the process that runs it, which looks after each step."""
        write_atomically(self.path / "asked" / request, b"")

    def take(self, request: Request) -> bool:
        """Whether it was asked for; asking once is taken once."""
        try:
            (self.path / "asked" / request).unlink()
        except FileNotFoundError:
            return False
        return True

    def append_episode(self, name: str, episode: Episode) -> None:
        self.append(f"episodes/{name}.jsonl", EPISODE.dump_json(episode))

    def episodes(self, name: str) -> Iterator[Episode]:
        path = self.path / "episodes" / f"{name}.jsonl"
        for number, line in enumerate(read_lines(path), start=1):
            try:
                yield EPISODE.validate_json(line)
            except ValidationError:
                raise ConfigError(
                    f"{path} line {number} is no episode: remove that line, and it is played again"
                ) from None

    def mend(self, name: str) -> None:
        """Cut a torn last line off, so that what is appended next starts on a line of its own."""
        target = self.path / name
        if target.exists() and (data := target.read_bytes()) and not data.endswith(b"\n"):
            write_atomically(target, data[: data.rfind(b"\n") + 1])

    def cut(self, name: str, size: int) -> None:
        """Shorten a file to what a checkpoint knows of it."""
        target = self.path / name
        if target.exists():
            with target.open("rb") as file:
                file.seek(max(0, size - 1))
                if size and file.read(1) != b"\n":
                    raise ConfigError(
                        f"{target} is not what its checkpoint knows: it was changed. Remove it, "
                        "and the run goes on without what it held"
                    )
            os.truncate(target, size)


def _locked(file: TextIO) -> bool:
    """Lock a file until it is closed; False where another process did, or took it away."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that knows no locks
        return True
    return os.fstat(file.fileno()).st_nlink > 0


def read_lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a JSONL file; a last line without its newline was torn and is left out."""
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))


def write_atomically(path: Path, data: bytes) -> None:
    """All or nothing: written beside, flushed to disk, renamed into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("tacit", "torch", "transformers", "vllm"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _is_torn(file: Path, name: str) -> bool:
    """Whether it is what being killed inside `write_atomically` leaves behind."""
    return file.name.startswith(f".{name}.")


def _without(section: Section, names: set[str]) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude=names)


def _changes(old: Any, new: Any, place: str = "") -> dict[str, list[Any]]:
    """Dotted place → what stands there in the one and in the other, where they differ."""
    if old == new:
        return {}
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return {place: [old, new]}
    found: dict[str, list[Any]] = {}
    for key in sorted(old.keys() | new.keys()):
        found |= _changes(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
    return found
