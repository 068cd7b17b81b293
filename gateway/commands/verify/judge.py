"""Comparison of one subscription's tables with other rows; see the package's docstring."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.commands.verify.compared_rows import ComparedRows
from gateway.commands.verify.compared_tables import ComparedTable
from gateway.commands.verify.native import NativeReader
from gateway.commands.verify.source import SourceReader
from gateway.copy import Snapshot
from gateway.core.lsn import Lsn, format_lsn
from gateway.observe import event
from spark_consumer.errors import ContractError
from spark_consumer.states.manifests import Manifest
from spark_consumer.verify.compare import compare, settle
from spark_consumer.verify.rebuilt import RebuiltTables
from spark_consumer.verify.replay import Change
from spark_consumer.verify.spool import Spool
from spark_consumer.verify.text import Row
from spark_consumer.verify.window import DisturbedError

__all__ = ["Comparison", "against_native", "against_source"]

_LOG: Final = logging.getLogger(__name__)
_ROUNDS: Final = 4
_SETTLED_S: Final = 60.0
"""Longest wait of a round for a state at which no row moves."""
_POLL_S: Final = 0.2
_NO_TRANSACTION: Final = 0
"""``xid`` of a change whose row was read from the source: it has that of no transaction."""

Moving: TypeAlias = Callable[[int, Collection[str]], Collection[str]]
"""Offset of a marker, and tables -> those whose rows move there."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of the comparison of a table.

    Attributes:
        name: ``schema.table``.
        equal: Whether it was compared without a difference.
        lines: Lines to print.
    """

    name: str
    equal: bool
    lines: tuple[str, ...]


def against_source(
    reader: SourceReader,
    rebuilt: RebuiltTables,
    listed: Sequence[ComparedTable],
    moving: Moving,
) -> tuple[Manifest, list[Comparison]]:
    """Compare tables with the source, at the state that is returned.

    Args:
        reader: Reader of the source.
        rebuilt: The rebuilt tables.
        listed: Tables to compare.
        moving: Returns those of some tables whose rows move at a marker.

    Raises:
        GatewayError: the source cannot be read.
        ConsumerError: the tables, or their topics, cannot.
    """
    with ExitStack() as stack:
        manifest = _reached(rebuilt, reader.position())
        tables, comparisons = _begun(rebuilt, manifest, listed, stack)
        for number, table in enumerate(tables, 1):
            _tell("reading the source", table, number, len(tables))
            _read(reader, table)
        for number in range(1, _ROUNDS + 1 if tables else 0):
            before = [table.differing() for table in tables]
            manifest = _round(reader, rebuilt, tables, moving)
            # A difference that is the same twice is real.
            same = [
                keys is not None and table.differing() == keys
                for table, keys in zip(tables, before, strict=True)
            ]
            if all(one.settled or again for one, again in zip(tables, same, strict=True)):
                break
            if number < _ROUNDS:
                _LOG.info("looking again: %s", "; ".join(_unsettled(tables)))
        return manifest, _judged(tables, comparisons)


def _reached(rebuilt: RebuiltTables, lsn: Lsn) -> Manifest:
    event(_LOG, logging.INFO, "waiting for the tables", until=format_lsn(lsn))
    return rebuilt.now(lsn)


def _settled(
    rebuilt: RebuiltTables, lsn: Lsn, tables: Sequence[ComparedRows], moving: Moving
) -> Manifest:
    """Return a state at or beyond an LSN at which no row moves, if there is one in time."""
    manifest = _reached(rebuilt, lsn)
    names = [table.name for table in tables if table.compared.moves]
    until = time.monotonic() + _SETTLED_S
    while (found := moving(manifest.marker, names)) and time.monotonic() < until:
        time.sleep(_POLL_S)
        manifest = rebuilt.now(lsn)
    for table in tables:
        table.unsettled = table.name in found
    return manifest


def _tell(doing: str, table: ComparedRows, number: int, total: int) -> None:
    event(_LOG, logging.INFO, doing, table=table.name, number=number, of=total)


def _unsettled(tables: Iterable[ComparedRows]) -> Iterator[str]:
    for table in tables:
        if not table.settled:
            differing = len(table.difference.keys()) if table.difference else 0
            keys = f"{len(table.suspects)} keys, {differing} of them differ"
            yield f"{table.name} ({table.fault or keys})"


def _begun(
    rebuilt: RebuiltTables, manifest: Manifest, listed: Sequence[ComparedTable], stack: ExitStack
) -> tuple[list[ComparedRows], list[Comparison]]:
    tables: list[ComparedRows] = []
    comparisons: list[Comparison] = []
    for compared in listed:
        state = manifest.tables.get(compared.name)
        reason = None
        if compared.name in manifest.held_by_job:
            reason = f"held by the job: {manifest.held_by_job[compared.name].reason}"
        elif manifest.copies.get(compared.name, "ready") != "ready":
            reason = f"its copy is {manifest.copies[compared.name]}"
        elif state is None:
            reason = "there is no such table in the warehouse"
        if reason or state is None:
            comparisons.append(Comparison(compared.name, False, (str(reason),)))
            continue
        columns = rebuilt.read(compared.name, state).schema
        if sorted(columns.names) != sorted(compared.columns):
            there, wanted = ", ".join(columns.names), ", ".join(compared.columns)
            line = f"different: it has the columns ({there}) instead of ({wanted})"
            comparisons.append(Comparison(compared.name, False, (line,)))
            continue
        spool = stack.enter_context(Spool())
        tables.append(ComparedRows(compared, columns, state, spool))
    return tables, comparisons


def _read(reader: SourceReader, table: ComparedRows) -> None:
    """Read all rows of a table from the source."""
    if table.key:
        table.fill(reader.rows(table.source()))
    else:
        table.snapshot, rows = reader.snapshot_rows(table.source())
        table.fill(rows)


def _round(
    reader: SourceReader, rebuilt: RebuiltTables, tables: Sequence[ComparedRows], moving: Moving
) -> Manifest:
    """Bring all tables to one state, and compare them; return that state."""
    tables = [table for table in tables if not table.damaged]
    for table in tables:
        again = table.fault is not None or (table.difference and not table.key)
        if again:
            # Its disturbance is before this state.
            table.begin = _reached(rebuilt, reader.position()).tables[table.name]
            table.suspects.clear()
            table.pending = table.fault = None
            _read(reader, table)
    first = _reached(rebuilt, reader.position())
    for number, table in enumerate(tables, 1):
        _tell("reading what changed meanwhile", table, number, len(tables))
        with _noting(table, first):
            state = first.tables[table.name]
            window = rebuilt.window(table.name, table.begin, state, table.columns, table.key)
            table.suspects |= window.keys() if table.key else set()
    wanted = [(table, sorted(table.suspects, key=repr)) for table in tables if table.key]
    snapshot, found = reader.keyed_rows(
        (table.source(), table.wanted(keys)) for table, keys in wanted
    )
    for (table, keys), rows in zip(wanted, found, strict=True):
        table.again = dict.fromkeys(keys)
        table.again |= {table.key_of(row): row for row in table.marked(rows)}
    position = reader.position()
    last = _settled(rebuilt, position, tables, moving)
    for number, table in enumerate(tables, 1):
        if table.fault is None:
            _tell("comparing", table, number, len(tables))
            with _noting(table, last):
                _compare(table, rebuilt, snapshot, position, first, last)
    return last


@contextmanager
def _noting(table: ComparedRows, manifest: Manifest) -> Iterator[None]:
    """Record what keeps a table from being compared."""
    try:
        if table.name in manifest.held_by_job:
            raise DisturbedError(f"held by the job: {manifest.held_by_job[table.name].reason}")
        yield
    except DisturbedError as error:
        table.fault = error.message
    except ContractError as error:
        table.fault, table.damaged = error.message, True


def _compare(
    table: ComparedRows,
    rebuilt: RebuiltTables,
    snapshot: Snapshot,
    position: Lsn,
    first: Manifest,
    last: Manifest,
) -> None:
    """Compare a table at the state `last`; what `snapshot` sees was committed before `position`."""
    end = last.tables[table.name]
    window = rebuilt.window(table.name, table.begin, end, table.columns, table.key)
    if table.key:
        reached = rebuilt.table(table.name).position_at(first.tables[table.name].version)
        running = snapshot.running
        changes = window.changes(None if running is None else reached, running or ())
    else:
        changes = window.changes()

    def sees(key: Row, change: Change) -> bool:
        if table.snapshot is not None:
            return table.snapshot.sees(change.xid)
        # A key that was not read again is as it was at the state before, and `changes` begin there.
        if change.xid == _NO_TRANSACTION:
            return key in table.again and change.commit_lsn < position
        return key in table.again and snapshot.sees(change.xid)

    expected, opened = settle(
        table.columns.names, table.key, table.spool, table.again, changes, sees
    )
    frame = rebuilt.read(table.name, end)
    if frame.columns != table.columns.names:
        raise DisturbedError("its columns changed meanwhile")
    with rebuilt.tuned(table.name):
        table.difference = compare(frame, expected)
    table.note_compared(opened)


def against_native(
    reader: NativeReader, rebuilt: RebuiltTables, listed: Sequence[ComparedTable]
) -> tuple[Manifest, list[Comparison]]:
    """Compare tables with those of a native subscriber, at the state that is returned.

    Raises:
        GatewayError: the subscriber cannot be read.
        ConsumerError: the tables, or their topics, cannot.
    """
    for number in range(1, _ROUNDS + 1):
        manifest, tables, comparisons = _native_round(reader, rebuilt, listed)
        if number == _ROUNDS or all(table.settled for table in tables):
            break
    return manifest, _judged(tables, comparisons)


def _native_round(
    reader: NativeReader, rebuilt: RebuiltTables, listed: Sequence[ComparedTable]
) -> tuple[Manifest, list[ComparedRows], list[Comparison]]:
    with ExitStack() as stack:
        position = reader.open()
        tables, comparisons = _begun(rebuilt, rebuilt.before(position), listed, stack)
        for number, table in enumerate(tables, 1):
            _tell("reading the native subscriber", table, number, len(tables))
            source = table.compared.table
            table.fill(reader.rows(source.schema, source.name, table.columns.names))
        last = _reached(rebuilt, position)
        for number, table in enumerate(tables, 1):
            _tell("comparing", table, number, len(tables))
            with _noting(table, last):
                _compare_native(table, rebuilt, position, last)
        return last, tables, comparisons


def _compare_native(
    table: ComparedRows, rebuilt: RebuiltTables, position: Lsn, last: Manifest
) -> None:
    end = last.tables[table.name]
    window = rebuilt.window(table.name, table.begin, end, table.columns, table.key)
    changes = [change for change in window.changes() if change.commit_lsn >= position]
    expected, _ = settle(
        table.columns.names, table.key, table.spool, {}, changes, lambda key, change: False
    )
    with rebuilt.tuned(table.name):
        table.difference = compare(rebuilt.read(table.name, end), expected)


def _judged(tables: Iterable[ComparedRows], comparisons: Iterable[Comparison]) -> list[Comparison]:
    found = list(comparisons)
    for table in tables:
        difference = table.shown_difference()
        if table.fault is not None:
            lines = [f"not compared: {table.fault}"]
        elif difference is None or (table.is_open and not difference):
            lines = ["not compared: rows kept changing while they were read"]
        elif difference:
            lines = [f"different: {difference.rows} rows instead of {difference.expected}"]
            lines += difference.lines(table.columns, table.key)
            if table.unsettled:
                lines.append(
                    "  other tables select its rows: those that are being moved differ until "
                    "`pgsluice status` shows no move any more"
                )
        else:
            lines = [f"equal: {difference.rows} rows"]
        equal = difference is not None and table.settled and table.fault is None
        found.append(Comparison(table.name, equal, tuple(lines)))
    return sorted(found, key=lambda comparison: comparison.name)
