"""`tacit export`: the trained weights of a run as folders for other programs, each with a card."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from tacit.config import Config
from tacit.errors import ConfigError, RunError
from tacit.export.card import Facts, model_card
from tacit.export.formats import PolicyWeights, load_merged, write_adapter
from tacit.export.gguf import check_gguf_tools, write_gguf
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.policy import policy_names
from tacit.registry import check_name
from tacit.run.folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is wanted of a run; by default the adapter, or the model if there is no adapter."""

    checkpoint: str = "best"
    """best, last, or a step."""
    role: str | None = None
    """Only the weights that this role learnt."""
    merged: bool = False
    gguf: bool = False
    dtype: str = "auto"

    def forms(self, kind: str) -> tuple[str, ...]:
        asked = (("merged",) if self.merged else ()) + (("gguf",) if self.gguf else ())
        return asked or (("adapter",) if kind == "lora" else ("merged",))


def export_run(folder: Path, order: Order, out: Path | None = None) -> list[Path]:
    """Write the weights and return their folder, or one for each policy inside it.

    The folder appears only once it is complete.
    """
    run, config = RunFolder.existing(folder)
    if config.team is None:
        raise ConfigError(f"`{folder}` has no team whose weights could be exported")
    if order.gguf:
        check_gguf_tools()
    checkpoints = Checkpoints(folder / "checkpoints")
    step = _step(checkpoints, order.checkpoint)
    policies = _policies(config, order.role)
    forms = order.forms(config.policy.kind)
    target = out or folder / f"export-{step:06d}-{'-'.join(forms)}"
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"`{target}` exists and is not empty: name another with --out")
    duals = checkpoints.state(step).get("duals", {})
    lambdas = {kind: dual["value"] for kind, dual in duals.items()}
    inner = [Path() if len(policies) == 1 else Path(name) for name in policies]
    with _whole(target) as making:
        for (name, roles), place in zip(policies.items(), inner, strict=True):
            weights = PolicyWeights(config, roles, name, checkpoints, step)
            (making / place).mkdir(exist_ok=True)
            _write(weights, forms, order.dtype, making / place)
            card = model_card(Facts(run, weights, forms, lambdas))
            (making / place / "README.md").write_text(card, encoding="utf-8")
    return [target / place for place in inner]


def _write(weights: PolicyWeights, forms: tuple[str, ...], dtype: str, folder: Path) -> None:
    if "adapter" in forms:
        write_adapter(weights, folder)
        return
    loaded = load_merged(weights, dtype)
    if "merged" in forms:  # what `from_pretrained` opens
        loaded.module.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
    if "gguf" in forms:
        path = folder / f"{weights.name}.gguf"
        write_gguf(loaded.module, loaded.tokenizer, path, weights.config.name)


def _step(checkpoints: Checkpoints, which: str) -> int:
    last = checkpoints.step("last")
    if last is None:
        raise ConfigError(f"`{checkpoints.folder.parent}` has no checkpoint: train it first")
    if which in ("best", "last"):
        step = checkpoints.step(which)
        return last if step is None else step
    names = (path.name for path in checkpoints.folder.glob("step-*"))
    kept = sorted(int(name.removeprefix("step-")) for name in names)
    if not which.isdecimal() or int(which) not in kept:
        known = ", ".join(map(str, kept))
        raise ConfigError(f"--checkpoint {which}: name best, last or a step that is kept: {known}")
    return int(which)


def _policies(config: Config, role: str | None) -> dict[str, list[str]]:
    """Policy → the roles that play it."""
    assert config.team is not None
    names = policy_names(config, config.team)
    if role is not None:
        check_name("trained role", role, names)
    wanted = {role: names[role]} if role is not None else names
    return {
        name: [one for one, own in names.items() if own == name]
        for name in dict.fromkeys(wanted.values())
    }


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A folder to write in that takes the target's place at the end, or leaves nothing."""
    making = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        making.mkdir(parents=True)
        yield making
        if target.exists():
            target.rmdir()
        making.rename(target)
    except (OSError, SafetensorError) as error:  # the latter is how a full disk is told
        raise RunError(f"could not write `{target}`: {error}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
