"""Loaded by the clients' interpreter before they are: an address beyond loopback is written down and refused."""

import ipaddress
import os
import sys

LOG = os.environ["LOOPBACK_GUARD"]


def is_loopback(host):
    if host in (None, "", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host).is_loopback
    except ValueError:
        return False


def guard(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # Others are sockets in the file system.
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if not is_loopback(host):
        with open(LOG, "a") as file:
            file.write(f"{event} {arguments[:2] if event == 'socket.getaddrinfo' else arguments[1]}\n")
        raise ConnectionRefusedError(f"{event} {host}: beyond loopback")


sys.addaudithook(guard)
