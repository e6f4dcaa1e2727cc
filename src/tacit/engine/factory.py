"""From a model's configuration to the engine that serves it."""

import logging
from typing import TYPE_CHECKING

from tacit.api.engine import Account, ApiEngine
from tacit.config import ModelConfig
from tacit.engine.base import Engine
from tacit.errors import Unfit

if TYPE_CHECKING:
    from tacit.engine.chat import Chat

log = logging.getLogger(__name__)


def open_engine(name: str, config: ModelConfig, account: Account | None = None) -> Engine:
    """Load or connect. The ledger calls an api model by its id, the others by this name."""
    if config.engine == "api":
        return ApiEngine(config, account)
    if config.engine == "vllm":
        from tacit.vllm.engine import VllmEngine, serve

        served = serve(name, config)
        _point_out_faults(served.chat)
        return VllmEngine(served)
    from tacit.engine.chat import chat_of
    from tacit.engine.load import load_model
    from tacit.engine.local import LocalEngine

    loaded = load_model(config.path, name=name, device=config.device, dtype=config.dtype)
    _point_out_faults(chat_of(loaded))
    return LocalEngine(loaded, rows=config.rows, context=config.context)


def _point_out_faults(chat: "Chat") -> None:
    """Say what training would refuse."""
    from tacit.engine.fitness import check_chat

    try:
        check_chat(chat)
    except Unfit as error:
        log.warning("%s", error)
