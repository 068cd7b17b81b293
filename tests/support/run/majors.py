"""The majors of PostgreSQL on which tests run.

Where a major makes no difference to what is tested, a run takes one of those that are named,
another one in other files and for other commits. ``PGSLUICE_ALL_MAJORS=1`` takes all of them, as
``make test-all`` does.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.support.run.seeds import ALL, in_turn

__all__ = ["EVALUATED_ON", "alternating"]

_ASKED: Final = os.environ.get("PGSLUICE_ORACLE_MAJORS") or ("15,16,17,18" if ALL else "18")

EVALUATED_ON: Final = [int(major) for major in _ASKED.split(",")]
"""Majors on which each function of a filter is asked for. The catalog test and the random filters
ask for every function in any case."""


def alternating(module: str, *majors: int) -> pytest.MarkDecorator:
    """Parametrize ``postgres_major`` with all of them, or with the one whose turn it is."""
    return pytest.mark.parametrize("postgres_major", in_turn(module, majors), indirect=True)
