"""Queries of a Delta table's log, through private classes or the public interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pyspark.sql.types import StructField

__all__ = ["HARMLESS", "Log"]

HARMLESS: Final = frozenset(
    {
        "OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES",
        "CHANGE COLUMN", "CHANGE COLUMNS", "UPGRADE PROTOCOL", "REORG", "CLUSTER BY",
        "COMPUTE STATS", "CREATE TABLE", "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL",
        "ADD CONSTRAINT", "DROP CONSTRAINT", "DROP FEATURE", "DOMAIN METADATA CLEANUP",
        "OPTIMIZE CHECKPOINT", "REMOVE COLUMN MAPPING", "REORG TABLE UPGRADE UNIFORM",
    }
)  # fmt: skip
"""Delta's names of operations by others that leave the rows as they are."""


class Log(Protocol):
    """The log of one table."""

    def version(self) -> int:
        """Return the version of the last commit; -1 if there is no table."""

    def fields(self) -> list[StructField]:
        """Return the table's columns."""

    def bytes(self) -> int | None:
        """Return the size of the table's files; None if that is not at hand."""

    def files(self) -> int | None:
        """Return the number of the table's files; None if that is not at hand."""

    def property(self, name: str) -> str | None:
        """Return a table property; None if it is not set."""

    def commits(self, newest: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield versions and the info of their commits, from `newest` back as far as the log goes.

        Raises:
            TableTransientError: the log cannot be read.
        """

    def greatest(self, names: Sequence[str]) -> dict[str, int]:
        """Return the greatest value by integer column, where statistics of all files have it."""
