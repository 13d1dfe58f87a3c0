"""What a student's process may not do, set by itself before the first line of the student's code.

Floor 4, room `course`. Limits of the system bind every process; Landlock (Linux 5.13 and later, no privileges needed)
lets it open what it needs and nothing else; a filter of a dozen system calls keeps it from networks, and from signals to
and memory of other processes, where it has no namespaces; a change of user does the rest where the grader is root.
See landlock(7), setrlimit(2), seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
WRITES = (0x1FF0, 0x3FF0, 0x7FF0)  # everything that changes a folder, up to refer (ABI 2) and truncate (ABI 3)
# The kernel's number of the architecture, and of: socket, ptrace, kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo,
# process_vm_readv, process_vm_writev, pidfd_send_signal, io_uring_setup, pidfd_getfd.
CALLS = {
    "x86_64": (0xC000003E, (41, 101, 62, 200, 234, 129, 297, 310, 311, 424, 425, 438)),
    "aarch64": (0xC00000B7, (198, 117, 129, 130, 131, 138, 240, 270, 271, 424, 425, 438)),
}
libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """The version of Landlock that the kernel offers here; 0 where it has none."""
    try:
        return max(0, libc.syscall(CREATE_RULESET, None, 0, 1))
    except AttributeError:  # not Linux
        return 0


def shut_in(readable: Iterable[str], writable: Iterable[str]) -> bool:
    """From now on this process and its children open nothing but that, connect nowhere, and signal nobody outside.

    False where the kernel has no Landlock. Paths that do not exist are passed over.
    """
    version = landlock_version()
    if not version:
        return False
    files = EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | WRITES[min(version, 3) - 1]
    attributes = struct.pack("=QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = libc.syscall(CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return False
    for path in readable:
        _allow(ruleset, path, (EXECUTE | READ_FILE | READ_DIR) & files)
    for path in writable:
        _allow(ruleset, path, files & ~EXECUTE)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done = libc.syscall(RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        access &= EXECUTE | WRITE_FILE | READ_FILE | 0x4000
    libc.syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", access, place), 0)
    os.close(place)


def call_nobody() -> bool:
    """From now on sockets, signals to processes and their memory are refused; False where that cannot be had.

    A filter of seccomp(2), as classic BPF: (code, jump if true, jump if false, number) for each step.
    """
    if platform.machine() not in CALLS:
        return False
    architecture, calls = CALLS[platform.machine()]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, 0x80000000), (load, 0, 0, 0)]
    steps.append((at_least, len(calls) + 1, 0, 0x40000000))  # x32's numbers for the same calls
    steps += [(equal, len(calls) - i, 0, call) for i, call in enumerate(calls)]
    steps += [(give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x00050000 | errno.EPERM)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    pointer = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return libc.prctl(PR_SET_SECCOMP, FILTER, pointer, 0, 0) == 0


def limit(seconds: float, memory: int, processes: int, file_bytes: int) -> None:
    """Processor seconds, bytes of memory beyond what is there already, tasks of this user, bytes of a file."""
    cpu = max(1, int(seconds))
    _set(resource.RLIMIT_CPU, cpu, cpu + 1)
    _set(resource.RLIMIT_AS, _address_space() + memory)
    _set(resource.RLIMIT_FSIZE, file_bytes)
    _set(resource.RLIMIT_NPROC, processes)
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_NOFILE, 128)


def _set(what: int, soft: int, hard: int | None = None) -> None:
    hard = soft if hard is None else hard
    allowed = resource.getrlimit(what)[1]
    if allowed != resource.RLIM_INFINITY:
        soft, hard = min(soft, allowed), min(hard, allowed)
    resource.setrlimit(what, (soft, hard))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def become(user: int) -> None:
    """Be this user for good, in no group but its own."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
