"""Runs a command where it can do less, as far as Linux permits: python confine.py FILE COMMAND ...

In namespaces of its own, the command has no network, sees no other processes and can write nowhere
but in its folder, a small one in memory; `hidden` files look empty to it. FILE has the options as
JSON and is deleted. This file runs on its own, without the library. The first line that it writes
to its standard output says what was permitted. When the command ends, or this process is ended with
SIGTERM, everything that the command has started is killed, and so it is when there are more than
`processes` of them.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time

# sched.h
USER = 0x10000000
MOUNTS = 0x20000
NETWORK = 0x40000000
PROCESSES = 0x20000000
MESSAGES = 0x8000000
# sys/mount.h
NO_SUID = 2
NO_DEVICES = 4
BIND = 4096
RECURSIVE = 16384
PRIVATE = 1 << 18
# sys/prctl.h
DEATH_SIGNAL = 1
SUBREAPER = 36
NO_NEW_PRIVILEGES = 38
MOUNT_SETATTR = 442
HERE = -100
AT_RECURSIVE = 0x8000
READ_ONLY = 1
TOO_MANY = 99  # the status that says so
EVERY = 0.1  # seconds between two looks at what runs


def main(given: str, *command: str) -> int:
    """Confine this process, run the command and wait.

    Returns its status, 128 and its signal, or TOO_MANY.
    """
    with open(given, encoding="utf-8") as file:
        options = json.load(file)
    os.unlink(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for what, value in ((DEATH_SIGNAL, signal.SIGKILL), (SUBREAPER, 1), (NO_NEW_PRIVILEGES, 1)):
        libc.prctl(what, value, 0, 0, 0)
    # root is exempt from the limit of processes, but may go first to count them
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    parent = os.getpid()
    permitted = confine(os.getcwd(), options["bytes"], options["hidden"])
    print(json.dumps({"permitted": permitted}), flush=True)
    child = os.fork()
    if not child:
        libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        # this process must see the others' /proc
        if "processes" in permitted and not libc.unshare(MOUNTS):
            with contextlib.suppress(OSError):  # where a container covers parts of /proc
                mount("proc", "/proc", "proc")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execv(command[0], command)
    for stream in (0, 1):
        os.close(stream)
    try:
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if len(descendants(parent)) > options["processes"]:
                return TOO_MANY
            time.sleep(EVERY)
    finally:
        kill_below(parent)


def confine(folder: str, n_bytes: int, hidden: list[str]) -> list[str]:
    """Leave the namespaces of the system for new ones. Returns the names of what was permitted."""
    user = os.getuid()
    group = os.getgid()
    if libc.unshare(USER | MOUNTS | NETWORK | PROCESSES | MESSAGES):
        return []
    permitted = ["network", "processes"]
    with contextlib.suppress(OSError):
        # not root: what is executed then loses all rights in the new namespaces
        inside = user or 65534
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{inside} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        mount("none", "/", flags=RECURSIVE | PRIVATE)
        attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)
        _tried(
            libc.syscall(
                MOUNT_SETATTR, HERE, b"/", AT_RECURSIVE, attributes, ctypes.sizeof(attributes)
            )
        )
        mount("none", folder, "tmpfs", NO_SUID | NO_DEVICES, f"size={n_bytes},mode=0700")
        os.chdir(folder)
        for path in hidden:
            mount(os.devnull, path, flags=BIND)
        permitted.append("files")
    return permitted


def mount(
    what: str, where: str, kind: str | None = None, flags: int = 0, options: str = ""
) -> None:
    """As the system call. Raises OSError."""
    kind_ = kind and kind.encode()
    options_ = options.encode() or None
    _tried(libc.mount(what.encode(), os.fsencode(where), kind_, ctypes.c_ulong(flags), options_))


def _tried(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def descendants(pid: int) -> set[int]:
    """All processes below one.

    One that lost its parent is below this process, or the first in its namespace.
    """
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            with open(f"/proc/{name}/stat", errors="replace") as file:
                # the name before may hold anything
                parent = int(file.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found = set()
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def kill_below(pid: int) -> None:
    """Kill everything below a process, until nothing is left."""
    while below := descendants(pid):
        for one in below:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        with contextlib.suppress(OSError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)
    sys.exit(main(*sys.argv[1:]))
