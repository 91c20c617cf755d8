"""The sandbox of a decoder process: resource limits and a system call filter."""

import ctypes
import errno
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2

# What decoding, hashing and answering need. Every other system call fails with EPERM: none opens a
# file, creates a socket, starts a process or thread, or signals another process.
_ALLOWED = (
    *("brk", "munmap", "mremap", "madvise"),
    *("read", "write", "close", "fstat", "lseek"),
    *("recvfrom", "sendto"),
    *("clock_gettime", "getrandom", "futex", "sched_yield", "getpid", "gettid"),
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "setitimer"),
    *("restart_syscall", "exit", "exit_group"),
)
_PROT_EXEC = 4

# stdin, stdout, stderr, the connection, and one that Debian's libffi keeps open.
_MAX_DESCRIPTORS = 8

_STATM = Path("/proc/self/statm")


def exit_with(parent: int) -> None:
    """Let the kernel kill this process when the service exits, where the kernel can."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the service has exited already
        raise SystemExit(0)


def address_space() -> int:
    """Return the size of this process's address space in bytes."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:  # not Linux: RLIMIT_AS has no effect
        return 1 << 40


def enter(max_address_space: int) -> str:
    """Give up privileges. Return why there is no system call filter, or "" if there is one."""
    _limit(resource.RLIMIT_AS, max_address_space)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        _limit(kind, 0)
    _limit(resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS)
    if sys.platform != "linux":
        return f"{sys.platform} has no seccomp"
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return _filter_calls()


def limit_memory(address_space: int) -> None:
    """Let allocations beyond this address space fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (min(address_space, hard), hard))


def limit_cpu(seconds: float) -> None:
    """Let SIGPROF kill this process after this much CPU time. 0 removes the limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _filter_calls() -> str:
    from seccompy import Action, ArgCmp, CmpOp, Filter  # noqa: PLC0415  (Linux only)

    rules = Filter(default=Action.ERRNO | errno.EPERM)
    for name in _ALLOWED:
        rules.allow(name)
    for name in ("mmap", "mprotect"):
        rules.allow(name, args=[ArgCmp(2, CmpOp.MASKED_EQ, 0, mask=_PROT_EXEC)])
    rules.allow("prlimit64", args={0: 0})  # its own limits, up to the hard ones
    try:
        program = rules.program
        # rules.load() would run programs to find libc, and these need a writable folder.
        instructions = ctypes.create_string_buffer(program, len(program))
        _prctl(
            _PR_SET_SECCOMP,
            _SECCOMP_MODE_FILTER,
            ctypes.byref(_Program(len(program) // 8, ctypes.addressof(instructions))),
        )
    except OSError as error:  # an old kernel, a container that forbids it, or an unknown processor
        return str(error)[:200]
    return ""


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


class _Program(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _prctl(option: int, value: int, argument: Any = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, argument, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
