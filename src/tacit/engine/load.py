"""Opens a model's weights, tokenizer and chat template, with one clear sentence if one is missing.

Looks in folders and in the Hub's cache. Only `hub:org/name` uses the network. Python code that
comes with a model is never run.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import tacit.pocket
from tacit.engine.worker import Worker
from tacit.errors import ConfigError, one_line

POCKET_FOLDER = Path(tacit.pocket.__file__).parent / "model"
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """One set of weights in memory. Engines that share it share its worker thread."""

    module: Any
    """A transformers causal language model, or a peft model around one."""
    tokenizer: Any
    name: str
    worker: Worker = field(default_factory=Worker)


def on_device(module: Any) -> AbstractContextManager[Any]:
    """Kernels launched inside this block run on this module's GPU, which may not be the first."""
    return torch.cuda.device(module.device) if module.device.type == "cuda" else nullcontext()


def default_rows(device: str) -> int:
    """How many sequences decode together unless the config says."""
    return 32 if device == "cpu" else 256


def pick_device(asked: str) -> str:
    """Resolves `auto`: a GPU if there is one."""
    return asked if asked != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def load_model(
    path: str, *, name: str | None = None, dtype: str = "auto", device: str = "auto"
) -> LoadedModel:
    """Open `pocket`, a folder, a Hub id that was downloaded before, or `hub:` and a Hub id.

    Example: load_model("pocket"), load_model("models/Qwen2.5-0.5B-Instruct", device="cuda")
    The ledger uses the name; it defaults to the path.
    """
    where, download = _locate(path)
    tokenizer = _open_tokenizer(path, where, download)
    device = pick_device(device)
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"model `{path}`: its device is {device}, and torch finds no GPU here")
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    transformers.logging.disable_progress_bar()
    with reading(f"model `{path}` cannot be loaded"):
        module, found = AutoModelForCausalLM.from_pretrained(
            where,
            dtype=getattr(torch, dtype),
            local_files_only=not download,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        module.to(device)
    _check_weights(path, found)
    return LoadedModel(module.eval(), tokenizer, name or path.removeprefix("hub:"))


def load_tokenizer(path: str) -> Any:
    """A model's tokenizer without its weights, found as `load_model` finds them."""
    return _open_tokenizer(path, *_locate(path))


def model_folder(path: str) -> Path:
    """The folder of a model's files on this machine; `hub:` downloads them first."""
    where, download = _locate(path)
    if Path(where).is_dir():
        return Path(where)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(where, local_files_only=not download))
    except (OSError, ValueError) as error:
        hint = "" if download else f"; `hub:{path}` would download it"
        raise ConfigError(f"model `{path}` cannot be opened: {one_line(error)}{hint}") from error


def _locate(path: str) -> tuple[str, bool]:
    """The argument of `from_pretrained`, and whether it may download."""
    if path.startswith("hub:"):
        return path.removeprefix("hub:"), True
    folder = POCKET_FOLDER if path == "pocket" else Path(path).expanduser()
    if folder.is_dir():
        _check_folder(path, folder)
        return str(folder), False
    if path == "pocket":
        raise ConfigError("the embedded model `pocket` is missing: install tacit again")
    if _HUB_ID.fullmatch(path):
        return path, False
    raise ConfigError(f"model `{path}` is not a folder: give a model folder, or `hub:org/name`")


def _check_folder(path: str, folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model folder `{path}` has no config.json: is it a model folder?")
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ConfigError(
            f"model folder `{path}` has no tokenizer: copy the model's tokenizer*.json files there"
        )
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"model folder `{path}` has no weights in safetensors format")


def _check_weights(path: str, found: dict[str, Any]) -> None:
    """Raise if transformers would fill in random weights or drop some."""
    for keys, complaint in (
        (found["missing_keys"], "have no values for"),
        (found["unexpected_keys"], "hold values the model has no place for:"),
    ):
        if keys:
            first, *rest = sorted(keys)
            more = f" and {len(rest)} more" if rest else ""
            raise ConfigError(
                f"the weights of `{path}` {complaint} {first}{more}: "
                "its config.json and its weights belong to different models; download both again"
            )


def _open_tokenizer(path: str, where: str, download: bool) -> Any:
    try:
        with reading(f"the tokenizer of `{path}` cannot be read"):
            tokenizer = AutoTokenizer.from_pretrained(
                where, local_files_only=not download, trust_remote_code=False
            )
    except ConfigError as error:
        if download or Path(where).is_dir() or not isinstance(error.__cause__, OSError):
            raise
        raise ConfigError(
            f"model `{path}` is neither a folder nor downloaded: `hub:{path}` would download it"
        ) from error
    if not tokenizer.chat_template:
        raise ConfigError(f"model `{path}` has no chat template: use an instruction-tuned model")
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer of `{path}` names no end-of-sequence token")
    return tokenizer


@contextmanager
def reading(failed: str) -> Iterator[None]:
    """Turns whatever transformers raises over a model's files into one sentence."""
    try:
        yield
    except Exception as error:
        reason = one_line(error)
        if "trust_remote_code" in reason:
            reason = "it brings Python code of its own, which is not run: use another model"
        raise ConfigError(f"{failed}: {reason}") from error
