"""What goes wrong with a row filter, and how it is said."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.errors import FatalError, FilterError

__all__ = ["FilterEvaluationError", "FilterSource", "refusal"]

_HINT = 'see docs/row-filters.md, "what a filter may say"'


@dataclass(frozen=True, slots=True)
class FilterSource:
    """Where a filter comes from, for messages.

    Attributes:
        relation: The table, qualified.
        publication: Its name, or None.
    """

    relation: str
    publication: str | None = None

    def __str__(self) -> str:
        of = "" if self.publication is None else f" of publication {self.publication}"
        return f"row filter{of} for {self.relation}"


class FilterEvaluationError(FatalError):
    """PostgreSQL would fail on this row: overflow, division by zero and the like.

    Attributes:
        reason: PostgreSQL's text, for example ``division by zero``.
        source: The filter, or None.
    """

    def __init__(self, reason: str, source: FilterSource | None) -> None:
        super().__init__(
            f"{source or 'row filter'}: {reason}",
            hint="a native subscription stops at this row too; change the filter or the row, or "
            'set [definitions] on_filter_error = "quarantine" to put such rows into the error '
            "topic and go on",
        )
        self.reason = reason
        self.source = source


def refusal(reason: str, text: str, position: int, source: FilterSource | None) -> FilterError:
    """The error for a filter that is not supported; `position` is a character offset."""
    return FilterError(
        f"{source or 'row filter'}, column {position + 1}: {reason}",
        text=text,
        position=position,
        hint=_HINT,
    )
