"""Runs a command that sees no network but this machine's loopback: `python -m tests.clients.loopback_only COMMAND`.

On Linux by a network namespace of its own. Where the system allows none, it says so and runs the command as it is; the
guards of these tests are there all the same.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def isolate() -> None:
    """Put this process into a network namespace where only the loopback interface is, and that is up."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET if user == 0 else CLONE_NEWNET | CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", IFF_UP, b""))


if __name__ == "__main__":
    try:
        isolate()
    except (OSError, AttributeError) as fault:
        print(f"clients: no network namespace here ({fault}); the guards of the tests have to do", flush=True)
    os.execvp(sys.argv[1], sys.argv[1:])
