"""Check of the Host header, which guards the endpoints against DNS rebinding.

A malicious page can make its own name resolve to this machine, so that the browser attributes our
answers to that page. The browser sends that name as Host. Requests are therefore answered
only for our own names, and for IP addresses, which nobody can redirect.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

__all__ = ["is_own_host"]

ANY: Final = "*"


def is_own_host(header: str | None, own: Collection[str]) -> bool:
    """Whether a request with this Host header is for this server.

    Args:
        header: Header as sent, with or without a port; None if absent, as in HTTP/1.0, which
            browsers do not use.
        own: Own names besides localhost; ``*`` stands for all.
    """
    if header is None or ANY in own:
        return True
    name = _without_port(header.strip()).lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {each.lower().rstrip(".") for each in own}
    return True


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
