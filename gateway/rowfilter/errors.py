"""Errors of row filters and their messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.core.errors import FilterError, UnfitError

__all__ = ["FilterEvaluationError", "FilterSource", "NotEvaluatedHere"]

_VALUES: Final = re.compile(r'".*"|\b\d[\w.]*', re.DOTALL)
"""Parts of PostgreSQL's messages that may be values of the row: numbers, and from the first quote
to the last one, since a value can have quotes and lines."""
_HINT: Final = (
    'a server evaluates what the gateway does not: [filters] server = "on" (docs/row-filters.md)'
)


@dataclass(frozen=True, slots=True)
class FilterSource:
    """Origin of a filter, for messages.

    Attributes:
        relation: Qualified name of the table.
        publication: Name of the publication, or None.
    """

    relation: str
    publication: str | None = None

    def __str__(self) -> str:
        of = "" if self.publication is None else f" of publication {self.publication}"
        return f"row filter{of} for {self.relation}"


class FilterEvaluationError(UnfitError):
    """Raised for a row on which PostgreSQL fails: overflow, division by zero and the like.

    Attributes:
        reason: PostgreSQL's text, for example ``division by zero``. If the server has evaluated the
            filter, it can quote values of the row, which the message does not show.
        source: The filter, or None.
        sqlstate: None where the filter was evaluated here.
    """

    kind = "filter"

    def __init__(
        self, reason: str, source: FilterSource | None, *, sqlstate: str | None = None
    ) -> None:
        shown = reason
        if sqlstate is not None:
            shown = f"SQLSTATE {sqlstate}"
            # In other languages, PostgreSQL has other quotes.
            if (without_values := _VALUES.sub("...", reason)).isascii():
                shown = f"{without_values} ({shown})"
        super().__init__(
            f"{source or 'row filter'}: {shown}",
            hint="a native subscription stops at this row too; change the filter or the row",
            reason=reason,
            sqlstate=sqlstate,
        )
        self.source = source


class NotEvaluatedHere(FilterError):
    """Raised for a filter that the gateway does not evaluate; `position` is an offset in `text`."""

    def __init__(self, reason: str, text: str, position: int, source: FilterSource | None) -> None:
        super().__init__(
            f"{source or 'row filter'}, column {position + 1}: {reason}",
            text=text,
            position=position,
            hint=_HINT,
        )
        self.reason = reason
