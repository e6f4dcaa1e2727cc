"""Opens a cluster for a training run; the learner stays in this process."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import save

from tacit.cluster.engines import RemoteEngine, RemoteTrained, model_key
from tacit.cluster.placement import check_room, joined
from tacit.cluster.pool import Pool
from tacit.cluster.rollout_worker import installed, open_from_config
from tacit.cluster.shared_learners import SharedLearners
from tacit.config import Config, ModelConfig
from tacit.engine.base import Account
from tacit.learn.policy import Policy


class Cluster:
    """What `learn/assemble.py` calls `RemotePlayers`: workers play, the head learns."""

    def __init__(self, config: Config, pool: Pool, learners: SharedLearners | None = None) -> None:
        self._config, self._pool = config, pool
        self.play = pool.play
        self.gradients = learners
        self._told = 0

    def frozen(self, model: str) -> RemoteEngine:
        """By the name that the ledger knows: an api model's is its id."""
        return RemoteEngine(model_key(model), self._config.model_named(model).model or model)

    def trained(self, policy: Policy) -> RemoteTrained:
        async def publish(name: str, version: int) -> None:
            await self._pool.publish(name, version, lambda: save(policy.state()))

        return RemoteTrained(policy.name, policy.base.name, publish)

    def times(self) -> dict[str, float]:
        new = self._pool.recovered[self._told :]
        self._told += len(new)
        return {
            "cluster/workers": self._pool.ready,
            "cluster/recoveries": len(new),
            "cluster/lost_s": sum(one.seconds for one in new),
        }

    def to_json(self) -> dict[str, Any]:
        recovered = self._pool.recovered
        return {
            "workers": self._config.cluster.workers,
            "learners_lost": self.gradients.lost if self.gradients else 0,
            "recoveries": len(recovered),
            "lost_s": sum(one.seconds for one in recovered),
            "episodes": dict(self._pool.counts),
            "what": [one.what for one in recovered],
        }


@asynccontextmanager
async def open_cluster(config: Config, account: Account | None) -> AsyncIterator[Cluster]:
    """Connect, check that there is room, and start the workers, which load while the head does."""
    with joined(config.cluster):
        check_room(config.cluster)
        opener = partial(open_from_config, worker_config(config), installed())
        charged = any(config.model_named(name).engine == "api" for name in used(config))
        account = account or Account()
        account = replace(account, cache=account.cache and account.cache.resolve())
        pool = Pool(config.cluster, opener, account, charged=charged)
        with _learners(config) as learners:
            async with pool:
                yield Cluster(config, pool, learners)


@contextmanager
def _learners(config: Config) -> Iterator[SharedLearners | None]:
    settings = config.cluster
    if not settings.learners:
        yield None
        return
    learners = SharedLearners(
        worker_config(config),
        settings.learners,
        cpus=settings.cpus,
        gpus=settings.learner_gpus,
        deadline=settings.deadline,
    )
    try:
        yield learners
    finally:
        learners.close()


def used(config: Config) -> list[str]:
    return config.models_used(config.all_teams.values())


def worker_config(config: Config) -> Config:
    """The config as each worker opens it: a share of every API limit, and no cluster of its own."""
    models = {name: _of_a_worker(config.model_named(name), config) for name in used(config)}
    here = config.cluster.model_copy(update={"address": None})
    return config.model_copy(update={"models": {**config.models, **models}, "cluster": here})


def _of_a_worker(model: ModelConfig, config: Config) -> ModelConfig:
    workers, change = config.cluster.workers, dict[str, Any]()
    if model.engine == "api":
        change["concurrency"] = max(1, model.concurrency // workers)
        for limit in ("requests_per_minute", "tokens_per_minute"):
            whole = getattr(model, limit)
            change[limit] = None if whole is None else whole / workers
        if model.cache_folder:
            change["cache_folder"] = str(Path(model.cache_folder).resolve())
        return model.model_copy(update=change)
    if Path(model.path).expanduser().is_dir() and model.path != "pocket":
        change["path"] = str(Path(model.path).expanduser().resolve())
    if model.engine == "vllm":  # the worker's own copy is only written out for vLLM to read
        change["device"] = "cpu"
    elif model.device.startswith("cuda:"):  # Ray shows a worker its own GPUs alone
        change["device"] = "cuda"
    return model.model_copy(update=change)
