"""Findings of the preflight, as they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from gateway.core.display import shown
from gateway.core.errors import GatewayError

__all__ = ["Finding", "Severity", "failed", "fine", "guarded"]


class Severity(Enum):
    """Severity of a finding."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    FINE = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report, and the remedy.

    Attributes:
        hint: The remedy, of which each statement has a line of its own.
        quotes: Whether the message has several lines: it quotes the definitions.
    """

    severity: Severity
    message: str
    hint: str | None = None
    quotes: bool = False

    def __str__(self) -> str:
        message = self.message if self.quotes else shown(self.message)
        lines = f"{self.severity.value:8}{message}".split("\n")
        if self.hint is not None:
            lines += [f"-> {line}" for line in self.hint.split("\n")]
        return "\n        ".join(lines)


def fine(message: str) -> Finding:
    """Return a finding of something that is as it should be."""
    return Finding(Severity.FINE, message)


def failed(part: str, error: GatewayError) -> Finding:
    """Return the finding that `error` has ended the check of `part`."""
    return Finding(Severity.ERROR, f"{part}: {error.message}", error.hint, quotes=True)


def guarded(part: str, find: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of `find`, and its error as one of them."""
    try:
        yield from find()
    except GatewayError as error:
        yield failed(part, error)
