"""Every way out of the sandbox is tried for real, under both methods if this machine has them."""

import ast
import asyncio
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tacit.errors import SandboxError
from tacit.sandbox import process
from tacit.sandbox.probe import probe
from tacit.sandbox.process import Outcome, Result
from tacit.sandbox.rules import Limits, Method

SOURCE = Path(process.__file__).parents[2]
Run = Callable[..., Awaitable[Result]]


@pytest.fixture(scope="module", params=list(Method))
def method(request: pytest.FixtureRequest) -> Method:
    try:
        asyncio.run(probe(request.param))
    except SandboxError as error:
        pytest.skip(str(error))
    return Method(request.param)


@pytest.fixture
def run(method: Method) -> Run:
    limits = Limits(cpu_seconds=1, wall_seconds=30)
    return lambda program, payload="", **options: process.run(
        method, program, payload, **{"limits": limits} | options
    )


CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall({}) < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


async def still_works(run: Run) -> bool:
    return (await run("print(6 * 7)")).stdout == "42\n"


# --- ordinary programs -----------------------------------------------------------------------


async def test_a_program_runs_with_its_payload_and_modules(run: Run) -> None:
    program = "import sys\nfrom helper import twice\nprint(twice(sys.argv[1]))\nsys.exit(3)"
    modules = {"helper": "def twice(text): return text * 2"}
    result = await run(program, "ü", modules=modules)
    assert (result.outcome, result.code, result.stdout) == (Outcome.ERROR, 3, "üü\n")


async def test_the_standard_library_and_threads_work(run: Run) -> None:
    program = (
        "import asyncio, decimal, json.tool, encodings.idna, re, tempfile, threading\n"
        "threading.Thread(target=asyncio.run, args=(asyncio.sleep(0.01),)).start()\n"
        "open('mine', 'w').write('x'); tempfile.TemporaryFile().write(b'x')\n"
        "open('/dev/null', 'w').write('x')\n"
        "print(decimal.Decimal(1) / 4)"
    )
    result = await run(program)
    assert (result.outcome, result.stdout) == (Outcome.OK, "0.25\n"), result.stderr


async def test_an_exception_is_an_error_with_its_traceback(run: Run) -> None:
    result = await run("1 / 0")
    assert result.outcome is Outcome.ERROR
    assert "ZeroDivisionError" in result.stderr


