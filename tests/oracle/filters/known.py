"""What the gateway has an implementation for."""

from __future__ import annotations

from gateway.rowfilter import builtins

__all__ = ["implemented"]


def implemented() -> set[str]:
    """The keys of functions; the gateway's names for steps of its own are in brackets."""
    keys = {operation.name for operation in builtins.operations()}
    keys |= {key for key, _ in builtins.factories()}
    return {key for key in keys if not key.startswith("(")}
