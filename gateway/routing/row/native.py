"""Interface to the compiled row path, which routes many rows of a relation in one call of C.

It handles the common kinds of changes and yields the same records as
`gateway.routing.row.projection_route`, which is the reference and handles all other changes, one by
one, in any mixture. The latter routes everything with ``PGSLUICE_INTERPRETED=1``, or if the module
was not compiled (``tools/build_rows.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, Final

from gateway._speedups import layouts
from gateway._speedups.loader import load_compiled, why_switched_off
from gateway.copy import CopiedRow
from gateway.core.records import Record
from gateway.definitions.model import FilterClause, Operation
from gateway.envelope.encoding.varint import encode_text
from gateway.envelope.schema import Field, KeyKind
from gateway.pgoutput.messages import UNCHANGED
from gateway.routing.row.filters import Filters
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.record_buffer import PIECE_BYTES, PIECE_RECORDS, Piece
from gateway.routing.row.targets import Candidate, Candidates, MovingTargets, Passes, Target
from gateway.routing.row.transaction_state import TransactionState
from gateway.rowfilter import Condition, condition_of

__all__ = [
    "ROWS",
    "CompiledRows",
    "compile_rows",
    "why_interpreted",
    "why_not_built",
]

ROWS: Final = load_compiled("rows")

_ROW_ONLY: Final = b"\x00\x02"
"""First bytes of an envelope with a new row and no old row."""


def why_interpreted() -> str | None:
    """Return why rows are not routed in C; None if they are."""
    return why_switched_off() or why_not_built()


def why_not_built() -> str | None:
    """Return why the C module is missing; None if it was built."""
    return ROWS if isinstance(ROWS, str) else None


class CompiledRows:
    """Compiled path of the rows of one announced relation.

    Attributes:
        rows: C object with which `gateway.routing.short_transactions` routes the rows.
    """

    __slots__ = ("_copy", "_orders", "_routes", "_run", "rows")

    def __init__(self, rows: Any, projection_routes: Sequence[ProjectionRoute]) -> None:
        self.rows = rows
        self._run = rows.run
        self._copy = rows.copy
        self._routes = projection_routes
        self._orders = list({id(route.order): route.order for route in projection_routes}.values())

    def run(
        self,
        frames: Sequence[bytes],
        place: int,
        at: int,
        tx: TransactionState,
        piece: Piece,
    ) -> int:
        """Route the frames from `place` on, up to the first one left to the interpreted path.

        It stops earlier if the piece is full.

        Args:
            frames: List of frames.
            place: Index of a change.
            at: Offset of the relation's OID in a frame.
            tx: State of the transaction.
            piece: Piece that records are appended to; not full.

        Returns:
            Index of the first frame that was not routed.
        """
        for order in self._orders:
            order.enter(tx)
        counts = tuple([route.order.count for route in self._routes])
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
        """Count changes of finished transactions."""
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
        """Append the records of copied rows in order; rows that are not COPY lines by `interpret`.

        Args:
            rows: Rows with the columns of this path.
            lsn: Position of the rows.
            tx: State created for these rows.
            out: List that records are appended to.
            interpret: Interpreted path for one row.
        """
        # All copied rows share the part of the value after the row, and the headers.
        headers = tx.headers.make(lsn, tx.seq, tx.insert_op)
        tails = tuple(
            route.encoder.value(
                tx.insert_op, None, b"", route.prefix(tx), lsn, tx.seq, tx.total_order, 0
            )[len(_ROW_ONLY) :]
            for route in self._routes
        )
        place = 0
        while (place := self._copy(rows, place, tails, headers, out, tx.touched)) < len(rows):
            interpret(rows[place])
            place += 1


def compile_rows(
    relation_oid: int,
    names: Sequence[str],
    projection_routes: Sequence[ProjectionRoute],
    filters: Filters,
    looked_up: Mapping[int, MovingTargets] = MappingProxyType({}),
) -> CompiledRows | None:
    """Return the compiled path of a relation's rows; None if they are left to the interpreted path.

    Args:
        relation_oid: OID of the relation in its changes.
        names: Names of the columns of its tuples, or of the copied rows.
        projection_routes: Routes of each projection.
        filters: Row filters of the plan.
        looked_up: Targets whose filters have sub-selects, by the identity of their route.
    """
    if why_interpreted() is not None or isinstance(ROWS, str):
        return None
    decisions = [
        _Decisions(route, names, filters, looked_up.get(id(route))) for route in projection_routes
    ]
    specified = [
        _projection(ROWS, route, decided)
        for route, decided in zip(projection_routes, decisions, strict=True)
    ]
    if None in specified:
        return None
    is_read = bytes(any(name in decided.read for decided in decisions) for name in names)
    # The changes of a partition published as another table are numbered with those of that table.
    is_alone = all(route.target_oid == relation_oid for route in projection_routes)
    rows = ROWS.Rows(relation_oid, len(names), is_alone, UNCHANGED, is_read, tuple(specified))
    return CompiledRows(rows, projection_routes)


class _Decisions:
    """Candidates of a projection route, with targets and conditions replaced by their numbers.

    Attributes:
        conditions: Filters that C evaluates from tables; all others remain functions.
        read: Names of the columns that these functions read.
    """

    def __init__(
        self,
        route: ProjectionRoute,
        names: Sequence[str],
        filters: Filters,
        moving: MovingTargets | None,
    ) -> None:
        self.conditions: list[Condition] = []
        self.read: set[str] = set()
        others: tuple[layouts.Decision, ...] = ()
        indexes: tuple[layouts.Index, ...] = ()
        if moving is not None:
            self.read.update(moving.columns)
            numbers = {t.counter.subscription: n for n, t in enumerate(route.targets) if t.moves}
            others = _decisions(moving.others, numbers)
            indexes = tuple(
                layouts.Index(
                    index.column, {}, _decisions(index.subscriptions, numbers), index.lookup
                )
                for index in moving.indexes
            )
        self._moving = others, indexes
        self._numbers: dict[tuple[FilterClause, ...], int] = {}
        self._names = names
        self._filters = filters
        self._targets = {id(target): number for number, target in enumerate(route.targets)}
        self.specified = tuple(
            self._specify(candidates, operation)
            for candidates, operation in (
                (route.inserting, Operation.INSERT),
                (route.updating, Operation.UPDATE),
                (route.deleting, Operation.DELETE),
            )
        )

    def _specify(self, candidates: Candidates, operation: Operation) -> layouts.Candidates:
        def decisions(among: Sequence[Candidate]) -> tuple[layouts.Decision, ...]:
            return tuple(
                layouts.Decision(
                    self._targets[id(target)], self._condition(target, operation), passes
                )
                for target, passes in among
            )

        others, indexes = self._moving
        return layouts.Candidates(
            (*decisions(candidates.everyone), *others),
            (*decisions(candidates.others), *others),
            tuple(
                layouts.Index(index, {text: decisions(found) for text, found in entries.items()})
                for index, entries in candidates.indexed
            )
            + indexes,
        )

    def _condition(self, target: Target, operation: Operation) -> int:
        """Return the number of the target's condition; -1 if a function or nothing decides."""
        clauses = tuple(target.filters.get(operation, ()))
        filters = [self._filters.of(clause) for clause in clauses]
        if filters and target.refused is None:
            if clauses not in self._numbers:
                condition = condition_of(filters, self._names)
                self._numbers[clauses] = -1 if condition is None else len(self.conditions)
                self.conditions += () if condition is None else (condition,)
            if (number := self._numbers[clauses]) >= 0:
                return number
        self.read.update(*(row_filter.columns for row_filter in filters))
        return -1


