"""The compiled row path, where it was built: a route's rows in one call, in C.

It takes the changes that are as most changes are and gives the same records as
`gateway.routing.row.projection_route`, which is the reference and takes all others, one by one, in
any mixture. ``PGSLUICE_INTERPRETED=1`` leaves everything to the latter, and so does a machine on
which nothing could be compiled (``tools/build_rows.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from gateway._speedups.loader import load_compiled, why_switched_off
from gateway.copy import CopiedRow
from gateway.core.records import Record
from gateway.definitions.model import FilterClause, Operation
from gateway.envelope.encoding.varint import encode_text
from gateway.envelope.schema import AvroKind, Field, KeyKind
from gateway.pgoutput.messages import UNCHANGED
from gateway.routing.row.filters import Filters
from gateway.routing.row.projection_route import Group
from gateway.routing.row.record_buffer import PIECE_BYTES, PIECE_RECORDS, Piece
from gateway.routing.row.targets import Candidate, Candidates, Taker
from gateway.routing.row.transaction_state import TransactionState
from gateway.rowfilter import Condition, condition_of

__all__ = [
    "ROWS",
    "CompiledRows",
    "compile_rows",
    "why_interpreted",
    "why_not_built",
]

ROWS: Final = load_compiled("gateway._speedups._rows", interface=6)

_VALUES: Final = {
    AvroKind.BOOLEAN: "b",
    AvroKind.INT: "i",
    AvroKind.LONG: "i",
    AvroKind.FLOAT: "f",
    AvroKind.DOUBLE: "d",
    AvroKind.DECIMAL: "n",
    AvroKind.BYTES: "x",
    AvroKind.DATE: "a",
    AvroKind.TIMESTAMP: "t",
    AvroKind.TIMESTAMPTZ: "z",
    AvroKind.UUID: "s",
    AvroKind.STRING: "s",
}
_CANONICAL: Final = {
    700: "F",
    701: "F",
    1042: "B",
    1184: "z",
    1186: None,  # interval
    1700: "N",
    3802: None,  # jsonb
}
"""By type OID, how a key's column is made canonical; None: not in C. All others are as they are."""

_ROW_ONLY: Final = b"\x00\x02"
"""With what an envelope begins that has no old row and a new one."""

_CField: TypeAlias = tuple[int, int, int, bool]


def why_interpreted() -> str | None:
    """Say why rows are not routed in C; None: they are."""
    return why_switched_off() or why_not_built()


def why_not_built() -> str | None:
    """Say why there is nothing that could be switched off; None: there is."""
    return ROWS if isinstance(ROWS, str) else None


class CompiledRows:
    """The rows of one announced relation, in C.

    Attributes:
        rows: What `gateway.routing.short_transactions` takes its transactions' rows with.
    """

    __slots__ = ("_copy", "_groups", "_orders", "_run", "rows")

    def __init__(self, rows: Any, groups: Sequence[Group]) -> None:
        self.rows = rows
        self._run = rows.run
        self._copy = rows.copy
        self._groups = groups
        self._orders = list({id(group.order): group.order for group in groups}.values())

    def run(
        self,
        frames: Sequence[bytes],
        place: int,
        at: int,
        tx: TransactionState,
        piece: Piece,
    ) -> int:
        """Route the frames from `place` on, up to the first that is left to the interpreted path.

        It stops earlier behind the frame that fills the piece.

        Args:
            frames: A list.
            place: Of a change.
            at: Where the relation's OID stands in a frame.
            tx: The transaction.
            piece: Where records are appended; has just been found not to be full.

        Returns:
            The place of the first frame that was not routed.
        """
        for order in self._orders:
            order.enter(tx)
        counts = tuple([group.order.count for group in self._groups])
        reached: int
        reached, tx.seq = self._run(
            *(frames, place, at, tx.shared, tx.seq, tx.total_order, counts),
            *(PIECE_RECORDS, PIECE_BYTES - piece.size, piece.records, tx.touched),
        )
        routed = reached - place
        tx.total_order += routed
        for order in self._orders:
            order.count += routed
        return reached

    def count(self, changes: int) -> None:
        """Count changes of transactions that have ended."""
        for order in self._orders:
            order.add(changes)

    def copy(
        self,
        rows: list[CopiedRow],
        lsn: int,
        tx: TransactionState,
        out: list[Record],
        interpret: Callable[[CopiedRow], None],
    ) -> None:
        """Make the records of rows of a copy: lines here, all else by `interpret`, in order.

        Args:
            rows: Of the columns that this was made for.
            lsn: Their position.
            tx: Made for them.
            out: Where records are appended.
            interpret: Takes a row on the interpreted path.
        """
        # Behind the row itself, all values are the same, and so are the headers.
        headers = tx.headers.make(lsn, tx.seq, tx.insert_op)
        tails = tuple(
            group.encoder.value(
                tx.insert_op, None, b"", group.prefix(tx), lsn, tx.seq, tx.total_order, 0
            )[len(_ROW_ONLY) :]
            for group in self._groups
        )
        place = 0
        while (place := self._copy(rows, place, tails, headers, out, tx.touched)) < len(rows):
            interpret(rows[place])
            place += 1


