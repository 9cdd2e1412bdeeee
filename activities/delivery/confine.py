"""Run a command in a Linux sandbox: Landlock for files, namespaces for mounts, network and processes.

A script for machines without bubblewrap, run as ``python -I -S confine.py SPEC COMMAND…``. SPEC is JSON: ``read`` and
``write`` (lists of paths), ``network`` (a bool). It exits with the command's exit code, or with 97 if the sandbox
fails; then the command did not run.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import warnings  # noqa: F401 - os.execvp imports it when the interpreter may be unreadable

CANNOT_CONFINE = 97
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, the same on every architecture
_NEW_NS, _NEW_USER, _NEW_PID, _NEW_NET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_FILE = 0b111 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl: all rights on a file
_READ = 0b1101  # execute, read a file, list a folder
_PROC, _SHM = "/proc", "/dev/shm"  # noqa: S108 - mounted below
_BIND, _DETACH, _SET_ATTRIBUTES = 0x5000, 2, 442  # recursive; the number of a system call, as above
_READ_ONLY = struct.pack("QQQQ", 1, 0, 0, 0)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library."""
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def isolate(*, network: bool) -> None:
    """Enter new namespaces; without ``network`` there is only a loopback interface."""
    user, group = os.getuid(), os.getgid()
    call("unshare", _NEW_USER | _NEW_PID | _NEW_NS | (0 if network else _NEW_NET))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    if not network:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up and running


def enclose(read: list[str], write: list[str]) -> None:
    """Make these paths the only content of the file system, because Landlock alone does not protect sockets."""
    folder, root = os.getcwd(), "/tmp"  # noqa: S108 - mounted here
    call("mount", b"proc", _PROC.encode(), b"proc", 0, None)
    call("mount", b"tmpfs", _SHM.encode(), b"tmpfs", 0, None)
    own_paths = {*write, _PROC, _SHM, *_DEVICES}
    paths = sorted(path for path in {*read, *own_paths} if os.path.exists(path))  # parents come before their children
    descriptors = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths}
    call("mount", b"tmpfs", root.encode(), b"tmpfs", 0, None)
    for path, descriptor in descriptors.items():
        target = root + path
        os.makedirs(target if os.path.isdir(f"/proc/self/fd/{descriptor}") else os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        call("mount", f"/proc/self/fd/{descriptor}".encode(), target.encode(), None, _BIND, None)
        if path not in own_paths:
            call("syscall", _SET_ATTRIBUTES, -100, target.encode(), 0x8000, _READ_ONLY, len(_READ_ONLY))
        os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)
    os.chdir(folder)


def restrict(read: list[str], write: list[str]) -> None:
    """Restrict this process and its children to the given files."""
    version = call("syscall", _CREATE_RULESET, None, 0, 1)
    if version < 3:
        raise OSError(f"Landlock has version {version}, too old to protect files from being truncated")
    all_rights = (1 << 15 if version < 5 else 1 << 16) - 1
    scoped = 0 if version < 6 else 0b11  # no abstract sockets of other processes, no signals to them
    attributes = struct.pack("QQQ", all_rights, 0, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)
    for paths, rights in ((read, _READ), (write, all_rights), (_DEVICES, _FILE & all_rights)):
        for path in paths:
            if not os.path.exists(path):
                continue
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = rights if os.path.isdir(path) else rights & _FILE
            call("syscall", _ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, descriptor), 0)
            os.close(descriptor)
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def wait_for(child: int) -> int:
    """Wait for a child and return its exit code, 128 + n for signal n; reap other processes meanwhile."""
    while True:
        process, status = os.waitpid(-1, 0)
        if process == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main() -> int:
    """Confine the command, run it, and return its exit code."""
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)  # if the worker dies
    isolate(network=spec["network"])
    init_process = os.fork()
    if init_process:
        return wait_for(init_process)
    # The init process of the namespace: when it ends, the kernel kills all its processes, daemons too.
    call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
    enclose(spec["read"], spec["write"])
    child = os.fork()
    if child:
        os._exit(wait_for(child))
    restrict([*spec["read"], _PROC], [*spec["write"], _SHM])
    try:
        os.execvp(command[0], command)  # noqa: S606 - the sandbox is around it
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    try:
        code = main()
    except OSError as error:
        print(f"confine: {error}", file=sys.stderr)
        code = CANNOT_CONFINE
    os._exit(code)