def _decisions(
    subscriptions: Sequence[tuple[str, Passes | None]], numbers: Mapping[str, int]
) -> tuple[layouts.Decision, ...]:
    return tuple(layouts.Decision(numbers[name], -1, passes) for name, passes in subscriptions)


def _projection(
    compiled: ModuleType, route: ProjectionRoute, decisions: _Decisions
) -> layouts.Projection | None:
    """Return the route as C reads it.

    None if C lacks a conversion, a canonical form, a mask or the format.
    """
    encoder = route.encoder
    if route.mask is not None or encoder.envelope.format == "row":
        return None
    schema, position = (
        encoder.schema,
        {f.name: index for f, index in zip(encoder.schema.fields, encoder.indexes, strict=True)},
    )
    canonical: tuple[layouts.Field, ...] | None = None
    if any(_scalar(field).type.conversion not in compiled.CONVERSIONS for field in schema.fields):
        return None
    if route.canonical is not None:
        if any(field.type.key not in compiled.KEY_FORMS for field in schema.partition_fields):
            return None
        canonical = tuple(
            layouts.Field(
                compiled.KEY_FORMS[field.type.key], position[field.name], 0, True, False, False, b""
            )
            for field in schema.partition_fields
        )

    unavailable = dict(zip(schema.fields, encoder.unavailable, strict=True))

    def field(described: Field) -> layouts.Field:
        scalar = _scalar(described)
        return layouts.Field(
            code=compiled.CONVERSIONS[scalar.type.conversion],
            column=position[described.name],
            scale=scalar.scale,
            is_identity=described.column in encoder.identity,
            is_array=described.type.array,
            is_range=bool(described.type.bounds),
            unavailable=unavailable.get(described, b""),
        )

    key: tuple[layouts.Field, ...] | None = None
    if schema.key_kind is not KeyKind.NONE:
        key = tuple(field(described) for described in schema.key_fields)
    place: tuple[layouts.Field, ...] | None = None
    if schema.place_fields != schema.key_fields:
        place = tuple(field(described) for described in schema.place_fields)
    inserting, updating, deleting = decisions.specified
    return layouts.Projection(
        row=tuple(field(described) for described in schema.fields),
        names=tuple(encode_text(described.name) for described in schema.fields),
        key=key,
        key_is_union=schema.has_nullable_key,
        place=place,
        needs_full=encoder.needs_full,
        names_keys=route.names_keys,
        canonical=canonical,
        table_part=encoder.table_part,
        surely_fits=route.surely_fits,
        tombstones=route.tombstones and encoder.has_tombstones,
        targets=tuple(map(_target, route.targets)),
        conditions=tuple(decisions.conditions),
        inserting=inserting,
        updating=updating,
        deleting=deleting,
    )


def _scalar(field: Field) -> Field:
    """Return what has the conversion: the items of an array, the bounds of a range.

    C has no conversion of ranges as items, in arrays or in multiranges.
    """
    return field if field.item is None else field.item


def _target(target: Target) -> layouts.Target:
    counter = target.counter
    return layouts.Target(
        topic=target.topic,
        partitions=counter.partitions,
        key_prefix=target.key_prefix,
        value_prefix=target.value_prefix,
        counter=counter,
        skips_origins=target.skips_origins,
        feed=counter.feed,
        number=counter.number,
    )
