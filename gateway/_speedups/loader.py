"""Loader of the C modules: which of them exist, and whether they are used.

Each does what something in Python does as well, which is the reference and the fallback.
``tools/build_rows.py`` compiles them; ``PGSLUICE_INTERPRETED=1`` uses none of them.
"""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = ["INTERPRETED", "interface_of", "load_compiled", "why_switched_off"]

_HERE: Final = Path(__file__).resolve().parent
_SCHEMAS: Final = _HERE.parent.parent / "schemas"
_DECLARED: Final = (
    _HERE / "codes.py",
    _HERE / "layouts.py",
    _HERE.parent / "pgoutput" / "letters.py",
    _SCHEMAS / "headers.toml",
    _SCHEMAS / "types.toml",
    _SCHEMAS / "transaction.avsc",
)
"""Files from which the build makes ``declared.h``."""

INTERPRETED: Final = "PGSLUICE_INTERPRETED"
"""Name of the environment variable that switches all that is compiled off."""


def interface_of(name: str) -> str:
    """Return a digest of all that a module is compiled from, and of what it shares with Python.

    Args:
        name: Name of the folder with its sources.

    Raises:
        OSError: it is not all there.
    """
    digest = hashlib.sha256()
    for path in (*sorted((_HERE / name).glob("*.[ch]")), *sorted(_HERE.glob("*.h")), *_DECLARED):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def load_compiled(name: str, *, library: str | None = None) -> ModuleType | str:
    """Return a module, or why there is none.

    Args:
        name: Name of the folder with its sources.
        library: The file that has loaded what the module calls; None: it calls nothing.
    """
    try:
        module = import_module(f"gateway._speedups._{name}")
        if interface_of(name) != module.INTERFACE:
            return "built from other sources"
    except ImportError:
        return "not built"
    except OSError as error:
        return f"its sources cannot be read: {error.strerror}"
    if library is not None and not module.load(library):
        return f"{Path(library).name} does not have the functions"
    return module


def why_switched_off() -> str | None:
    """Say why nothing that is compiled is used, although it may be there; None: it is used."""
    return f"{INTERPRETED} is set" if os.environ.get(INTERPRETED, "0") not in ("", "0") else None
