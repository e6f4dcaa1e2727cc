"""The program behind `commands.Forked`: import what is heavy, then become one command per fork.

A fork leaves this file by its last line, so that it ends as every Python program does. Between it
and the warm process stands a second, small fork that waits for it and tells how it ended.
"""

import gc
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

HEAVY = (
    "yaml",
    "pydantic",
    "typer",
    "rich.progress",
    "rich.table",
    "torch",
    "tokenizers.trainers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.generation.utils",
    "transformers.integrations.hub_kernels",
    "torch.utils.checkpoint",
    "openai",
    "starlette.applications",
    "uvicorn",
    "httpx2",
    "plotly.offline",
)
"""Nothing of `tacit`: what its modules read of the environment, each command reads for itself."""


def order(orders: socket.socket) -> dict[str, object]:
    """Wait for orders; returns in a fork that is to carry one out."""
    while True:
        word, streams, _, _ = socket.recv_fds(orders, 1, 3)
        _reap()
        if not word:  # whoever ran the tests is gone
            while _reap(block=True):
                pass
            os._exit(0)
        line, output, errors = streams
        if os.fork() == 0:
            orders.close()
            with socket.socket(fileno=line) as told:
                found = _watched(told)
            os.dup2(output, 1)
            os.dup2(errors, 2)
            os.close(output)
            os.close(errors)
            return found
        for number in streams:
            os.close(number)


def _watched(told: socket.socket) -> dict[str, object]:
    with told.makefile("r") as words:
        found: dict[str, object] = json.load(words)
    child = os.fork()
    if child == 0:
        return found
    _say(told, child)
    os.closerange(1, 3)  # a pipe ends with its last writer
    _say(told, os.waitpid(child, 0)[1])
    os._exit(0)


def _say(told: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody wants to know any more
        told.sendall(b"%d\n" % number)


def _reap(block: bool = False) -> bool:
    """Wait for forks that have ended, so that their time is counted as this process's."""
    try:
        return os.waitpid(-1, 0 if block else os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def become(found: dict[str, object]) -> None:
    """Be what a process started with these arguments, in this folder and environment, would be."""
    arguments, here, variables = found["arguments"], found["here"], found["environment"]
    assert isinstance(arguments, list) and isinstance(here, str) and isinstance(variables, dict)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(here)
    sys.argv[:] = ["tacit", *arguments]
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever runs the tests
    for name in HEAVY:
        import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "threads are lost in a fork"
    gc.collect()
    gc.freeze()  # what is shared with the forks stays shared
    become(order(socket.socket(fileno=int(sys.argv[1]))))
    runpy.run_module("tacit", run_name="__main__", alter_sys=True)
