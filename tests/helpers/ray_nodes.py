"""A small Ray cluster of several nodes on this machine, and workers that fail on request."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tacit.cluster.engines import RemoteEngine, model_key
from tacit.cluster.placement import import_ray
from tacit.cluster.rollout_worker import Opened
from tacit.config import AgentConfig, TeamConfig
from tacit.engine.base import Account, Completion, Request
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import Refused
from tacit.rollout.play import Job
from tacit.team.roster import Roster, build_roster
from tacit.team.setting import Setting
from tacit.types import Grade, Receipt, Task
from tests.helpers.network import Link
from tests.helpers.scripted_teams import TASK
from tests.helpers.waiting import wait_for

STORE = 100 * 2**20


@contextmanager
def ray_nodes(count: int, cpus: int = 4, ip: str | None = None) -> Iterator[Any]:
    """A cluster of so many nodes, which this process has joined; `ip` is the first one's."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    logs = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a socket's path must be short
    Path("/tmp/ray").mkdir(exist_ok=True)  # where Ray notes an address, and makes no folder
    head: dict[str, Any] = {"num_cpus": cpus, "object_store_memory": STORE}
    head |= {"include_dashboard": False} | ({"node_ip_address": ip} if ip else {})
    cluster = Cluster(initialize_head=True, head_node_args={**head, "temp_dir": logs})
    try:
        for _ in range(count - 1):
            cluster.add_node(num_cpus=cpus, object_store_memory=STORE)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(logs, ignore_errors=True)


@contextmanager
def ray_node_inside(link: Link, address: str, cpus: int = 4) -> Iterator[None]:
    """Another node of that cluster, at the far end of a link; killed at the end."""
    import ray

    command = [str(Path(sys.executable).with_name("ray")), "start", "--block"]
    command += [f"--address={address}", f"--node-ip-address={link.there}", f"--num-cpus={cpus}"]
    before = len(_alive())
    process = subprocess.Popen(
        [*link.inside, *command, f"--object-store-memory={STORE}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(_alive()) > before or process.poll() is not None)
        assert process.poll() is None, f"`ray start` ended with {process.returncode}"
        yield
    finally:
        ray.shutdown()
        link.kill_all_inside()
        process.wait()


def _alive() -> list[Any]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def actors(cluster: Any, name: str) -> list[int]:
    """The processes of an actor class on this cluster's nodes."""
    raylets = {
        info.process.pid
        for node in cluster.list_all_nodes()
        for info in node.all_processes.get("raylet", [])
    }
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdecimal() and _is(folder, f"ray::{name}", raylets)
    ]


def _is(folder: Path, title: str, parents: set[int]) -> bool:
    try:
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        return parent in parents and (folder / "cmdline").read_text().startswith(title)
    except OSError:  # it has ended meanwhile
        return False


def jobs(count: int, what: str = "fine") -> list[Job]:
    """Sums; `what` goes wrong is in the question, for the engine to read."""
    return [
        Job(
            replace(
                TASK, id=f"{what}/{i}", question=f"{what}: What is {i} + 1?", answer=f"{i + 1}"
            ),
            Setting(sample=0),
        )
        for i in range(count)
    ]


def remote_team() -> Roster:
    team = TeamConfig(topology="solo", agents={"actor": AgentConfig()})
    return build_roster(team, {"actor": RemoteEngine(model_key("sim"), "sim")})


class FaultyEngine(ScriptedEngine):
    """Adds up; a fault happens to a question once, or always if it says so."""

    def __init__(self, folder: Path, account: Account, seconds: float) -> None:
        super().__init__(self._script, model="sim")
        self._folder, self._account, self._seconds = folder, account, seconds

    async def generate(self, request: Request) -> Completion:
        answer = await super().generate(request)
        self._account.on_receipt(
            Receipt(model="sim", served="sim", fingerprint="", usage=answer.usage, time="now")
        )
        return answer

    async def _script(self, request: Request) -> str:
        what, _, sum_ = request.messages[-1].content.partition("\n")[0].partition(": What is ")
        what, number = what.split()[-1], int(sum_.split()[0])
        await asyncio.sleep(self._seconds)
        if what.startswith("always") or self._first(f"{what}-{number}"):
            await _go_wrong(what.removeprefix("always-"))
        return rf"\boxed{{{number + 1}}}"

    def _first(self, name: str) -> bool:
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


async def _go_wrong(what: str) -> None:
    if what == "die":
        print("I was about to die", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "block":
        time.sleep(600)
    if what == "dawdle":
        await asyncio.sleep(600)
    if what == "refuse":
        raise Refused("sim: no such model")


async def stuck_once(task: Task, text: str) -> Grade:
    """A grader that blocks its process the first time; `answer` is the file it remembers by."""
    try:
        Path(task.answer).touch(exist_ok=False)
    except FileExistsError:
        return Grade(reward=1.0, right=True)
    time.sleep(600)
    raise AssertionError("nobody ended this process")


@asynccontextmanager
async def open_faulty(folder: Path, seconds: float, account: Account) -> AsyncIterator[Opened]:
    yield Opened(engines={model_key("sim"): FaultyEngine(folder, account, seconds)})


def faulty(folder: Path, seconds: float = 0.05) -> Any:
    """An opener for `Pool`."""
    return partial(open_faulty, folder, seconds)
