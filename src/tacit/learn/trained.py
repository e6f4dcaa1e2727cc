"""A trained team out of its run folder: the best checkpoint's weights in their agents' seats."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tacit.config import Config
from tacit.errors import ConfigError
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.setup import Stage, open_stage


@asynccontextmanager
async def open_trained(config: Config, folder: Path) -> AsyncIterator[Stage]:
    """Open a run's team with the weights of its best checkpoint, or its last where none is best."""
    checkpoints = Checkpoints(folder / "checkpoints")
    step = checkpoints.step("best")
    step = checkpoints.step("last") if step is None else step
    if step is None:
        raise ConfigError(f"`{folder}` has no checkpoint yet")
    checkpoints.state(step)
    async with open_stage(config) as stage:
        for policy in stage.policies.values():
            checkpoints.load_policy(step, policy)
        for engine in stage.trained_engines:
            engine.version = step
        yield stage
