"""Times of a cut and of its steps, in seconds of the monotonic clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["CutTimes", "OnCut", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a cut.

    Attributes:
        name: Phase, as in `spark_consumer.observe.figures.PHASES`.
        table: Table that is written (``schema.table``); empty for steps of all tables.
    """

    name: str
    table: str
    begun_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class CutTimes:
    """Times of one cut.

    Attributes:
        end_lsn: LSN of the cut.
        records: Number of records.
        steps: Steps in the order of their ends.
        error: Class of the error by which the attempt has failed; empty if the cut was reached.
    """

    end_lsn: int
    records: int
    begun_at: float
    ended_at: float
    steps: Sequence[Step]
    error: str = ""


OnCut = Callable[[CutTimes], None]
"""Receiver of the times of a cut; it raises nothing."""
