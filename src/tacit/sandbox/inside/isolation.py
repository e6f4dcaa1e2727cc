"""The first code in every sandbox: locks its own process in, then runs the program it is given.

Started as `python -c <this file> <plan as JSON>`, with the job (program, modules, payload) on its
standard input. What it can lock depends on the plan's method: under `bubblewrap` the namespaces
stand already; under `namespaces` it makes them itself, with a file system of its own; under `uid`
there are none, and Landlock limits the files where the kernel has it. Then, always: another user
id where the parent is root, rlimits (after the user id: they hardly bind root), no new privileges,
and a system-call filter (no sockets but connected pairs, no shared memory that outlives a process,
no looking into other processes, no new namespaces).

Not covered: hardware side channels, and bugs in the kernel.
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

Plan = dict[str, Any]

LIBC = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MOUNT_RDONLY, MOUNT_NOSUID, MOUNT_NODEV, AT_RECURSIVE = 1, 2, 4, 0x8000
SYS_MOUNT_SETATTR, SYS_LANDLOCK = 442, (444, 445, 446)  # the same on every architecture
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def main() -> None:
    plan: Plan = json.loads(sys.argv[1])
    job = json.load(sys.stdin)
    os.umask(0o022)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if plan["method"] == "namespaces":
        enter_namespaces(plan)
    elif plan["method"] == "uid":
        stay_behind_as_reaper(plan)
    lock_in(plan)
    os.write(plan["ready"], b"1")
    os.close(plan["ready"])
    sys.exit(execute(job, plan["codes"]))


def check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


# --- namespaces of our own -------------------------------------------------------------------


def enter_namespaces(plan: Plan) -> None:
    """Go on as an ordinary process of new namespaces, its first process watching over it."""
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    user, group = os.geteuid(), os.getegid()
    check(LIBC.unshare(flags | (0 if plan["uid"] else CLONE_NEWUSER)), "unshare")
    if not plan["uid"]:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"65534 {user} 1")
        Path("/proc/self/gid_map").write_text(f"65534 {group} 1")
    if first := os.fork():
        wait_and_exit(first)
    # When this first process of the namespace dies, the kernel kills all others in it.
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    build_root(plan)
    if program := os.fork():
        wait_and_exit(program)


def wait_and_exit(child: int) -> NoReturn:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def build_root(plan: Plan) -> None:
    """A new root on a tmpfs: system and Python read-only, some devices, an empty private folder."""
    root = plan["folder"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", 0, "mode=755,size=1m")
    private = Path(root + plan["private"])
    private.mkdir()
    mount("tmpfs", str(private), "tmpfs", 0, f"mode=1777,size={plan['disk']}")
    for path in plan["readable"]:
        Path(root + path).mkdir(parents=True, exist_ok=True)
        bind(path, root, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV)
    for link, target in plan["links"].items():
        Path(root + link).symlink_to(target)
    Path(root + "/dev").mkdir()
    for path in DEVICES:
        Path(root + path).touch()
        bind(path, root, MOUNT_NOSUID)
    restrict_mount(root, MOUNT_RDONLY | MOUNT_NOSUID, recursive=False)
    os.chroot(root)
    os.chdir(plan["private"])


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    fields = (source.encode(), target.encode(), kind and kind.encode(), flags, data.encode())
    check(LIBC.mount(*fields), f"mount on {target}")


def bind(path: str, root: str, attributes: int) -> None:
    mount(path, root + path, None, MS_BIND | MS_REC)
    restrict_mount(root + path, attributes, recursive=True)


def restrict_mount(path: str, attributes: int, *, recursive: bool) -> None:
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    result = LIBC.syscall(SYS_MOUNT_SETATTR, -1, path.encode(), flags, wanted, len(wanted))
    check(result, f"mount_setattr on {path}")


# --- no namespaces: another user, and someone to kill what it leaves behind ------------------


def stay_behind_as_reaper(plan: Plan) -> None:
    """Go on in a child; the parent stays root and kills every process of the child's user id."""
    program = 0

    def on_term(*_: object) -> None:
        os.kill(program, signal.SIGKILL)  # it may not have changed its user id yet
        kill_everything_of(plan["uid"])
        os._exit(128 + signal.SIGTERM)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    signal.signal(signal.SIGTERM, on_term)
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM), "prctl")
    check(LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl")
    program = os.fork()
    if program:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        status = os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
        assert status is not None
        kill_everything_of(plan["uid"])
        killed = status.si_code != os.CLD_EXITED
        os._exit(128 + status.si_status if killed else status.si_status)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    os.chown(plan["folder"], plan["uid"], plan["uid"])
    os.chdir(plan["folder"])


def kill_everything_of(uid: int) -> None:
    """At once, as that user: it can kill the killer before it strikes, but not every time."""
    struck = False
    while not struck:
        killer = os.fork()
        if not killer:
            os.setresuid(uid, uid, uid)
            if os.getresuid() == (uid, uid, uid):  # as root, the next line would end the machine
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            os._exit(0)
        struck = os.waitpid(killer, 0)[1] == 0
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


# --- what every method ends with -------------------------------------------------------------


def lock_in(plan: Plan) -> None:
    sys.path += plan["packages"]
    ruleset = None
    if plan["method"] == "uid":
        ruleset = landlock_ruleset(plan)
        reach_library_by_descriptor()
    if plan["uid"]:
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    else:
        drop_capabilities()
    if plan["method"] == "uid":
        check(LIBC.prctl(PR_SET_DUMPABLE, 1), "prctl")  # else /proc/self/fd belongs to root
    for name, (soft, hard) in plan["rlimits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    if ruleset is not None:
        check(LIBC.syscall(SYS_LANDLOCK[2], ruleset, 0), "landlock_restrict_self")
        os.close(ruleset)
    filter_system_calls()


def drop_capabilities() -> None:
    header = struct.pack("Ii", 0x20080522, 0)
    check(LIBC.capset(header, bytes(24)), "capset")


def reach_library_by_descriptor() -> None:
    """Keep the standard library importable where it lies in a folder that only root may enter."""
    opened: dict[str, str] = {}
    for path in sys.path:
        if Path(path).is_dir():
            fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
            opened[path] = f"/proc/self/fd/{fd}"
    sys.path[:] = [opened.get(path, path) for path in sys.path]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        folders = getattr(module, "__path__", None)
        for index, folder in enumerate(folders or ()):
            for path in sorted(opened, key=len, reverse=True):
                if folder.startswith(path + "/") and folders is not None:
                    folders[index] = opened[path] + folder.removeprefix(path)
                    break


def landlock_ruleset(plan: Plan) -> int | None:
    """Read and execute beneath the readable folders, anything beneath the private one, no more."""
    abi = LIBC.syscall(SYS_LANDLOCK[0], None, 0, 1)
    if abi < 1:
        return None
    # The first 13 rights are of version 1; renaming across folders, truncating and device ioctl
    # came with versions 2, 3 and 5.
    handled = (1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1
    execute_file, write_file, read_file, read_folder = 1, 2, 4, 8
    attributes = struct.pack("Q", handled)
    ruleset = check(LIBC.syscall(SYS_LANDLOCK[0], attributes, len(attributes), 0), "landlock")
    rules = [(path, execute_file | read_file | read_folder) for path in plan["readable"]]
    rules += [(path, write_file | read_file) for path in DEVICES]
    rules += [(plan["folder"], handled)]
    for path, rights in rules:
        fd = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", rights, fd)
        check(LIBC.syscall(SYS_LANDLOCK[1], ruleset, 1, rule, 0), f"landlock rule for {path}")
        os.close(fd)
    return ruleset


# Column in the table below, audit number, and the numbers of `clone` and `socketpair`.
ARCHITECTURES = {"x86_64": (0, 0xC000003E, 56, 53), "aarch64": (1, 0xC00000B7, 220, 199)}
DENIED = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425),  # it can make sockets too
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),  # all of these outlive their process, or count as nobody's memory
    "shmat": (30, 196),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
}


