"""Checkpoints: safetensors and JSON, written completely or not at all; best and last are kept.

A checkpoint is a folder `step-000123` with a weights file and an optimiser file per policy, and a
`state.json` with the hash of each. It is written under another name and then renamed, so that a run
killed at any moment finds only complete ones.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tacit.errors import RunError, one_line
from tacit.learn.policy import Policy
from tacit.learn.update import Updater
from tacit.run.folder import write_atomically

POINTERS = ("last", "best")
CONTENT = "content"
"""Prefix of the optimiser's tensors."""
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""Errors from reading a JSON file of the wrong shape."""
ASIDE = ".aside"
"""Suffix of a checkpoint that is being replaced by another one of the same step."""


class Checkpoints:
    """The `checkpoints/` folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: Mapping[str, Any], updaters: Mapping[str, Updater]) -> None:
        """Write a checkpoint, then point `last` at it."""
        name = f"step-{step:06d}"
        making = self.folder / f".{name}.{os.getpid()}"
        try:
            making.mkdir(parents=True)
            hashes: dict[str, str] = {}
            for policy, updater in updaters.items():
                hashes |= _write(making, f"policy-{policy}", updater.policy.state())
                hashes |= _write(making, f"optimizer-{policy}", _optimizer_state(updater))
            own = {
                "taken": {policy: updater.taken for policy, updater in updaters.items()},
                "missed": {policy: updater.step.missed for policy, updater in updaters.items()},
            }
            text = json.dumps({**state, **own, "step": step, "files": hashes}, indent=1)
            write_atomically(making / "state.json", text.encode())
            self._put(making, name)
            self.point("last", step)
        except (OSError, SafetensorError) as error:  # SafetensorError if the disk is full
            shutil.rmtree(making, ignore_errors=True)
            last = self.step("last")
            kept = "its start" if last is None else f"the one of step {last}"
            raise RunError(
                f"could not save the checkpoint of step {step} ({error}); "
                f"the run can go on from {kept}"
            ) from error

    def _put(self, made: Path, name: str) -> None:
        """Rename a checkpoint into place; an old one of the same step is kept until then."""
        place, aside = self.folder / name, self.folder / f".{name}{ASIDE}"
        if place.exists():
            place.rename(aside)
        made.rename(place)
        shutil.rmtree(aside, ignore_errors=True)

    def point(self, which: str, step: int) -> None:
        """Point `best` or `last` at a step, and delete checkpoints that neither points at."""
        write_atomically(self.folder / f"{which}.json", json.dumps({"step": step}).encode())
        kept = {self.step(pointer) for pointer in POINTERS}
        for path in self.folder.glob("step-*"):
            if int(path.name.removeprefix("step-")) not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def step(self, which: str) -> int | None:
        """The step that `best` or `last` points at, or None."""
        path = self.folder / f"{which}.json"
        with reading(path):
            return int(json.loads(path.read_text())["step"]) if path.exists() else None

    def state(self, step: int) -> dict[str, Any]:
        """Everything but the weights, after checking every file against its hash."""
        folder = self.folder / f"step-{step:06d}"
        with reading(folder):
            state: dict[str, Any] = json.loads((folder / "state.json").read_text())
            for name, digest in state["files"].items():
                if _hash(folder / name) != digest:
                    raise RunError(
                        f"{folder / name} is damaged: its content does not match its hash"
                    )
        return state

    def load_policy(self, step: int, policy: Policy) -> None:
        """Restore the weights of one policy."""
        path = self.folder / f"step-{step:06d}" / f"policy-{policy.name}.safetensors"
        policy.load(_read(path), str(path))

    def load(self, step: int, updaters: Mapping[str, Updater]) -> dict[str, Any]:
        """Restore weights and optimisers; return the rest of the state."""
        state, folder = self.state(step), self.folder / f"step-{step:06d}"
        with reading(folder):
            taken = {name: int(state["taken"][name]) for name in updaters}
            missed = {name: float(state.get("missed", {}).get(name, 0.0)) for name in updaters}
        for name, updater in updaters.items():
            self.load_policy(step, updater.policy)
            tensors = _read(folder / f"optimizer-{name}.safetensors")
            with reading(folder):
                _restore_optimizer(updater, tensors)
            updater.taken, updater.step.missed = taken[name], missed[name]
        return state

    def sweep(self) -> None:
        """Clean up after an interrupted save, and restore the checkpoint it had moved aside."""
        for path in self.folder.glob(f".step-*{ASIDE}"):
            place = self.folder / path.name.removeprefix(".").removesuffix(ASIDE)
            if not place.exists():
                path.rename(place)
        for path in self.folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)
        for pointer in POINTERS:
            for path in self.folder.glob(f".{pointer}.json.*"):
                path.unlink()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns the errors of reading malformed data into a RunError that names the file."""
    try:
        yield
    except (*MALFORMED, OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read: {one_line(error)}") from error
    except RecursionError as error:
        raise RunError(f"{path} cannot be read: it is nested too deeply") from error


def _write(folder: Path, name: str, tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    path = folder / f"{name}.safetensors"
    save_file(tensors, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return {path.name: _hash(path)}


def _read(path: Path) -> dict[str, torch.Tensor]:
    with reading(path):
        return load_file(path)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _optimizer_state(updater: Updater) -> dict[str, torch.Tensor]:
    """Moments and step counts by weight name; empty before the first update."""
    return {
        f"{CONTENT}|{name}|{key}": value.detach().cpu().contiguous()
        for name, weight in updater.policy.parameters.items()
        for key, value in updater.optimizer.state.get(weight, {}).items()
    }


def _restore_optimizer(updater: Updater, tensors: Mapping[str, torch.Tensor]) -> None:
    updater.optimizer.state.clear()
    for full, value in tensors.items():
        which, name, key = full.split("|")
        if which == CONTENT:  # older checkpoints also hold an optimiser of the choice
            weight = updater.policy.parameters[name]
            updater.optimizer.state[weight][key] = value.to(weight.device)
