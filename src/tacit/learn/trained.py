"""A trained team out of its run folder: the best checkpoint's weights in their agents' seats."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tacit.config import Config
from tacit.engine.api import Account
from tacit.engine.base import Engine
from tacit.errors import ConfigError
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.setup import Cast, open_cast


@asynccontextmanager
async def open_trained(
    config: Config,
    folder: Path,
    given: Mapping[str, Engine] | None = None,
    account: Account | None = None,
) -> AsyncIterator[Cast]:
    """Open a run's team with the weights of its best checkpoint, or its last where none is best.

    No task is read. `given` speaks for its roles instead of their own models.
    """
    if config.team is None:
        raise ConfigError(f"`{folder}` has no `team:`")
    checkpoints = Checkpoints(folder / "checkpoints")
    step = checkpoints.step("best")
    step = checkpoints.step("last") if step is None else step
    if step is None:
        raise ConfigError(f"`{folder}` has no checkpoint yet")
    checkpoints.state(step)
    async with open_cast(config, config.team, given, account) as cast:
        for policy in cast.policies.values():
            checkpoints.load_policy(step, policy)
        for engine in cast.trained_engines:
            async with engine.paused():
                await engine.refresh(step)
        yield cast
