"""What the probe finds, which method is chosen, and who is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.errors import SandboxError
from tacit.sandbox import process, rules
from tacit.sandbox.probe import WEAK, chosen, probe
from tacit.sandbox.rules import Method

SOURCE = Path(process.__file__).parents[2]


@pytest.mark.parametrize("method", list(Method))
async def test_a_method_that_works_leaves_nothing_open(method: Method) -> None:
    try:
        isolation = await probe(method)
    except SandboxError as error:
        pytest.skip(str(error))
    assert isolation.method is method
    if method is Method.NAMESPACES:
        assert isolation.open == ()
    assert set(isolation.open) <= set(WEAK.values())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as another user")
@pytest.mark.parametrize(
    ("line", "without", "says"),
    [
        ("(equal, 0, 5, socketpair)", "(equal, 0, 5, 0xFFFF)", "send datagrams"),
        ('"shmget": (29, 194)', '"shmget": (0xFFFF, 0xFFFF)', "leave shared memory behind"),
    ],
)
async def test_the_probe_says_what_is_open(
    line: str, without: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch, line, without)
    assert says in " ".join((await probe(Method.UID)).open)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as another user")
async def test_a_method_under_which_processes_start_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weaken(monkeypatch, "(any_bit, 1, 0, CLONE_THREAD)", "(any_bit, 1, 1, CLONE_THREAD)")
    with pytest.raises(SandboxError, match="too weak: it can start processes"):
        await probe(Method.UID)


def weaken(monkeypatch: pytest.MonkeyPatch, line: str, without: str) -> None:
    source = rules.inside_source("isolation")
    assert line in source
    monkeypatch.setattr(process, "inside_source", lambda _: source.replace(line, without))


async def test_the_stronger_method_is_chosen() -> None:
    isolation = await chosen()
    for method in list(Method)[: list(Method).index(isolation.method)]:
        with pytest.raises(SandboxError):
            await probe(method)


SITUATION = """
import asyncio, json, os, sys
from tacit.errors import SandboxError
from tacit.sandbox.inside import isolation
from tacit.sandbox.probe import chosen

if sys.argv[1] == "container":
    for capability in range(41):  # all but those that Docker leaves to root
        if not 0xA80425FB >> capability & 1:
            isolation.LIBC.prctl(24, capability, 0, 0, 0)
elif os.getuid() == 0:
    os.setgroups([]); os.setresgid(12345, 12345, 12345); os.setresuid(12345, 12345, 12345)
if sys.argv[1] != "as it is":  # what Docker's seccomp filter denies
    isolation.DENIED = {"unshare": isolation.DENIED["unshare"]}
    isolation.CLONE_THREAD, isolation.PR_SET_PDEATHSIG = 0x7FFFFFFF, 0xFFFF  # these may be used
    isolation.check(isolation.LIBC.prctl(isolation.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    isolation.filter_system_calls()
try:
    found = asyncio.run(chosen())
    print(json.dumps([found.method, found.open]))
except SandboxError as error:
    print(json.dumps(["refused", str(error)]))
"""


def choose_in(situation: str) -> tuple[str, str]:
    """Choose a sandbox in a process of an ordinary user, who needs a Python that he may run."""
    python = os.path.realpath(sys.executable)
    public = all(parent.stat().st_mode & 0o001 for parent in Path(python).parents)
    if os.geteuid() == 0 and not public:
        python = "/usr/bin/python3"
    version = subprocess.run([python, "-V"], capture_output=True, text=True).stdout
    if version.split()[-1].split(".")[:2] < ["3", "11"]:
        pytest.skip("no Python of at least 3.11 that an ordinary user may run")
    done = subprocess.run(
        [python, "-B", "-c", SITUATION, situation],
        env={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    method, rest = json.loads(done.stdout)
    return method, rest


def test_an_ordinary_user_gets_a_user_namespace_or_a_refusal() -> None:
    method, rest = choose_in("as it is")
    if method == "refused":
        assert "user namespaces" in rest
    else:
        assert (method, rest) == (Method.NAMESPACES, [])


def test_an_ordinary_user_without_namespaces_is_refused() -> None:
    method, message = choose_in("no namespaces")
    assert method == "refused"
    for part in ("no sandbox for running code", "unshare", "user namespaces", "root"):
        assert part in message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as another user")
def test_root_in_a_plain_container_gets_another_user_id() -> None:
    assert choose_in("container") == (Method.UID, [])
