"""What learns: LoRA adapters on a shared frozen base, or a full copy of it; saved as safetensors.

A frozen agent of the same model uses the base itself, which no update touches.
"""

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tacit.config import Config, PolicyConfig, TeamConfig
from tacit.engine.chat import chat_of
from tacit.engine.load import LoadedModel
from tacit.engine.lora import adapter_parameters, add_adapter, base_parameters, switched_on
from tacit.errors import ConfigError, RunError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """One set of trained weights."""

    name: str
    base: LoadedModel
    loaded: LoadedModel
    """What engines and the trainer run: the base itself under LoRA, else a copy."""
    config: PolicyConfig
    parameters: Mapping[str, nn.Parameter] = field(repr=False)
    """What learns, always float32: a step of 1e-5 would be lost in half precision."""
    live: Mapping[str, nn.Parameter] = field(repr=False)
    """What forward passes use: the same objects, or half-precision copies of them."""
    ends: tuple[int, ...]
    """Every id that ends a message, and so silence after its marker."""

    def on(self) -> AbstractContextManager[None]:
        """Forward passes inside use these weights."""
        return _switch(self.loaded.module, self.name, self.config)

    def reference(self) -> tuple[Any, AbstractContextManager[None]]:
        """The frozen base: the module to run, and the context to run it in."""
        return self.base.module, _switch(self.base.module, None, self.config)

    @torch.no_grad()
    def publish(self) -> None:
        """Let forward passes use what was learned."""
        pairs = [(self.live[name], own) for name, own in self.parameters.items()]
        apart = [(live, own) for live, own in pairs if live is not own]
        if apart:
            torch._foreach_copy_([live for live, _ in apart], [own for _, own in apart])

    def state(self) -> dict[str, torch.Tensor]:
        return {
            name: weight.detach().cpu().contiguous() for name, weight in self.parameters.items()
        }

    def load(self, state: Mapping[str, torch.Tensor], origin: str) -> None:
        """Put saved weights in place; those of another base or shape are refused whole."""
        missing = self.parameters.keys() ^ state.keys()
        wrong = [
            name
            for name in self.parameters.keys() & state.keys()
            if self.parameters[name].shape != state[name].shape
        ]
        if missing or wrong:
            example = sorted([*missing, *wrong])[0]
            raise ConfigError(
                f"{origin} does not fit policy `{self.name}` on `{self.base.name}` "
                f"({len(missing) + len(wrong)} weights differ, e.g. {example}): "
                "it was trained on another base model or with another policy section"
            )
        with torch.no_grad():
            for name, weight in self.parameters.items():
                weight.copy_(state[name])
        self.publish()


def _switch(module: Any, name: str | None, config: PolicyConfig) -> AbstractContextManager[None]:
    return switched_on(module, name) if config.kind == "lora" else nullcontext()


def policy_names(config: Config, team: TeamConfig) -> dict[str, str]:
    """Trained role → the name of the weights it learns: one per model, or one per role."""
    trained = {role: agent for role, agent in team.agents.items() if agent.trained}
    if not trained:
        raise ConfigError("nothing to train: set `trained: true` on at least one agent of the team")
    for role, agent in trained.items():
        if config.model_named(agent.model).engine == "api":
            raise ConfigError(
                f"team.agents.{role}: a model behind an API cannot be trained; use a local one"
            )
    if config.policy.share == "role":
        return {role: role for role in trained}
    several = len({agent.model for agent in trained.values()}) > 1
    return {role: f"team-{a.model}" if several else "team" for role, a in trained.items()}


def build_policies(
    names: Mapping[str, str],
    models: Mapping[str, LoadedModel],
    config: PolicyConfig,
    seed: int,
) -> dict[str, Policy]:
    """Fresh trainable weights. `models` maps each trained role to its base model."""
    policies: dict[str, Policy] = {}
    for role, name in names.items():
        if name not in policies:
            build = _lora if config.kind == "lora" else _full
            policies[name] = build(name, models[role], config, seed)
    return policies


def _lora(name: str, base: LoadedModel, config: PolicyConfig, seed: int) -> Policy:
    for _, weight in base_parameters(base.module):  # not all: other roles' adapters go on learning
        weight.requires_grad_(False)
    layers = add_adapter(
        base.module,
        name,
        rank=config.rank,
        alpha=config.alpha,
        targets=config.targets,
        seed=int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=6).digest()),
    )
    if not layers:
        raise ConfigError(f"policy.targets: `{base.name}` has no linear layer of these names")
    weights = adapter_parameters(base.module, name)
    return Policy(
        name=name,
        base=base,
        loaded=base,
        config=config,
        parameters=weights,
        live=weights,
        ends=tuple(sorted(chat_of(base).eos_ids)),
    )


def _full(name: str, base: LoadedModel, config: PolicyConfig, seed: int) -> Policy:
    base.module.requires_grad_(False)
    module = copy.deepcopy(base.module).requires_grad_(True)
    live = dict(module.named_parameters())
    weights = {
        name: weight if weight.dtype == torch.float32 else nn.Parameter(weight.detach().float())
        for name, weight in live.items()
    }
    copied = LoadedModel(module, base.tokenizer, base.name)
    return Policy(
        name=name,
        base=base,
        loaded=copied,
        config=config,
        parameters=weights,
        live=live,
        ends=tuple(sorted(chat_of(base).eos_ids)),
    )


def fingerprint(module: nn.Module) -> str:
    """A hash of the frozen weights, adapters left out: equal before and after training."""
    digest = hashlib.sha256()
    for name, weight in _sorted(module):
        digest.update(name.encode())
        flat = weight.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()


def check_frozen(before: Mapping[str, str], models: Mapping[str, LoadedModel]) -> None:
    for name, model in models.items():
        if fingerprint(model.module) != before[name]:
            raise RunError(f"the frozen weights of `{name}` changed during training")


def _sorted(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    yield from sorted(base_parameters(module))
