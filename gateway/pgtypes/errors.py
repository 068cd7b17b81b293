"""Errors of operations on values."""

from __future__ import annotations

from gateway.core.errors import FatalError

__all__ = ["EvaluationError"]


class EvaluationError(FatalError):
    """An error that PostgreSQL has raised, or would raise.

    Attributes:
        sqlstate: None where it was raised here; then the message, PostgreSQL's text, has no values.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
