"""The first code of every sandbox process: isolates itself, then runs the program it is given.

Started as `python -c <this file> <policy as JSON>`, with the job (program, modules, payload) on
standard input; writes one byte to standard output once the isolation is complete. Under the method
`namespaces` it makes namespaces with a file system of their own; under `uid` there are none, and
Landlock limits the files if the kernel has it. Then, always: another user id if the parent is root,
rlimits (after the user id: they hardly bind root), no new privileges, and a system-call filter (no
new processes, so that rlimits bind the whole program and killing it leaves nothing behind; no
sockets but connected pairs, no shared memory that outlives a process, no looking into others).

Not covered: hardware side channels, and bugs in the kernel.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
import types
from pathlib import Path
from typing import Any, NoReturn

Policy = dict[str, Any]

LIBC = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
CLONE_THREAD, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x10000, 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MOUNT_RDONLY, MOUNT_NOSUID, MOUNT_NODEV, AT_RECURSIVE = 1, 2, 4, 0x8000
SYS_MOUNT_SETATTR, SYS_LANDLOCK = 442, (444, 445, 446)  # the same on every architecture
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def main() -> None:
    policy: Policy = json.loads(sys.argv[1])
    job = json.load(sys.stdin)
    os.umask(0o022)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if policy["method"] == "namespaces":
        enter_namespaces(policy)
    restrict(policy)
    os.write(1, b"1")
    try:
        for name, source in job["modules"].items():
            run_as(name, source)
        sys.argv = ["program", job["payload"]]
        run_as("__main__", job["program"])
    except MemoryError:
        sys.exit(policy["out_of_memory"])


def run_as(name: str, source: str) -> None:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)


def check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


# --- method `namespaces` ---------------------------------------------------------------------


def enter_namespaces(policy: Policy) -> None:
    """Continue in a child process in new namespaces, whose first process waits for it."""
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    user, group = os.geteuid(), os.getegid()
    check(LIBC.unshare(flags | (0 if policy["uid"] else CLONE_NEWUSER)), "unshare")
    if not policy["uid"]:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"65534 {user} 1")
        Path("/proc/self/gid_map").write_text(f"65534 {group} 1")
    if first := os.fork():
        wait_and_exit(first)
    # When this first process of the namespace dies, the kernel kills all others in it.
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    build_root(policy)
    if program := os.fork():
        wait_and_exit(program)


def wait_and_exit(child: int) -> NoReturn:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def build_root(policy: Policy) -> None:
    """A new root on a tmpfs: system and Python read-only, some devices, an empty home folder."""
    root = policy["folder"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", 0, "mode=755,size=1m")
    home = Path(root + policy["home"])
    home.mkdir()
    mount("tmpfs", str(home), "tmpfs", 0, f"mode=1777,size={policy['disk']}")
    for path in policy["readable"]:
        Path(root + path).mkdir(parents=True, exist_ok=True)
        bind(path, root, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV)
    for link, target in policy["links"].items():
        Path(root + link).symlink_to(target)
    Path(root + "/dev").mkdir()
    for path in DEVICES:
        Path(root + path).touch()
        bind(path, root, MOUNT_NOSUID)
    restrict_mount(root, MOUNT_RDONLY | MOUNT_NOSUID, recursive=False)
    os.chroot(root)
    os.chdir(policy["home"])


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


# --- method `uid` ----------------------------------------------------------------------------


def reach_library_by_descriptor() -> None:
    """Keep the standard library importable if it lies in a folder that only root may enter."""
    opened = {
        path: f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_DIRECTORY)}"
        for path in sorted(sys.path, key=len, reverse=True)
        if Path(path).is_dir()
    }

    def reached(folder: str) -> str:
        above = (path for path in opened if f"{folder}/".startswith(f"{path}/"))
        path = next(above, "")
        return opened[path] + folder.removeprefix(path) if path else folder

    sys.path[:] = map(reached, sys.path)
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        if folders := getattr(module, "__path__", None):
            folders[:] = map(reached, folders)


def landlock_ruleset(policy: Policy) -> int | None:
    """Allows reading and executing in the readable folders, and anything in the private one."""
    abi = LIBC.syscall(SYS_LANDLOCK[0], None, 0, 1)
    if abi < 1:
        return None
    # The first 13 rights are of version 1; renaming across folders, truncating and device ioctl
    # came with versions 2, 3 and 5.
    handled = (1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1
    execute_file, write_file, read_file, read_folder = 1, 2, 4, 8
    attributes = struct.pack("Q", handled)
    ruleset = check(LIBC.syscall(SYS_LANDLOCK[0], attributes, len(attributes), 0), "landlock")
    rules = [(path, execute_file | read_file | read_folder) for path in policy["readable"]]
    rules += [(path, write_file | read_file) for path in DEVICES]
    rules += [(policy["folder"], handled)]
    for path, rights in rules:
        fd = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", rights, fd)
        check(LIBC.syscall(SYS_LANDLOCK[1], ruleset, 1, rule, 0), f"landlock rule for {path}")
        os.close(fd)
    return ruleset


# --- both methods ----------------------------------------------------------------------------


def restrict(policy: Policy) -> None:
    sys.path += policy["packages"]
    ruleset = None
    if policy["method"] == "uid":
        ruleset = landlock_ruleset(policy)
        os.chown(policy["folder"], policy["uid"], policy["uid"])
        os.chdir(policy["folder"])
        reach_library_by_descriptor()
    if uid := policy["uid"]:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    else:  # no capabilities
        check(LIBC.capset(struct.pack("Ii", 0x20080522, 0), bytes(24)), "capset")
    check(LIBC.prctl(PR_SET_DUMPABLE, 1), "prctl")  # else /proc/self/fd belongs to root
    for name, limit in policy["rlimits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), tuple(limit))
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")  # a new user id has cleared it
    if ruleset is not None:
        check(LIBC.syscall(SYS_LANDLOCK[2], ruleset, 0), "landlock_restrict_self")
        os.close(ruleset)
    filter_system_calls()


# Column in the table below, audit number, and the numbers of `clone`, `socketpair` and `prctl`.
ARCHITECTURES = {
    "x86_64": (0, 0xC000003E, 56, 53, 157),
    "aarch64": (1, 0xC00000B7, 220, 199, 167),
}
NONE = 0x3FFFFFFF
DENIED = {
    "fork": (57, NONE),
    "vfork": (58, NONE),
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
    """Answer the denied calls with "not permitted"."""
    if os.uname().machine not in ARCHITECTURES:
        raise OSError(f"no system-call filter for {os.uname().machine}")
    column, audit, clone, socketpair, prctl = ARCHITECTURES[os.uname().machine]
    load, equal, at_least, any_bit, give, mask = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
    allow, kill, refuse = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
    program = [(load, 0, 0, 4), (equal, 1, 0, audit), (give, 0, 0, kill), (load, 0, 0, 0)]
    program += [(at_least, 0, 1, 0x40000000), (give, 0, 0, refuse)]  # x32 calls
    for numbers in DENIED.values():
        program += [(equal, 0, 1, numbers[column]), (give, 0, 0, refuse)]
    # A socket of a datagram pair can send to any address; one of a stream pair cannot.
    program += [(equal, 0, 5, socketpair), (load, 0, 0, 24), (mask, 0, 0, 0xF)]
    program += [(equal, 0, 1, 1), (give, 0, 0, allow), (give, 0, 0, refuse)]
    # The signal at the parent's death stays as it is.
    program += [(equal, 0, 4, prctl), (load, 0, 0, 16), (equal, 1, 0, PR_SET_PDEATHSIG)]
    program += [(give, 0, 0, allow), (give, 0, 0, refuse)]
    # Threads only. clone3 hides its flags behind a pointer; without it the C library uses clone.
    program += [(equal, 0, 1, 435), (give, 0, 0, 0x00050000 | errno.ENOSYS)]
    program += [(equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 1, 0, CLONE_THREAD)]
    program += [(give, 0, 0, refuse), (give, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    check(LIBC.prctl(PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")


if __name__ == "__main__":
    main()
