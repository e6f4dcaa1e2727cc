"""Opens the engine that a model's configuration asks for."""

from tacit.config import ModelConfig
from tacit.engine.base import Account, Engine
from tacit.registry import lookup

ENGINES = {
    "local": "tacit.engine.local:open_local",
    "vllm": "tacit.vllm.vllm_engine:open_vllm",
    "api": "tacit.api.api_engine:open_api",
}
"""The function that opens each kind of engine, imported at first use."""


def open_engine(name: str, config: ModelConfig, account: Account | None = None) -> Engine:
    """Load or connect. The ledger knows an api model by its id, the others by this name."""
    engine: Engine = lookup("engine", ENGINES[config.engine], {})(name, config, account)
    return engine
