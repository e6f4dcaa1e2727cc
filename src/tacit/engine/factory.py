"""From a model's configuration to the engine that serves it."""

from tacit.config import ModelConfig
from tacit.engine.base import Engine
from tacit.errors import ConfigError


def open_engine(name: str, config: ModelConfig) -> Engine:
    """Load or connect. The ledger calls a local model by this name, an api model by its id."""
    if config.engine == "api":
        from tacit.engine.api import ApiEngine

        if config.model is None:
            raise ConfigError(f"models.{name}: an api model needs `model: …`")
        return ApiEngine(
            config.model,
            base_url=config.base_url,
            api_key_env=config.api_key_env,
            concurrency=config.concurrency,
            timeout=config.timeout,
            retries=config.retries,
        )
    from tacit.engine.load import load_model
    from tacit.engine.local import LocalEngine

    loaded = load_model(config.path, name=name, device=config.device, dtype=config.dtype)
    return LocalEngine(loaded, rows=config.rows, context=config.context)
