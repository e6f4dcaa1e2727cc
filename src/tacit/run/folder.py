"""A run on disk: plain JSON files that stay readable if the process is killed at any moment.

Whole files are written to a temporary file and renamed into place. Lines are appended with one
write each, and readers skip an incomplete last line.
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
from typing import Any, Literal, TextIO, TypeVar

from pydantic import TypeAdapter, ValidationError

from tacit.config import Config
from tacit.config.file import saved_config
from tacit.errors import ConfigError
from tacit.types import Episode

T = TypeVar("T")

EPISODE: TypeAdapter[Episode] = TypeAdapter(Episode)

WITHOUT = " without helpers"
"""Appended to a team's name for its plays without the helpers."""
SPEAKING, ALONE, REWORDED = " made to speak", " weights alone", " reworded"
"""Likewise for the other plays with which its talk is compared; see evaluation/talk.py."""
VARIANTS = (WITHOUT, SPEAKING, ALONE, REWORDED)
LOCK = ".lock"
HISTORY = "started.jsonl"
LEFT_OVER = {"cache", "spend.jsonl", HISTORY, LOCK}
"""Files that a run may leave if it is refused or killed before it writes its config."""
MODEL_MAY_CHANGE = {
    "concurrency",
    "requests_per_minute",
    "tokens_per_minute",
    "timeout",
    "deadline",
    "retries",
    "rows",
    "kv_gib",
}
"""Settings of a model that may change when a run goes on: how fast it answers, not what."""
SHARED = {"name", "seed", "tasks", "models", "mcp", "prices", "spend_cap", "judge"}
SHARED |= {"team", "teams", "search", "audit"}
LEARNING = Config.model_fields.keys() - SHARED - {"evaluation", "train", "cluster"}
"""Sections that only training uses, besides `train`."""
TRAIN_MAY_CHANGE = {
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
"""Settings of `train` that may change when a run goes on: how long and how fast it trains."""

RunRequest = Literal["stop", "save"]
"""Requests to a training run by another process: stop after this step, save a checkpoint now."""


class RunFolder:
    """`config.json`, `episodes/*.jsonl`, `evals/*.json`, `summary.json` and what training adds."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | Path, config: Config) -> "RunFolder":
        """Start or continue a run; a folder that holds another experiment is refused."""
        run = cls.check(path, config)
        resolved = config.model_dump(mode="json")
        if not (run.path / "config.json").exists() or run.read_json("config.json") != resolved:
            run.write_json("config.json", resolved)
        return run

    @classmethod
    def check(cls, path: str | Path, config: Config) -> "RunFolder":
        """Refuse what `open` would refuse but write nothing, for use before models load."""
        run = cls(path)
        if run.path.exists() and not run.path.is_dir():
            raise ConfigError(f"`{path}` is a file: name a folder with --out")
        if (run.path / "config.json").exists():
            _, before = cls.existing(path)  # settings that did not exist then have their default
            then, now = (run._decisive(one, before) for one in (before, config))
            if changed := ", ".join(differences(then, now)):
                weights = f"; `--from {path}` starts with its weights" if run.trains else ""
                raise ConfigError(
                    f"`{path}` holds a run with another config ({changed} differ): "
                    f"name another folder with --out{weights}"
                )
        elif run.path.exists() and any(
            file.name not in LEFT_OVER and not file.name.startswith(".config.json.")
            for file in run.path.iterdir()  # the latter if killed inside `write_atomically`
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
        """True if training has begun here. Its first act is to evaluate the untrained team."""
        begun = ("checkpoints", "metrics.jsonl", "episodes/eval-000000.jsonl")
        return any((self.path / name).exists() for name in begun)

    def _decisive(self, config: Config, before: Config) -> dict[str, Any]:
        """The settings of `config` that the results in this folder depend on.

        `before` is the config they were made with. A team that was not played may change, as may
        what only training uses until training begins.
        """
        played = {path.stem for path in (self.path / "episodes").glob("*.jsonl")}
        teams = [team for name, team in config.teams.items() if name in played]
        teams += [config.team] if before.team and config.team else []
        models = {name: config.model_named(name) for name in config.models_used(teams)}
        whole = config.model_dump(mode="json")
        kept = ["seed", "tasks", "judge", "mcp", *(["team"] if before.team else [])]
        tree: dict[str, Any] = {
            "teams": {name: team for name, team in whole["teams"].items() if name in played},
            "models": {
                n: m.model_dump(mode="json", exclude=MODEL_MAY_CHANGE) for n, m in models.items()
            },
        }
        if self.trains:
            kept += [*LEARNING, *(["prices"] if config.reward.shape == "priced" else [])]
            tree["train"] = config.train.model_dump(mode="json", exclude=TRAIN_MAY_CHANGE)
            tree["evaluation"] = {"samples": config.evaluation.samples}
            tree["cluster"] = {"staleness": config.cluster.staleness}
        return tree | {name: whole[name] for name in kept}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out of this folder; a ConfigError if one is in it."""
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
                        folder.rmdir()  # fails if anything was written

    def write_json(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(self.path / name, text.encode())

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path / name} is damaged: {error}") from None

    def append(self, name: str, line: bytes) -> None:
        """Add one line with one write, so that only the last line can ever be incomplete."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab", buffering=0) as file:
            file.write(line + b"\n")

    def changes(self, config: Config) -> dict[str, list[Any]]:
        """Setting → its value when the run was last started, and its value now."""
        if not (self.path / "config.json").exists():
            return {}
        before = self.existing(self.path)[1].model_dump(mode="json")
        return differences(before, config.model_dump(mode="json"))

    def begin(self, config: Config, **more: Any) -> None:
        """Log that the run starts or resumes, and with which changes; then write its config."""
        changed = self.changes(config)
        self.log_start(**more, **({"changed": changed} if changed else {}))
        self.open(self.path, config)

    def origin(self) -> str | None:
        """The checkpoint of another run from which this one started, if any."""
        starts = (json.loads(line) for line in read_lines(self.path / HISTORY))
        return next((str(start["from"]) for start in starts if start.get("from")), None)

    def log_start(self, **more: Any) -> None:
        """Log the time, command and versions of this start."""
        program = Path(sys.argv[0])
        name = program.parent.name if program.name == "__main__.py" else program.name
        start = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": shlex.join([name, *sys.argv[1:]]),
            "versions": _versions(),
            "host": platform.node(),
            "pid": os.getpid(),
            **more,
        }
        self.append(HISTORY, json.dumps(start).encode())

    def ask(self, request: RunRequest) -> None:
        """Leave a request for the training process, which looks for one after each step."""
        write_atomically(self.path / "asked" / request, b"")

    def take(self, request: RunRequest) -> bool:
        """True if this was requested; also removes the request."""
        try:
            (self.path / "asked" / request).unlink()
        except FileNotFoundError:
            return False
        return True

    def append_episode(self, name: str, episode: Episode) -> None:
        self.append(f"episodes/{name}.jsonl", EPISODE.dump_json(episode))

    def episodes(self, name: str) -> Iterator[Episode]:
        path = self.path / "episodes" / f"{name}.jsonl"
        wrong = "is no episode: remove that line, and it is played again"
        return read_records(path, EPISODE, wrong)

    def mend(self, name: str) -> None:
        """Cut off an incomplete last line, so that the next one starts on a line of its own."""
        target = self.path / name
        if target.exists() and (data := target.read_bytes()) and not data.endswith(b"\n"):
            write_atomically(target, data[: data.rfind(b"\n") + 1])

    def cut(self, name: str, size: int) -> None:
        """Shorten a file to the size that a checkpoint recorded."""
        target = self.path / name
        if target.exists():
            with target.open("rb") as file:
                file.seek(max(0, size - 1))
                if size and file.read(1) != b"\n":
                    raise ConfigError(
                        f"{target} was changed since its checkpoint was saved: remove it, "
                        "and the run goes on without what it held"
                    )
            os.truncate(target, size)


def _locked(file: TextIO) -> bool:
    """Lock a file until it is closed; False if another process holds the lock or removed it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return os.fstat(file.fileno()).st_nlink > 0


def read_lines(path: Path) -> Iterator[bytes]:
    """The complete lines of a JSONL file; a last line without its newline is left out."""
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))


def read_records(path: Path, adapter: TypeAdapter[T], wrong: str) -> Iterator[T]:
    """The records of a JSONL file; a ConfigError that ends with `wrong` for an invalid line."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield adapter.validate_json(line)
        except ValidationError:
            raise ConfigError(f"{path} line {number} {wrong}") from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all: to a temporary file first, then renamed."""
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
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def differences(old: Any, new: Any, place: str = "") -> dict[str, list[Any]]:
    """Dotted place → the old and the new value, where they differ."""
    if old == new:
        return {}
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return {place: [old, new]}
    found: dict[str, list[Any]] = {}
    for key in sorted(old.keys() | new.keys()):
        found |= differences(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
    return found
