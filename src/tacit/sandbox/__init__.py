"""Code that models write, run in isolation and graded by its tests. Linux only.

Two methods; `probe` tries for real what a program can reach, and the stronger that works is used:

- `namespaces`: a file system, processes and network of its own, for root and wherever ordinary
  users may make user namespaces. What bubblewrap does, without having to install it; the one on
  Ubuntu 22.04 and RHEL 9 is too old (`--size` came with 0.7).
- `uid`: for root without the right to make namespaces, as in Docker with its usual seccomp filter
  and in most rented containers. Another user id, and Landlock limits the files.

Both: a system-call filter (no new processes, no network, nothing that outlives a process), rlimits,
limits on processor time and on the clock, after which the process is killed, and bounded output.
Without another user id or a user namespace, running is refused with a SandboxError.

Not covered: bugs in the kernel, and hardware side channels. Under `uid` a program sees that other
processes exist, its folder lies on the disk (each file is limited, their number is not), and
without Landlock (Linux before 5.13) it can reach the files that are open to everybody.
"""
