"""Trained weights in the files other libraries read: peft adapters, plain Hugging Face folders."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from tacit.config import Config, ModelConfig, TeamConfig
from tacit.engine.load import POCKET_FOLDER, LoadedModel, load_model, load_tokenizer
from tacit.engine.lora import LoraLinear, peft_config
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.policy import build_policies


@dataclass(frozen=True, slots=True)
class PolicyWeights:
    """One set of trained weights in a run's checkpoint."""

    config: Config
    roles: list[str]
    """The roles that play with them."""
    name: str
    checkpoints: Checkpoints
    step: int

    @property
    def team(self) -> TeamConfig:
        assert self.config.team is not None
        return self.config.team

    @property
    def base(self) -> str:
        return self.team.agents[self.roles[0]].model

    @property
    def model(self) -> ModelConfig:
        return self.config.model_named(self.base)

    @property
    def file(self) -> Path:
        return self.checkpoints.folder / f"step-{self.step:06d}" / f"policy-{self.name}.safetensors"


def write_adapter(weights: PolicyWeights, folder: Path) -> None:
    """peft's two files and the tokenizer. The base itself is not opened."""
    with safe_open(weights.file, framework="pt") as file:
        names = list(file.keys())
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name in names}
    policy, path = weights.config.policy, weights.model.path
    local = POCKET_FOLDER if path == "pocket" else Path(path).expanduser()
    base = str(local.resolve()) if local.is_dir() else path.removeprefix("hub:")  # for peft to find
    settings = peft_config(base, policy.rank, policy.alpha, sorted(adapted))
    text = json.dumps(settings, indent=1)
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    shutil.copyfile(weights.file, folder / "adapter_model.safetensors")
    load_tokenizer(weights.model.path).save_pretrained(folder)


def load_merged(weights: PolicyWeights, dtype: str) -> LoadedModel:
    """The base with a checkpoint's weights in it, as a plain model without adapters.

    A `dtype` of `auto` is what the run computes in on this machine.
    """
    model, settings, role = weights.model, weights.config.policy, weights.roles[0]
    precision = model.dtype if dtype == "auto" else dtype
    if precision == "auto":
        precision = "bfloat16" if torch.cuda.is_available() else "float32"
    base = load_model(model.path, name=weights.base, dtype=precision, device="cpu")
    names = {role: weights.name}
    policy = build_policies(names, {role: base}, settings, seed=0)[weights.name]
    weights.checkpoints.load_policy(weights.step, policy)
    merge(policy.loaded.module, weights.name)
    return policy.loaded


@torch.no_grad()
def merge(module: torch.nn.Module, name: str) -> None:
    """Give every adapted layer the weight W + (α/r)·B·A, in float32 before it is rounded."""
    for path, layer in list(module.named_modules()):
        if not isinstance(layer, LoraLinear):
            continue
        weight = layer.base.weight
        if name in layer.lora_A:
            added = layer.lora_B[name].float() @ layer.lora_A[name].float()
            weight.copy_(weight.float() + layer.scale(name) * added)
        parent, _, own = path.rpartition(".")
        setattr(module.get_submodule(parent), own, layer.base)
