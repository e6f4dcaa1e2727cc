"""Starts vLLM for training, and writes the trained weights for it to load."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from safetensors.torch import save_file

from tacit.config import Config, ModelConfig, TeamConfig
from tacit.engine.base import Engine
from tacit.engine.lora import peft_config
from tacit.learn.policy import Policy
from tacit.vllm.vllm_engine import VllmEngine, serve


def serve_base(name: str, config: Config, names: Mapping[str, str], team: TeamConfig) -> VllmEngine:
    """Start vLLM with the original weights and room for the adapters trained on them.

    `names` maps trained roles to their policies.
    """
    own = {policy for role, policy in names.items() if team.agents[role].model == name}
    adapters = len(own) if config.policy.kind == "lora" else 0
    model = config.model_named(name)
    return VllmEngine(serve(name, model, adapters=adapters, rank=config.policy.rank))


def serve_policy(policy: Policy, model: ModelConfig, base: Engine | None) -> VllmEngine:
    """The engine of a policy: an adapter on its base's server, or a server of its own."""
    if policy.config.kind == "lora":
        assert isinstance(base, VllmEngine), "adapters are served beside their base"
        return VllmEngine(base.served, policy=policy.name, export=partial(write_adapter, policy))
    own = serve(policy.base.name, model)
    return VllmEngine(own, policy=policy.name, export=partial(write_weights, policy), whole=True)


def write_adapter(policy: Policy, folder: Path) -> None:
    """Write peft's two files."""
    state, settings = policy.state(), policy.config
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in state})
    config = peft_config(policy.base.name, settings.rank, settings.alpha, targets)
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(state, folder / "adapter_model.safetensors")


def write_weights(policy: Policy, folder: Path) -> None:
    """Write the weights under the names they have in a model folder."""
    save_file(policy.state(), folder / "model.safetensors")
