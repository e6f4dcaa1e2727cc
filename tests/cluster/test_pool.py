"""The head's side without workers: what cannot be sent is said."""

from pathlib import Path

import pytest

from tacit.cluster.pool import Pool
from tacit.config import ClusterConfig
from tacit.engine.base import Account
from tacit.errors import RunError
from tests.helpers.ray_nodes import faulty


async def test_weights_that_fit_nowhere_end_the_run_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray = pytest.importorskip("ray")

    def full(value: bytes) -> None:
        raise ray.exceptions.ObjectStoreFullError("no room, and the disk is full")

    monkeypatch.setattr(ray, "put", full)
    pool = Pool(ClusterConfig(address="auto"), faulty(tmp_path), Account())
    said = r"the weights of `team` \(3 MiB\) do not fit .* --object-store-memory \(.*no room"
    with pytest.raises(RunError, match=said):
        await pool.publish("team", 1, lambda: bytes(3 * 2**20))
