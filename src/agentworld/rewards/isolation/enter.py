"""What runs first inside an isolation: makes the namespaces, their file system and the limits, then the command.

A script of the standard library alone, started as `python -I -S enter.py PLAN STATUS_FD`. PLAN is a JSON file:

    mechanism   namespaces: make them; given: bubblewrap has made them, only limits and user are left; processes: a
                namespace of processes where the kernel gives one, and nothing else; none: limits alone
    command     the command and its arguments; environment: its variables, and no others; null: those of this script
    readable    folders that are bound read only at their own place
    files       folder whose files are copied into the scratch folder /work; scratch_bytes: the room there
    limits      [[resource, limit], ...]; user: the id to become where this process is root
    tied        whether all of it ends with the thread that started it
    threads     whether it may start threads alone and no processes

How the command ended, or why it never ran, goes to STATUS_FD as JSON. The process that was started ends with what is
inside: killing it kills the whole namespace.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
_CLONE_THREAD = 0x10000
# By machine: its number in audit records, pivot_root, clone, and the calls that only ever make processes.
_MACHINES = {
    "x86_64": (0xC000003E, 155, 56, (57, 58)),
    "aarch64": (0xC00000B7, 41, 220, ()),
    "riscv64": (0xC00000F3, 41, 220, ()),
}
# By machine: calls that take memory which no limit of a process counts and no end of it gives back.
_HOARDING = {
    "x86_64": (29, 64, 68, 319),  # shmget, semget, msgget, memfd_create
    "aarch64": (194, 190, 186, 279),
    "riscv64": (194, 190, 186, 279),
}
_UNSHARE = {"x86_64": 272, "aarch64": 97, "riscv64": 97}
_MEMFD_SECRET = 447
# Namespaces of one's own would give the right to mount file systems in memory, which are as large as one likes.
_CLONE_NAMESPACES = (
    _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | 0x2000000
)
_X32 = 0x40000000  # Behind it are the same calls under other numbers.
_CLONE3 = 435
# The same number on every architecture; fields: attr_set, attr_clr, propagation, userns_fd.
_MOUNT_SETATTR, _AT_RECURSIVE, _ATTR_RDONLY, _ATTR_NOSUID = 442, 0x8000, 1, 2
_NOBODY = 65534
_DEVICES = ("null", "zero", "full", "random", "urandom")
# Of filters: load a word, compare it, and return what becomes of the call.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x50000
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Read the plan, go inside, and stay until the command has ended."""
    with open(sys.argv[1], encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    status = int(sys.argv[2])
    os.set_inheritable(status, False)
    try:
        mechanism = plan["mechanism"]
        if plan["tied"]:
            _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if mechanism in ("namespaces", "processes"):
            _unshare(mechanism, plan)
            _wait_for_first(status)
        if mechanism == "namespaces":
            _make_root(plan)
        elif mechanism == "given":
            _fill_scratch(plan, "/work")
        if mechanism in ("namespaces", "given"):
            _raise_loopback()
        code = _run(plan)
    except OSError as error:
        _tell(status, {"error": str(error)})
        os._exit(125)
    _tell(status, code)
    os._exit(0)


def _unshare(mechanism: str, plan: dict[str, Any]) -> None:
    flags = _CLONE_NEWPID
    if mechanism == "namespaces":
        flags |= _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWNET
    if os.geteuid() == 0:
        try:
            _call("unshare", flags)
            return
        except PermissionError:
            plan["user"] = None  # root without the right to do so: as anyone else, and no other user to become
    user, group = os.geteuid(), os.getegid()
    inside = (0, 0) if mechanism == "namespaces" else (user, group)
    _call("unshare", flags | _CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inside[0]} {user} 1")
    _write("/proc/self/gid_map", f"{inside[1]} {group} 1")


def _wait_for_first(status: int) -> None:
    """Fork the namespace's first process, which goes on; this one waits for it. When either ends, all inside do."""
    reading, writing = os.pipe()
    first = os.fork()
    if first:
        os.close(reading)
        os.close(status)
        os.waitpid(first, 0)
        os._exit(0)
    os.close(writing)
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.set_blocking(reading, False)
    try:
        if not os.read(reading, 1):  # The parent had ended before the request was in force.
            os._exit(125)
    except BlockingIOError:
        pass
    os.close(reading)


def _make_root(plan: dict[str, Any]) -> None:
    """A file system of what is readable, a scratch folder in memory, /proc and five devices; all else is gone."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("base", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
    os.mkdir("/tmp/host")
    os.mkdir("/tmp/root")
    _pivot("/tmp", "/tmp/host")
    os.chdir("/")
    _mount("root", "/root", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=4m")
    _mount_scratch(plan)
    for path in plan["readable"]:  # after the scratch folders: what is readable may lie under /tmp
        _bind(path)
    _make_devices()
    os.makedirs("/root/proc", exist_ok=True)
    try:
        _mount("proc", "/root/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except PermissionError:
        pass  # Inside containers whose own /proc is masked the kernel gives none.
    _call("umount2", b"/host", _MNT_DETACH)
    _mount(None, "/root", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chdir("/root")
    _pivot(".", ".")
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/work")


def _bind(path: str) -> None:
    source, target = f"/host{path}", f"/root{path}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(source):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        return
    _mount(source, target, None, _MS_BIND | _MS_REC)
    attributes = struct.pack("QQQQ", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    _check(_libc.syscall(_MOUNT_SETATTR, -100, target.encode(), _AT_RECURSIVE, attributes, len(attributes)), "mount")


def _mount_scratch(plan: dict[str, Any]) -> None:
    room = plan["scratch_bytes"]
    # An empty file takes memory too, which the size does not count.
    options = f"mode=1777,size={room},nr_inodes={max(1024, room >> 12)}"
    for place in ("/root/work", "/root/tmp"):
        os.makedirs(place, exist_ok=True)
        _mount("scratch", place, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    _fill_scratch({**plan, "files": f"/host{plan['files']}"}, "/root/work")


def _fill_scratch(plan: dict[str, Any], scratch: str) -> None:
    shutil.copytree(plan["files"], scratch, dirs_exist_ok=True, copy_function=shutil.copyfile)
    os.chmod(scratch, 0o1777)
    for folder, folders, files in os.walk(scratch):
        for name in folders:
            os.chmod(os.path.join(folder, name), 0o777)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o666)


def _make_devices() -> None:
    os.makedirs("/root/dev", exist_ok=True)
    for name in _DEVICES:
        target = f"/root/dev/{name}"
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o666))
        _mount(f"/host/dev/{name}", target, None, _MS_BIND)


def _raise_loopback() -> None:
    """Bring up `lo`, so that a program can talk to itself."""
    fcntl_request, up_and_running = 0x8914, 0x1 | 0x40
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, fcntl_request, struct.pack("16sh14s", b"lo", up_and_running, b""))
        except PermissionError:
            pass  # bubblewrap has done it already, and took the right away


def _run(plan: dict[str, Any]) -> dict[str, Any]:
    """Start the command, collect whatever ends in this namespace, and say how the command itself ended."""
    failing, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _become_harmless(plan)
            environment = os.environ if plan["environment"] is None else plan["environment"]
            try:
                os.execvpe(plan["command"][0], plan["command"], environment)
            except OSError as error:
                why = f"the program {plan['command'][0]!r} cannot be run: {error.strerror}"
                os.write(writing, why.encode()[:1000])
                os._exit(125)
        except BaseException as error:
            os.write(writing, f"{plan['command'][0]!r} cannot be run: {error}".encode()[:1000])
        os._exit(125)
    os.close(writing)
    while True:
        ended, code = os.wait()
        if ended == child:
            break
    said = b""
    while piece := os.read(failing, 4096):
        said += piece
    if said:
        return {"error": said.decode("utf-8", "replace")}
    if os.WIFSIGNALED(code):
        return {"signal": os.WTERMSIG(code)}
    return {"code": os.WEXITSTATUS(code)}


def _become_harmless(plan: dict[str, Any]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for name, limit in plan["limits"]:
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(number, (limit, limit))
    if plan["mechanism"] in ("namespaces", "given"):
        capability = 0
        while _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
            capability += 1
        if plan.get("user") is not None and os.geteuid() == 0:
            os.setgroups([])
            try:
                _become(plan["user"])
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                _become(_NOBODY)  # a container that maps no more than the usual ids
        os.umask(0o022)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if plan["mechanism"] in ("namespaces", "given"):
        _refuse_hoarding()
    if plan.get("threads"):
        _refuse_processes()


def _become(user: int) -> None:
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _refuse_processes() -> None:
    """A filter of system calls: who asks for another process, and not for a thread, is told to try again later.

    A limit on processes is none for root, and counts all processes of anyone else; this holds for both. clone3 says its
    flags where a filter cannot look, so it is said to be missing, and libraries take clone.
    """
    clone, always = _machine()[2:]
    program = [each for number in always for each in ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.EAGAIN))]
    program += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    program += [(_EQUAL, 1, 0, clone), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _CLONE_THREAD)]
    _filter([*program, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE | errno.EAGAIN)])


def _refuse_hoarding() -> None:
    """A filter of system calls: those are missing that hold memory beside the limits, and namespaces are not given."""
    machine, clone = os.uname().machine, _machine()[2]
    program = []
    for number in (*_HOARDING[machine], _MEMFD_SECRET, _CLONE3):
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    program += [(_EQUAL, 0, 1, _UNSHARE[machine]), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    program += [(_EQUAL, 1, 0, clone), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 16), (_ANY_BIT, 1, 0, _CLONE_NAMESPACES)]
    _filter([*program, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE | errno.EPERM)])


def _filter(program: list[tuple[int, int, int, int]]) -> None:
    """Put it in force behind a look at the machine; each: what, jump if true, jump if not, constant. It begins with the
    call's number; at 4, 0 and 16 are machine, number, and the low half of the first argument.
    """
    missing = (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)
    first = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _machine()[0]),
        missing,
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        missing,
    ]
    steps = [*first, *program]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in steps))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    _call("prctl", _PR_SET_SECCOMP, 2, filters, 0, 0)


def _machine() -> tuple[int, int, int, tuple[int, ...]]:
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(f"isolation does not know the system calls of {machine}")
    return _MACHINES[machine]


def _tell(status: int, what: dict[str, Any]) -> None:
    try:
        os.write(status, json.dumps(what).encode())
    except BrokenPipeError:
        pass  # Who started this does not wait for the end.


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    given = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _check(_libc.mount(given[0], given[1], given[2], ctypes.c_ulong(flags), given[3]), f"mount {target}")


def _pivot(new: str, old: str) -> None:
    _check(_libc.syscall(_machine()[1], new.encode(), old.encode()), "pivot_root")


def _call(name: str, *arguments: Any) -> None:
    _check(getattr(_libc, name)(*arguments), name)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    main()
