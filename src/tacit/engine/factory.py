"""From a model's configuration to the engine that serves it."""

from tacit.config import ModelConfig
from tacit.engine.api import Account, ApiEngine
from tacit.engine.base import Engine


def open_engine(name: str, config: ModelConfig, account: Account | None = None) -> Engine:
    """Load or connect. The ledger calls an api model by its id, the others by this name."""
    if config.engine == "api":
        return ApiEngine(config, account)
    if config.engine == "vllm":
        from tacit.engine.vllm import VllmEngine, serve

        return VllmEngine(serve(name, config))
    from tacit.engine.load import load_model
    from tacit.engine.local import LocalEngine

    loaded = load_model(config.path, name=name, device=config.device, dtype=config.dtype)
    return LocalEngine(loaded, rows=config.rows, context=config.context)