async def test_it_sees_an_empty_environment_and_an_empty_folder(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_SECRET", "hunter2")
    result = await run("import json, os; print(json.dumps([dict(os.environ), os.listdir('.')]))")
    environment, files = json.loads(result.stdout)
    assert "hunter2" not in str(environment)
    assert set(environment) <= {"HOME", "LANG", "PATH", "PWD", "TMPDIR"} | {
        "OPENBLAS_NUM_THREADS",
        "PYTHONHASHSEED",
    }
    assert files == []


async def test_standard_input_is_empty(run: Run) -> None:
    assert (await run("import sys; print(repr(sys.stdin.read()))")).stdout == "''\n"


async def test_hashes_are_the_same_every_time(run: Run) -> None:
    program = "print(hash('a'), {'a', 'b', 'c', 'd'})"
    assert (await run(program)).stdout == (await run(program)).stdout


# --- using too much --------------------------------------------------------------------------


async def test_an_endless_loop_is_a_timeout(run: Run) -> None:
    result = await run("while True: pass")
    assert result.outcome is Outcome.TIMEOUT
    assert await still_works(run)


async def test_an_endless_wait_is_a_timeout(run: Run) -> None:
    limits = Limits(wall_seconds=1.5)
    program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(99)"
    assert (await run(program, limits=limits)).outcome is Outcome.TIMEOUT


STARTS = {
    "fork": "import os; os.fork()",
    "spawn": "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "subprocess": "import subprocess; subprocess.run(['/bin/true'])",
    "multiprocessing": "import multiprocessing; multiprocessing.Process(target=print).start()",
    "clone3": CALL.format("435, ctypes.create_string_buffer(88), 88"),
}
if platform.machine() == "x86_64":
    STARTS |= {"clone": CALL.format("56, 17, 0, 0, 0, 0"), "vfork": CALL.format("58")}


@pytest.mark.parametrize("way", STARTS)
async def test_no_process_can_be_started(run: Run, way: str) -> None:
    result = await run(STARTS[way])
    assert result.outcome is Outcome.ERROR
    assert "not permitted" in result.stderr or "not implemented" in result.stderr


async def test_the_number_of_threads_is_limited(run: Run) -> None:
    program = (
        "import threading, time\n"
        "for _ in range(30): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    result = await run(program)
    assert result.outcome is Outcome.ERROR
    assert "can't start new thread" in result.stderr
    assert await still_works(run)


async def test_a_20_gb_allocation_is_out_of_memory(run: Run) -> None:
    assert (await run("x = bytearray(20 * 2**30)")).outcome is Outcome.MEMORY


async def test_memory_in_small_pieces_is_limited_too(run: Run) -> None:
    program = "kept = []\nwhile True: kept.append(bytearray(2**20))"
    assert (await run(program, limits=Limits(memory_mb=256))).outcome is Outcome.MEMORY


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_10_gb_of_output_are_cut_off(run: Run, stream: str) -> None:
    limits = Limits(output_kb=64, wall_seconds=60)
    program = f"import sys\nfor _ in range(10 * 2**10): sys.{stream}.write('x' * 2**20)"
    result = await run(program, limits=limits)
    assert result.outcome is Outcome.OUTPUT
    assert len(getattr(result, stream)) == 64 * 1024


async def test_a_full_disk_is_reported(run: Run) -> None:
    program = "f = open('big', 'wb')\nwhile True: f.write(bytes(2**20))"
    result = await run(program, limits=Limits(disk_mb=4))
    assert result.outcome is Outcome.ERROR
    assert "File too large" in result.stderr or "No space left" in result.stderr


# --- reaching out ----------------------------------------------------------------------------


async def test_writing_outside_its_folder_fails(run: Run, tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents[:-2]]:
        folder.chmod(folder.stat().st_mode | 0o777)
    target = tmp_path / "mine"
    target.write_text("before")
    target.chmod(0o666)
    program = (
        "import os, sys\nfailed = []\n"
        "for attempt in (lambda: open(sys.argv[1], 'w'), lambda: os.remove(sys.argv[1]),\n"
        "                lambda: open('/usr/evil', 'w'), lambda: open('/evil', 'w'),\n"
        "                lambda: open(sys.argv[1] + '2', 'w'),\n"
        "                lambda: open('/dev/shm/evil', 'w')):\n"
        "  try: attempt()\n"
        "  except OSError as error: failed.append(error.errno)\n"
        "print(len(failed))"
    )
    assert (await run(program, str(target))).stdout == "6\n"
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


async def test_the_network_is_out_of_reach(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2)"
        result = await run(program, str(server.getsockname()[1]))
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    assert result.outcome is Outcome.ERROR


async def test_no_datagram_leaves_through_a_socket_pair(run: Run) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outside:
        outside.bind("")  # the kernel finds a name that needs no file
        outside.setblocking(False)
        program = (
            "import socket, sys\n"
            "for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):\n"
            "  try: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b'out', sys.argv[1])\n"
            "  except OSError: print('no')"
        )
        result = await run(program, outside.getsockname().decode())
        with pytest.raises(BlockingIOError):
            outside.recv(10)
    assert result.stdout == "no\n" * 3


async def test_nothing_is_left_in_the_memory_that_processes_share(run: Run) -> None:
    program = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600))\n"
        "os.memfd_create('x')"
    )
    result = await run(program)
    assert (result.outcome, result.stdout) == (Outcome.ERROR, "-1 -1 -1\n")
    assert "PermissionError" in result.stderr


async def test_the_parents_environment_cannot_be_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_SECRET", "hunter2")
    program = (
        "import glob, os, sys\n"
        "for path in [f'/proc/{sys.argv[1]}/environ', *glob.glob('/proc/[0-9]*/environ')]:\n"
        "  try: print(open(path).read())\n"
        "  except OSError: print('no')"
    )
    result = await run(program, str(os.getpid()))
    assert "no" in result.stdout
    assert "hunter2" not in result.stdout