def compile_rows(
    relation_oid: int,
    names: Sequence[str],
    groups: Sequence[Group],
    filters: Filters,
) -> CompiledRows | None:
    """Prepare a relation's rows; None where they are left to the interpreted path.

    Args:
        relation_oid: As its changes name it.
        names: The columns of its tuples, or of the rows that are copied.
        groups: The forms in which the rows are published.
        filters: Those of the plan.
    """
    if why_interpreted() is not None or isinstance(ROWS, str):
        return None
    decisions = [_Decisions(group, names, filters) for group in groups]
    specified = [_group(group, decided) for group, decided in zip(groups, decisions, strict=True)]
    if None in specified:
        return None
    is_read = bytes(any(name in decided.read for decided in decisions) for name in names)
    # What is published as another table is numbered there, with that one's other parts.
    is_alone = all(group.target_oid == relation_oid for group in groups)
    rows = ROWS.Rows(relation_oid, len(names), is_alone, UNCHANGED, is_read, tuple(specified))
    return CompiledRows(rows, groups)


class _Decisions:
    """Who takes a row of a group, with the takers and the conditions by their numbers.

    Attributes:
        conditions: Of the filters that are tables for C; all others stay functions.
        read: The columns that the functions look at.
    """

    def __init__(self, group: Group, names: Sequence[str], filters: Filters) -> None:
        self.conditions: list[Condition] = []
        self.read: set[str] = set()
        self._numbers: dict[tuple[FilterClause, ...], int] = {}
        self._names = names
        self._filters = filters
        self._takers = {id(taker): number for number, taker in enumerate(group.takers)}
        self.specified = tuple(
            self._specify(candidates, operation)
            for candidates, operation in (
                (group.inserting, Operation.INSERT),
                (group.updating, Operation.UPDATE),
                (group.deleting, Operation.DELETE),
            )
        )

    def _specify(self, candidates: Candidates, operation: Operation) -> tuple[object, ...]:
        def decisions(among: Sequence[Candidate]) -> tuple[object, ...]:
            return tuple(
                (self._takers[id(taker)], self._condition(taker, operation), passes)
                for taker, passes in among
            )

        return (
            decisions(candidates.everyone),
            decisions(candidates.others),
            tuple(
                (index, {text: decisions(found) for text, found in entries.items()})
                for index, entries in candidates.indexed
            ),
        )

    def _condition(self, taker: Taker, operation: Operation) -> int:
        """The number of the taker's condition; -1: a function decides, or nothing does."""
        clauses = tuple(taker.filters.get(operation, ()))
        found = [self._filters.of(clause) for clause in clauses]
        if found and taker.refused is None:
            if clauses not in self._numbers:
                condition = condition_of(found, self._names)
                self._numbers[clauses] = -1 if condition is None else len(self.conditions)
                self.conditions += () if condition is None else (condition,)
            if (number := self._numbers[clauses]) >= 0:
                return number
        self.read.update(*(row_filter.columns for row_filter in found))
        return -1


def _group(group: Group, decisions: _Decisions) -> tuple[object, ...] | None:
    encoder = group.encoder
    schema, position = (
        encoder.schema,
        dict(zip(encoder.schema.fields, encoder.indexes, strict=True)),
    )
    canonical: tuple[_CField, ...] | None = None
    if group.canonical is not None:
        codes = [_CANONICAL.get(field.base_type_oid, "s") for field in schema.key_fields]
        if None in codes:
            return None
        canonical = tuple(
            (ord(code), position[field], 0, True)
            for field, code in zip(schema.key_fields, codes, strict=True)
            if code is not None
        )

    def field(described: Field) -> _CField:
        is_identity = described.column in encoder.identity
        return ord(_VALUES[described.kind]), position[described], described.scale, is_identity

    return (
        tuple(field(described) for described in schema.fields),
        tuple(encode_text(described.name) for described in schema.fields),
        None
        if schema.key_kind is KeyKind.NONE
        else tuple(field(described) for described in schema.key_fields),
        schema.key_kind is KeyKind.WHOLE_ROW,
        canonical,
        encoder.table_part,
        group.surely_fits,
        group.tombstones and encoder.has_tombstones,
        tuple(
            (
                taker.topic,
                taker.counter.partitions,
                taker.key_prefix,
                taker.value_prefix,
                taker.counter,
                taker.skips_origins,
                taker.counter.feed,
                taker.counter.number,
            )
            for taker in group.takers
        ),
        tuple(decisions.conditions),
        decisions.specified,
    )
