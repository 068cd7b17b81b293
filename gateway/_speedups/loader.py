"""Modules in C: whether they are there, and whether they are to be used.

Each does what something in Python does as well, which is the reference and the fallback.
``tools/build_rows.py`` compiles them; ``PGSLUICE_INTERPRETED=1`` leaves all of them aside.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = ["INTERPRETED", "load_compiled", "why_switched_off"]

INTERPRETED: Final = "PGSLUICE_INTERPRETED"
"""Name of the environment variable that switches all that is compiled off."""


def load_compiled(name: str, interface: int, *, library: str | None = None) -> ModuleType | str:
    """Return a module, or why there is none.

    Args:
        name: In full.
        interface: Of the module that the caller goes with: another is of other sources.
        library: The file that has loaded what the module calls; None: it calls nothing.
    """
    try:
        module = import_module(name)
    except ImportError:
        return "not built"
    if interface != module.INTERFACE:
        return "built from other sources"
    if library is not None and not module.load(library):
        return f"{Path(library).name} does not have the functions"
    return module


def why_switched_off() -> str | None:
    """Say why nothing that is compiled is used, although it may be there; None: it is used."""
    return f"{INTERPRETED} is set" if os.environ.get(INTERPRETED, "0") not in ("", "0") else None
