"""The majors of PostgreSQL on which tests run.

Where a major makes no difference to what is tested, a run takes one of those that are named,
another one in other files and for other commits. ``PGSLUICE_ALL_MAJORS=1`` takes all of them, as
``make test-all`` does.
"""

from __future__ import annotations

import os
from typing import Final
from zlib import crc32

import pytest

from tests.support.run.seeds import SEED

__all__ = ["EVALUATED_ON", "alternating"]

_ALL: Final = os.environ.get("PGSLUICE_ALL_MAJORS", "0") not in ("", "0")
_ASKED: Final = os.environ.get("PGSLUICE_ORACLE_MAJORS") or ("15,16,17,18" if _ALL else "18")

EVALUATED_ON: Final = [int(major) for major in _ASKED.split(",")]
"""Where each function of a filter is asked for. The catalog test and the random filters ask for
every function in any case."""


def alternating(module: str, *majors: int) -> pytest.MarkDecorator:
    """Parametrize ``postgres_major`` with all of them, or with the one whose turn it is."""
    chosen = majors if _ALL else (majors[(SEED + crc32(module.encode())) % len(majors)],)
    return pytest.mark.parametrize("postgres_major", chosen, indirect=True)
