"""What a cluster lacks is said before anything loads."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tacit.cluster.placement import joined, shortage
from tacit.config import ClusterConfig
from tacit.config.file import parse_config
from tacit.errors import ConfigError
from tacit.learn.assemble import open_training
from tests.helpers.training_runs import tiny_config, tree


@pytest.mark.parametrize(
    ("nodes", "missing"),
    [
        ([{"CPU": 8, "GPU": 4}], None),
        ([{"CPU": 4, "GPU": 1}, {"CPU": 4, "GPU": 3}], None),
        ([{"CPU": 8}], "no room for 4 of them"),
        ([{"CPU": 5, "GPU": 4}], "no room for 1 of them"),
        ([{"CPU": 3, "GPU": 4}, {"CPU": 9}], "no room for 1 of them"),
        ([], "than the 0 nodes have"),
    ],
)
def test_every_worker_needs_room_on_one_node(
    nodes: list[Mapping[str, float]], missing: str | None
) -> None:
    settings = ClusterConfig(address="auto", workers=4, gpus=1, graders=2)
    said = shortage(settings, nodes)
    assert (said is None) if missing is None else (missing in str(said))


def test_the_sentence_says_what_is_asked_and_what_is_there() -> None:
    said = shortage(ClusterConfig(workers=3, cpus=2, graders=0), [{"CPU": 4}])
    assert said is not None
    assert said.startswith("cluster: 3 workers of 2 CPUs and 0 GPUs, 0 grading workers of 1 CPU")
    assert "need more than the 1 nodes have (4 CPUs and 0 GPUs)" in said


async def test_without_ray_a_run_is_refused_before_models_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("tacit.learn.assemble.load_model", None)
    with pytest.raises(ConfigError, match=r"^cluster.address needs Ray: pip install 'tacit\[ray\]"):
        async with open_training(tiny_config(cluster={"address": "auto"})):
            raise AssertionError("it opened")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:port"])
def test_where_nothing_listens_that_is_said_at_once(address: str) -> None:
    pytest.importorskip("ray")
    with (
        pytest.raises(ConfigError, match=f"^cluster.address: no Ray cluster at `{address}`: start"),
        joined(ClusterConfig(address=address)),
    ):
        raise AssertionError("it joined")


@pytest.mark.slow
def test_one_machine_needs_no_ray() -> None:
    program = (
        "import sys, asyncio, tacit.cli.training; from tacit.learn.assemble import open_training\n"
        "from tests.helpers.training_runs import tiny_config\n"
        "async def go():\n    async with open_training(tiny_config()): pass\n"
        "asyncio.run(go())\n"
        "print([m for m in sys.modules if m == 'ray' or m.startswith('tacit.cluster')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"staleness": 1}, r"cluster\.staleness: .* set loss\.mismatch_cap, such as 2"),
        ({"address": "ray://host:10001"}, r"cluster\.address: write `auto`, `local` or host:port"),
        ({"address": ""}, r"cluster\.address: write `auto`"),
        ({"workers": 0}, r"cluster\.workers: input should be greater than 0"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(tree(cluster=settings))
