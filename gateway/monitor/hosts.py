"""The names under which a request may reach the endpoints: the guard against DNS rebinding.

A page of somebody else's can have its own name resolve to this machine, so that the browser takes
our answers for that page's. The browser sends the page's name as Host: only names that are ours,
and addresses, which nobody can let point elsewhere, are answered.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

__all__ = ["is_own_host"]

ANY: Final = "*"


def is_own_host(header: str | None, own: Collection[str]) -> bool:
    """Whether a request with this Host header is for us.

    Args:
        header: As it was sent, with or without a port; None when there was none, as in HTTP/1.0,
            which no browser speaks.
        own: Names besides localhost; ``*`` stands for all.
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