async def test_the_home_folder_and_this_checkout_cannot_be_read(run: Run) -> None:
    """Of a home folder that holds the interpreter, only the way there is seen."""
    program = (
        "import os, sys\n"
        "for path in sys.argv[1].split(':'):\n"
        "  try: print(os.listdir(path) if os.path.isdir(path) else open(path).read())\n"
        "  except OSError: print('no')"
    )
    home = Path.home()
    result = await run(program, f"{__file__}:{SOURCE}:{home}")
    file, source, listed = result.stdout.splitlines()
    assert (file, source) == ("no", "no")
    seen = set() if listed == "no" else set(ast.literal_eval(listed))
    assert seen <= {*Path(sys.base_prefix).parts, *Path(sys.prefix).parts}


async def test_folders_beside_the_systems_own_cannot_be_read(run: Run) -> None:
    """Containers often keep an application in /usr/src: its tasks hold answers and views."""
    result = await run("import os\nprint(os.listdir('/usr/src'))")
    assert result.outcome is Outcome.ERROR and "Error: " in result.stderr
    assert await still_works(run)


async def test_the_parent_cannot_be_killed(run: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        program = (
            "import os, signal, sys\n"
            "for pid in [*map(int, sys.argv[1].split()), os.getppid(), 1]:\n"
            "  try: os.kill(pid, signal.SIGKILL)\n"
            "  except OSError: pass\n"
            "os.kill(-1, signal.SIGKILL)"
        )
        await run(program, f"{os.getpid()} {bystander.pid}")
        assert bystander.poll() is None
    assert await still_works(run)


async def test_other_processes_cannot_be_looked_into(run: Run) -> None:
    program = (
        "import ctypes, os, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print([libc.ptrace(16, int(pid), 0, 0) for pid in (sys.argv[1], os.getppid())])\n"
        "print(libc.unshare(0x10000000), libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))"
    )
    assert (await run(program, str(os.getpid()))).stdout == "[-1, -1]\n-1 -1\n"


async def test_it_runs_as_somebody_else(run: Run) -> None:
    ids = [(await run("import os; print(os.getuid(), os.getgroups())")).stdout for _ in "12"]
    if os.geteuid() == 0:
        assert ids[0] != ids[1]
        assert all(int(line.split()[0]) >= 40_000 and line.endswith(" []\n") for line in ids)


async def test_nothing_is_left_in_the_temporary_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = (
        "import os\nopen('file', 'w')\n"
        "for _ in range(300): os.mkdir('deep'); os.chdir('deep')\n"
        "os.chmod('.', 0)"
    )
    assert (await run(program)).outcome is Outcome.OK
    assert list(tmp_path.iterdir()) == []


async def test_a_cancelled_run_kills_its_process(run: Run) -> None:
    read_end, write_end = os.pipe()
    program = "import os, sys, time; os.write(int(sys.argv[1]), b'alive'); time.sleep(600)"
    task = asyncio.create_task(run(program, str(write_end), fds=(write_end,)))
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        assert await asyncio.to_thread(pipe.read, 5) == b"alive"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.wait_for(asyncio.to_thread(pipe.read), 10) == b""


PARENT = """
import asyncio, sys
from tacit.sandbox.process import run
from tacit.sandbox.rules import Method
program = '''
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(1, 0)  # ask not to die with the parent
os.write(int(sys.argv[1]), b"alive")
time.sleep(600)
'''
fd = int(sys.argv[2])
asyncio.run(run(Method(sys.argv[1]), program, str(fd), fds=(fd,)))
"""


def test_a_killed_parent_takes_its_program_along(method: Method, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    words = [sys.executable, "-c", PARENT, method, str(write_end)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with (
        subprocess.Popen(words, pass_fds=[write_end], env=environment) as parent,
        os.fdopen(read_end, "rb") as pipe,
    ):
        os.close(write_end)
        assert pipe.read(5) == b"alive"
        parent.kill()
        assert pipe.read() == b""
