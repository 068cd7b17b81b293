"""What an operation on values can raise."""

from __future__ import annotations

from gateway.errors import FatalError

__all__ = ["EvaluationError"]


class EvaluationError(FatalError):
    """PostgreSQL would have raised this error; the message is its text, without values."""
