"""Trained weights and their gradients: LoRA adapters on a shared frozen base, or a full copy of it.

Frozen agents of the same model use the base itself, which no update touches.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tacit.config import Config, PolicyConfig, TeamConfig
from tacit.engine.chat import chat_of
from tacit.engine.forward import forward_of
from tacit.engine.load import LoadedModel
from tacit.engine.lora import adapter_parameters, add_adapter, base_parameters, switched_on
from tacit.errors import ConfigError, RunError
from tacit.types import Ids

Parameters = Mapping[str, nn.Parameter]
Built = tuple[LoadedModel, Parameters, Parameters]
"""`loaded`, `parameters` and `live` of a policy."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """One set of trained weights."""

    name: str
    base: LoadedModel
    loaded: LoadedModel
    """The model that engines and the trainer run: the base itself under LoRA, else a copy."""
    config: PolicyConfig
    parameters: Parameters = field(repr=False)
    """The weights that the optimiser updates. Always float32: half precision loses small steps."""
    live: Parameters = field(repr=False)
    """The weights that forward passes use: the same objects, or half-precision copies."""
    ends: Ids
    """Every id that ends a message."""

    def on(self) -> AbstractContextManager[None]:
        """Forward passes inside this context use these weights."""
        return _switch(self.loaded.module, self.name, self.config)

    def reference(self) -> tuple[Any, AbstractContextManager[None]]:
        """The frozen base: its module, and the context to run it in."""
        return self.base.module, _switch(self.base.module, None, self.config)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy updated weights to where forward passes read them."""
        pairs = [(self.live[name], own) for name, own in self.parameters.items()]
        apart = [(live, own) for live, own in pairs if live is not own]
        if apart:
            torch._foreach_copy_([live for live, _ in apart], [own for _, own in apart])

    def state(self) -> dict[str, Tensor]:
        return {
            name: weight.detach().cpu().contiguous() for name, weight in self.parameters.items()
        }

    def load(self, state: Mapping[str, Tensor], origin: str) -> None:
        """Load saved weights; refuse those of another base or shape before changing anything."""
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


def accumulate(policy: Policy, loss: Tensor) -> bool:
    """Add the gradient of one microbatch; False if it or the loss is not finite."""
    if not bool(torch.isfinite(loss)):
        return False
    weights, live = list(policy.parameters.values()), list(policy.live.values())
    with policy.on(), forward_of(policy.loaded.module).recomputing():
        gradients = torch.autograd.grad(loss, live, allow_unused=True)
    given = [gradient for gradient in gradients if gradient is not None]
    if not given or not bool(torch.isfinite(torch.stack(torch._foreach_norm(given))).all()):
        return False
    mine = [w for w, gradient in zip(weights, gradients, strict=True) if gradient is not None]
    pairs = list(zip(mine, _widened(mine, given), strict=True))
    if later := [(weight.grad, wide) for weight, wide in pairs if weight.grad is not None]:
        torch._foreach_add_([grad for grad, _ in later], [wide for _, wide in later])
    for weight, wide in pairs:
        weight.grad = wide if weight.grad is None else weight.grad
    return True


def take_step(
    policy: Policy, optimizer: torch.optim.Optimizer, rate: float, clip_norm: float
) -> float:
    """One optimiser step with the accumulated gradient; returns its norm before clipping."""
    weights = list(policy.parameters.values())
    if all(weight.grad is None for weight in weights):
        return 0.0
    norm = torch.nn.utils.clip_grad_norm_(weights, clip_norm)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    policy.publish()
    return float(norm)


def _widened(weights: Sequence[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    """The gradients in the precision of the weights."""
    if all(weight.dtype == one.dtype for weight, one in zip(weights, gradients, strict=True)):
        return gradients
    wide = [torch.empty_like(weight) for weight in weights]
    torch._foreach_copy_(wide, gradients)
    return wide


def policy_names(config: Config, team: TeamConfig) -> dict[str, str]:
    """Trained role → policy name: one policy per model, or one per role."""
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
    policies = {}
    for name, base in {name: models[role] for role, name in names.items()}.items():
        lora = config.kind == "lora"
        loaded, parameters, live = _lora(name, base, config, seed) if lora else _full(base)
        policies[name] = Policy(
            name=name,
            base=base,
            loaded=loaded,
            config=config,
            parameters=parameters,
            live=live,
            ends=tuple(sorted(chat_of(base).eos_ids)),
        )
    return policies


def _lora(name: str, base: LoadedModel, config: PolicyConfig, seed: int) -> Built:
    for _, weight in base_parameters(base.module):  # not the adapters of other roles
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
    return base, weights, weights


def _full(base: LoadedModel) -> Built:
    base.module.requires_grad_(False)
    module = copy.deepcopy(base.module).requires_grad_(True)
    live = dict(module.named_parameters())
    weights = {
        name: weight if weight.dtype == torch.float32 else nn.Parameter(weight.detach().float())
        for name, weight in live.items()
    }
    return LoadedModel(module, base.tokenizer, base.name), weights, live


def fingerprint(module: nn.Module) -> str:
    """A hash of the frozen weights, without adapters."""
    digest = hashlib.sha256()
    for name, weight in sorted(base_parameters(module)):
        digest.update(name.encode())
        flat = weight.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()


def check_frozen(before: Mapping[str, str], models: Mapping[str, LoadedModel]) -> None:
    for name, model in models.items():
        if fingerprint(model.module) != before[name]:
            raise RunError(f"the frozen weights of `{name}` changed during training")
