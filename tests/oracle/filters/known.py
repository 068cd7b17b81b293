"""What the gateway has an implementation for."""

from __future__ import annotations

from gateway.rowfilter import builtins

__all__ = ["implemented"]


def implemented(major: int) -> set[str]:
    """The keys of functions on a server of this major version.

    The gateway's names for steps of its own are in brackets, and left out.
    """
    keys = {operation.name for operation in builtins.operations(major)}
    keys |= {key for key, _ in builtins.factories()}
    keys |= {key for key, _ in builtins.element_factories()}
    return {key for key in keys if not key.startswith("(")}
