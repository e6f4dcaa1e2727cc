"""Joins a Ray cluster, and checks that it has room for every worker before any model loads."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tacit.config import ClusterConfig
from tacit.errors import ConfigError, one_line

STORE_BYTES = 200 * 2**20
"""The object store of a `local` cluster, for weights and transcripts on their way."""
KNOCK_S = 10.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # Ray's notices go to standard output, which is `--json`'s
}

Room = dict[str, float]
"""CPUs and GPUs."""


def import_ray() -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError("cluster.address needs Ray: pip install 'tacit[ray]'") from error
    return ray


@contextmanager
def joined(settings: ClusterConfig) -> Iterator[None]:
    """Connects to the cluster, or starts a `local` one, unless this process has done so before."""
    ray = import_ray()
    if ray.is_initialized():
        yield
        return
    own: dict[str, Any] = {}
    if settings.address == "local":
        need = sum(one["CPU"] for one in wanted(settings))
        own = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
        own["num_cpus"] = max(os.cpu_count() or 1, int(need + 0.999))
    try:
        _knock(settings.address or "")
        ray.init(address=settings.address, log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # Ray raises what its many parts raise
        reason = one_line(error)[:300]
        raise ConfigError(
            f"cluster.address: no Ray cluster at `{settings.address}`: start one with "
            "`ray start --head` (one with a token wants RAY_AUTH_MODE=token here too), or write "
            f"`local`: {reason}"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise at once where nothing listens; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_S).close()


def wanted(settings: ClusterConfig) -> list[Room]:
    """What each worker, each grading worker and each learner takes."""
    worker: Room = {"CPU": settings.cpus, "GPU": settings.gpus}
    grader: Room = {"CPU": 1.0, "GPU": 0.0}
    learner: Room = {"CPU": settings.cpus, "GPU": settings.learner_gpus}
    learners = [learner] * settings.learners
    return [worker] * settings.workers + [grader] * settings.graders + learners


def check_room(settings: ClusterConfig) -> None:
    """Refuse a cluster whose nodes, all free, have no room for every worker."""
    nodes = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
    if sentence := shortage(settings, nodes):
        raise ConfigError(sentence)


def shortage(settings: ClusterConfig, nodes: Sequence[Mapping[str, float]]) -> str | None:
    """What nodes with these resources lack, or None. A worker must fit on one node."""
    free = [{kind: node.get(kind, 0.0) for kind in ("CPU", "GPU")} for node in nodes]
    largest_first = sorted(wanted(settings), key=lambda one: (-one["GPU"], -one["CPU"]))
    homeless = [one for one in largest_first if not _placed(one, free)]
    if not homeless:
        return None
    has = {kind: sum(node.get(kind, 0.0) for node in nodes) for kind in ("CPU", "GPU")}
    return (
        f"cluster: {settings.workers} workers of {_words(wanted(settings)[0])}, {settings.graders} "
        f"grading workers of 1 CPU and {settings.learners} learners need more than the "
        f"{len(nodes)} nodes have ({_words(has)}): no room for {len(homeless)} of them; start more "
        "nodes, or lower cluster.workers, cpus, gpus, graders or learners"
    )


def _placed(one: Room, free: list[Room]) -> bool:
    """Take room on the first node that has enough."""
    for node in free:
        if all(node[kind] >= one[kind] for kind in one):
            for kind in one:
                node[kind] -= one[kind]
            return True
    return False


def _words(room: Mapping[str, float]) -> str:
    """1 CPU and 0.5 GPUs."""
    return " and ".join(f"{n:g} {kind}{'' if n == 1 else 's'}" for kind, n in room.items())
