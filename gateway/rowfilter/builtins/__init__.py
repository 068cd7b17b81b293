"""Built-in functions of PostgreSQL that the gateway evaluates, one module for each family.

The generated `gateway.pgtypes.catalog` maps operators, casts and names, with types, to functions.
Functions that are not here are left to the server.
"""

from __future__ import annotations

from typing import Final

from gateway.rowfilter.builtins.common import Family
from gateway.rowfilter.builtins.datetimes import FAMILY as DATETIMES
from gateway.rowfilter.builtins.general import FAMILY as GENERAL
from gateway.rowfilter.builtins.numbers import FAMILY as NUMBERS
from gateway.rowfilter.builtins.text import FAMILY as TEXT

__all__ = ["FAMILIES"]

FAMILIES: Final[tuple[Family, ...]] = (GENERAL, NUMBERS, TEXT, DATETIMES)
