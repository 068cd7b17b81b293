"""A table while it is compared: rows as they were read, differences, and keys to read again."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.types import StructType

from gateway.commands.verify.compared_tables import ComparedTable
from gateway.commands.verify.source import SourceTable, Wanted
from gateway.copy import Snapshot
from gateway.envelope.masking import RowMask
from gateway.observe import event
from spark_consumer.states.manifests import TableState
from spark_consumer.verify.compare import Difference
from spark_consumer.verify.spool import Spool
from spark_consumer.verify.text import Row, mark, plain_text, value_text

__all__ = ["ComparedRows"]

_LOG: Final = logging.getLogger(__name__)
_TELL_S: Final = 5.0
"""Seconds between two log lines about one table."""
_ROWS_A_LOOK: Final = 1000


@dataclass(slots=True)
class ComparedRows:
    """A table while it is compared: rows of the source, and what is left to read again.

    Attributes:
        begin: State from which on changes are read.
        snapshot: Snapshot under which all rows of the spool were read; None if each chunk had one.
        again: Rows by key that were read later, under the snapshot of the round.
        suspects: Keys that are to be read again.
        fault: Reason for which the last round has no result.
        damaged: Whether its topic has records of another writer: no round has a result.
        unsettled: Whether its rows moved at the state that was compared last.
        pending: Keys that have differed, or were unknown, in every comparison so far; None before
            the first one in which all of them are known. Only for a table whose rows move.
        masked: Mask of the rows of the source, or None.
    """

    compared: ComparedTable
    columns: StructType
    begin: TableState
    spool: Spool
    snapshot: Snapshot | None = None
    again: dict[Row, Row | None] = field(default_factory=dict)
    suspects: set[Row] = field(default_factory=set)
    difference: Difference | None = None
    fault: str | None = None
    damaged: bool = False
    unsettled: bool = False
    pending: set[Row] | None = None
    masked: RowMask | None = field(init=False)

    def __post_init__(self) -> None:
        self.masked = self.compared.mask(self.columns.names)

    @property
    def name(self) -> str:
        """Name of the table, as manifests have it."""
        return self.compared.name

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the key; empty if the whole row is one."""
        return self.compared.key

    @property
    def settled(self) -> bool:
        """Whether nothing is left to read again."""
        if self.damaged:
            return True
        if self.compared.moves:
            # What moves later differs later: each row was as it should be at one state or another.
            return self.fault is None and self.pending == set()
        return self.fault is None and not self.suspects and not self.difference

    def note_compared(self, opened: set[Row]) -> None:
        """Note which rows are to be read again after a comparison; `opened` ones are unknown."""
        assert self.difference is not None
        found = {*opened, *self.difference.keys()}
        if not self.compared.moves:
            self.suspects = found if self.key else set()
            return
        self.suspects |= found
        if not self.difference.more:
            self.pending = found if self.pending is None else self.pending & found

    def differing(self) -> set[Row] | None:
        """Return the differing keys if nothing else is open; None without any."""
        if self.fault is not None or not self.difference or self.unsettled:
            return None
        if self.compared.moves:
            return self.pending
        keys = self.difference.keys()
        return keys if self.suspects <= keys else None

    @property
    def is_open(self) -> bool:
        """Whether rows are left to read again."""
        return bool(self.pending if self.compared.moves else self.suspects)

    def shown_difference(self) -> Difference | None:
        """Return the difference that counts: without the rows that have moved since."""
        if self.difference is None or self.pending is None:
            return self.difference
        return self.difference.of(self.pending)

    def source(self) -> SourceTable:
        """Return what to read of the source."""
        compared = self.compared
        return SourceTable(
            compared.table, compared.filters, tuple(self.columns.names), compared.key
        )

    def fill(self, rows: Iterable[Sequence[bytes | None]]) -> None:
        """Put all rows of the source into the spool."""
        self.spool.clear()
        next_time = time.monotonic() + _TELL_S
        for number, row in enumerate(self.marked(rows), 1):
            self.spool.append(row)
            if number % _ROWS_A_LOOK == 0 and time.monotonic() >= next_time:
                event(_LOG, logging.INFO, "reading", table=self.name, rows=number)
                next_time = time.monotonic() + _TELL_S

    def marked(self, rows: Iterable[Sequence[bytes | None]]) -> Iterator[Row]:
        """Yield rows of the source as they are compared: masked, and each value as its mark."""
        kinds = [field.dataType for field in self.columns.fields]
        keys = [name in self.key for name in self.columns.names]
        for row in rows:
            shown = row if self.masked is None else self.masked(row)
            yield tuple(
                mark(value_text(value.decode(), kind), key=key)
                if isinstance(value, bytes)
                else None
                for value, kind, key in zip(shown, kinds, keys, strict=True)
            )

    def key_of(self, row: Row) -> Row:
        """Return the key of a row."""
        return tuple(row[self.columns.names.index(name)] for name in self.key)

    def wanted(self, keys: Collection[Row]) -> Wanted:
        """Return which rows to read again: keys as PostgreSQL reads them, or a look at all rows."""
        if self.compared.has_masked_key and keys:
            sought = frozenset(keys)
            return lambda row: self.key_of(*self.marked([row])) in sought
        return self.plain(keys)

    def plain(self, keys: Iterable[Row]) -> list[list[str]]:
        """Return keys as PostgreSQL reads them."""
        kinds = [self.columns[name].dataType for name in self.key]
        return [
            [plain_text((value or "=")[1:], kind) for value, kind in zip(one, kinds, strict=True)]
            for one in keys
        ]
