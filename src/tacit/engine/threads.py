"""How many cores one thread uses, without changing what other threads have."""

import threading

import torch


def use_threads(count: int, others: int) -> None:
    """In this thread; torch would give the same number to every thread that begins later."""
    torch.set_num_threads(count)
    restore = threading.Thread(target=torch.set_num_threads, args=(others,))
    restore.start()
    restore.join()
