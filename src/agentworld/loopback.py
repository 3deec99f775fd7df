"""What a Host and an Origin header say about who is calling: this machine, or a page of another site."""

from __future__ import annotations

import ipaddress
import re

_AUTHORITY = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{0,5}))?")


def is_loopback(name: str) -> bool:
    """Whether a host name or address (without brackets) means this machine only."""
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).is_loopback
    except ValueError:
        return False


def host_name(authority: str) -> str | None:
    """`HOST[:[PORT]]` without port and brackets, in lower case; None where it is none."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None or int(found.group(2) or 0) > 65_535:
        return None
    return found.group(1).strip("[]").rstrip(".").lower() or None


def origin_host(origin: str) -> str | None:
    """The host of an `Origin` header; None where it names no site."""
    scheme, separator, authority = origin.partition("://")
    # `null` is a page without a site: a sandboxed frame, a file.
    return host_name(authority) if separator and scheme.lower() in ("http", "https") else None
