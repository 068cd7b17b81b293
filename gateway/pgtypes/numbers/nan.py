"""NaN as PostgreSQL orders it, for float4, float8 and numeric.

Python's NaN is unequal to itself and unordered; PostgreSQL's equals itself and is greater than
everything else, infinity included. One object with those comparisons takes its place, so that
the plain operators and sets are right for every value.
"""

from __future__ import annotations

from typing import Final, final

__all__ = ["NAN", "NotANumber"]


@final
class NotANumber:
    """The type of `NAN`; there is one instance."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return 0x7FF8

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "NAN"


NAN: Final = NotANumber()