def filter_system_calls() -> None:
    """Answer the denied calls with "not permitted"; on other architectures there is no filter."""
    if os.uname().machine not in ARCHITECTURES:
        return
    column, audit, clone, socketpair = ARCHITECTURES[os.uname().machine]
    load, equal, at_least, any_bit, give, mask = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
    allow, kill, refuse = 0x7FFF0000, 0x80000000, 0x00050000
    program = [(load, 0, 0, 4), (equal, 1, 0, audit), (give, 0, 0, kill), (load, 0, 0, 0)]
    program += [(at_least, 0, 1, 0x40000000), (give, 0, 0, refuse | errno.EPERM)]  # x32 calls
    for numbers in DENIED.values():
        program += [(equal, 0, 1, numbers[column]), (give, 0, 0, refuse | errno.EPERM)]
    # From a pair of datagram sockets one can send to any address; a stream stays what it is.
    program += [(equal, 0, 5, socketpair), (load, 0, 0, 24), (mask, 0, 0, 0xF)]
    program += [(equal, 0, 1, 1), (give, 0, 0, allow), (give, 0, 0, refuse | errno.EPERM)]
    # clone3 hides its flags behind a pointer; without it the C library falls back to clone.
    program += [(equal, 0, 1, 435), (give, 0, 0, refuse | errno.ENOSYS)]
    program += [(equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 0, 1, CLONE_NEWUSER)]
    program += [(give, 0, 0, refuse | errno.EPERM), (give, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    check(LIBC.prctl(PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")


# --- the program -----------------------------------------------------------------------------


def execute(job: dict[str, Any], codes: dict[str, int]) -> int:
    """Run the job's program as `__main__` and say with the exit code how it ended."""
    try:
        for name, source in job["modules"].items():
            load_module(name, source)
        sys.argv = ["program", job["payload"]]
        load_module("__main__", job["program"])
        return 0
    except Exception as error:
        return explain(error, codes)


def load_module(name: str, source: str) -> None:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)


def explain(error: Exception, codes: dict[str, int]) -> int:
    if not isinstance(error, MemoryError):
        traceback.print_exception(error)
    return codes.get(kind_of(error), 1)


def kind_of(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        return KINDS.get(error.errno or 0, "")
    return "processes" if "can't start new thread" in str(error) else ""


KINDS = {
    **dict.fromkeys((errno.EPERM, errno.EACCES, errno.EROFS), "forbidden"),
    **dict.fromkeys((errno.ENETUNREACH, errno.ENETDOWN), "forbidden"),
    **dict.fromkeys((errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EMFILE), "disk"),
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
}


if __name__ == "__main__":
    main()
