"""What the gateway has an implementation for."""

from __future__ import annotations

from typing import Final

from gateway.rowfilter import builtins

__all__ = ["implemented"]

_MAJORS: Final = (None, 14, 15, 16, 17, 18)


def implemented() -> set[str]:
    """The keys of functions; the gateway's names for steps of its own are in brackets."""
    keys = {operation.name for major in _MAJORS for operation in builtins.operations(major)}
    keys |= {key for key, _ in builtins.factories()}
    keys |= {key for key, _ in builtins.element_factories()}
    return {key for key in keys if not key.startswith("(")}
