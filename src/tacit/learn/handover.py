"""Trained weights on their way to an engine that keeps its own copy of them."""

import copy
import json
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from tacit.config import Config, ModelConfig, TeamConfig
from tacit.engine.base import Engine
from tacit.engine.load import LoadedModel
from tacit.engine.local import Activate, LocalEngine
from tacit.engine.lora import adapter_parameters, add_adapter, peft_config, switched_on
from tacit.engine.vllm import VllmEngine, serve
from tacit.learn.policy import Policy


def serve_base(name: str, config: Config, names: Mapping[str, str], team: TeamConfig) -> VllmEngine:
    """Start vLLM with the weights as they come, and room for the adapters trained on them.

    `names` says by which policy a trained role speaks.
    """
    own = {policy for role, policy in names.items() if team.agents[role].model == name}
    adapters = len(own) if config.policy.kind == "lora" else 0
    model = config.model_named(name)
    return VllmEngine(serve(name, model, adapters=adapters, rank=config.policy.rank))


def serve_policy(policy: Policy, model: ModelConfig, base: Engine | None) -> VllmEngine:
    """An engine for what learns: beside its base, or on a server of its own if all of it learns."""
    if policy.config.kind == "lora":
        assert isinstance(base, VllmEngine), "adapters are served beside their base"
        return VllmEngine(base.served, policy=policy.name, export=partial(write_adapter, policy))
    own = serve(policy.base.name, model)
    return VllmEngine(own, policy=policy.name, export=partial(write_weights, policy), whole=True)


def mirror(policy: Policy, base: LoadedModel, model: ModelConfig) -> LocalEngine:
    """A local engine with weights of its own, which it makes equal to the learner's when told.

    So it can go on speaking while the learner computes. `base` is frozen, and not the learner's.
    """
    on: Activate = nullcontext
    if policy.config.kind == "lora":
        served, on = base, partial(switched_on, base.module, policy.name)
        settings = policy.config
        add_adapter(
            base.module,
            policy.name,
            rank=settings.rank,
            alpha=settings.alpha,
            targets=settings.targets,
            seed=0,
        )
        own = adapter_parameters(base.module, policy.name)
    else:
        served = copied(base)
        own = dict(served.module.named_parameters())

    @torch.no_grad()
    def adopt() -> None:
        for name, weight in own.items():
            weight.copy_(policy.live[name])

    adopt()
    return LocalEngine(
        served,
        policy=policy.name,
        rows=model.rows,
        context=model.context,
        activate=on,
        adopt=adopt,
    )


def copied(loaded: LoadedModel) -> LoadedModel:
    """The same weights again, in other memory."""
    return LoadedModel(copy.deepcopy(loaded.module), loaded.tokenizer, loaded.name)


def write_adapter(policy: Policy, folder: Path) -> None:
    """peft's two files."""
    state, settings = policy.state(), policy.config
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in state})
    config = peft_config(policy.base.name, settings.rank, settings.alpha, targets)
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(state, folder / "adapter_model.safetensors")


def write_weights(policy: Policy, folder: Path) -> None:
    """The weights alone, under the names they have in a model folder."""
    save_file(policy.state(), folder / "model.safetensors")
