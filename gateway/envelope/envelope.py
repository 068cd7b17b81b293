"""The value of a record: constant parts encoded once, the rest joined to them.

The record ``Source`` is ordered by how often its fields change: first those of the gateway, then
those of the table, of the transaction, of the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, Final, Literal, TypeAlias

from gateway.definitions.tables.keys import KeyColumns
from gateway.envelope.encoding.conversions import EPOCH_SHIFT_US, value_encoder
from gateway.envelope.encoding.encoders import (
    EMPTY_ARRAY,
    RowEncoder,
    compile_canonical_key,
    compile_key_encoder,
    compile_old_encoder,
    compile_place_encoder,
    compile_row_encoder,
    compile_unchanged_encoder,
)
from gateway.envelope.encoding.varint import PIECES, TAILS, encode_long, encode_text
from gateway.envelope.schema import ColumnLike, Field, KeyKind, describe
from gateway.envelope.value_schemas import SOURCE_NULLS
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from schemas.settings.tables import ChosenColumns, Envelope, TypesTable

__all__ = [
    "CONNECTOR",
    "EMPTY_ARRAY",
    "EnvelopeEncoder",
    "RowFormatEncoder",
    "Snapshot",
    "SourcePrefix",
    "TransactionContext",
    "package_version",
    "unavailable_text",
    "wire_prefix",
]

CONNECTOR: Final = "postgresql"
"""``source.connector``, as Debezium names it."""

Snapshot: TypeAlias = Literal["false", "true", "first"]

SourcePrefix: TypeAlias = tuple[bytes, bytes | None, bytes]
"""``source`` until ``origin``; ``transaction.id`` after its branch index, or None; ``ts_ms``."""

_Encoded: TypeAlias = tuple[bytes, bytes, bytes | None, bytes]
"""``source`` before and after the table, ``transaction.id`` or None, ``ts_ms``."""

_TYPES: Final = TypesTable()
_ENVELOPE: Final = Envelope()
_CHOSEN: Final = ChosenColumns()
_UNAVAILABLE: Final = b"__debezium_unavailable_value"
"""Text that Debezium writes in place of a large value that did not change."""
_UNAVAILABLE_UUID: Final = b"b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The same for the items of ``uuid[]``: UUID.nameUUIDFromBytes of that text."""
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_FALSE: Final = b"\x00"
_TRUE: Final = b"\x01"
_OPS: Final = {op: encode_text(op.decode()) for op in (b"c", b"u", b"d", b"t", b"r")}


@cache
def package_version() -> str:
    """Return the installed package's version, for ``source.version``."""
    return version("pgsluice")


def wire_prefix(schema_id: int) -> bytes:
    """Return the five bytes that Confluent's wire format puts before Avro."""
    return b"\x00" + schema_id.to_bytes(4, "big")


@cache
def gateway_part(version_: str, gateway: str, db: str) -> bytes:
    """Encode the fields of ``source`` that describe the gateway."""
    return b"".join(map(encode_text, (version_, CONNECTOR, gateway, db)))


@dataclass(slots=True)
class TransactionContext:
    """Fields that all records of a transaction share. Not to be changed: see `Transaction`.

    Attributes:
        gateway: Name of the gateway (``source.name``).
        db: The source database.
        version: Version of this package.
        xid: None for records of a snapshot: then ``transaction`` and ``txId`` are null.
        commit_lsn: LSN of the commit record; for a snapshot its consistent point.
        commit_time: Microseconds since 2000-01-01 00:00 UTC; for a snapshot its time.
        origin: Name of the replication origin, or None.
        snapshot: ``true`` for the records of an initial copy, ``first`` for its ``t`` record.
        ts_ms: Time at which the gateway processed it, in milliseconds since 1970-01-01 00:00 UTC.
    """

    gateway: str
    db: str
    version: str
    xid: int | None
    commit_lsn: int
    commit_time: int
    origin: str | None
    snapshot: Snapshot
    ts_ms: int
    _encoded: _Encoded | None = field(init=False, default=None, repr=False, compare=False)

    @property
    def gateway_part(self) -> bytes:
        """Encoded fields of ``source`` that describe the gateway."""
        return gateway_part(self.version, self.gateway, self.db)

    @property
    def commit_ms(self) -> int:
        """Commit time, in milliseconds since 1970-01-01 00:00 UTC."""
        return (self.commit_time + EPOCH_SHIFT_US) // 1000

    @property
    def encoded(self) -> _Encoded:
        """Encoded fields of all records: encoded once, as a transaction may touch many tables."""
        if self._encoded is None:
            self._encoded = self._encode()
        return self._encoded

    def _encode(self) -> _Encoded:
        xid, transaction_id = _NULL, None
        if self.xid is not None:
            xid = _PRESENT + encode_long(self.xid)
            transaction_id = _PRESENT + encode_text(f"{self.xid}:{self.commit_lsn}")
        part = b"".join(
            (
                encode_long(self.commit_ms),
                encode_text(self.snapshot),
                encode_long(self.commit_lsn),
                xid,
                _NULL if self.origin is None else _PRESENT + encode_text(self.origin),
            )
        )
        return self.gateway_part, part, transaction_id, _PRESENT + encode_long(self.ts_ms)


class EnvelopeEncoder:
    """Encoders from the tuples of one relation to keys and values of one table.

    There is one for each published table, column list and layout of tuples.

    Args:
        table_schema: Schema of the table under which the rows are published.
        table_name: Name of that table.
        columns: Published columns of that table, in its order.
        key: Names of the columns that identify a row, ``()`` for the whole row, None for none.
        identity: Names of the replica identity's columns, for `encode_old`.
        replica_identity: ``d``, ``n``, ``f`` or ``i``: ``source.identity``.
        indexes: For each of `columns`, its position in the tuples.
        types: See `gateway.envelope.schema.describe`.
        envelope: Format of the values.
        chosen: Columns chosen for the record key and the partition.

    Attributes:
        envelope: Format of the values.
        schema: The table as Avro.
        value_schema: Schema to register for values.
        key_schema: Schema to register for keys, or None.
        has_tombstones: Whether a tombstone can follow a delete: columns of the key identify a row.
        needs_full: Whether key or partition of a changed row follow from its whole old row alone.
        encode_row: Tuple -> record ``Value``.
        encode_new: The same for the new row of an update, whose unchanged TOAST columns Debezium's
            consumers find as a text of its own, if they can hold one.
        encode_old: The same with the identity columns only.
        encode_key: Tuple -> record ``Key``, or None without a key.
        encode_place: Tuple -> bytes that are those of the old row unless an UPDATE moves the row
            to another identity, key or partition; None where none can.
        canonical_key: Tuple -> canonical form of the columns that choose the partition, or None
            without such.
        encode_unchanged: Tuple -> Avro array of the names of unchanged TOAST columns.
        identity: Names of the replica identity's columns.
        indexes: For each field, the position of its column in the tuples.
        table_part: Encoded fields of ``source`` that describe the table.
        unavailable: For each field, its value in `encode_new` where the column is unchanged, with
            the branch index.

    Raises:
        SchemaError: see `describe`.
    """

    __slots__ = (
        "_key",
        "canonical_key",
        "encode_key",
        "encode_new",
        "encode_old",
        "encode_place",
        "encode_row",
        "encode_unchanged",
        "envelope",
        "has_tombstones",
        "identity",
        "indexes",
        "key_schema",
        "needs_full",
        "schema",
        "table_part",
        "unavailable",
        "value_schema",
    )

    def __init__(
        self,
        table_schema: str,
        table_name: str,
        columns: Sequence[ColumnLike],
        *,
        key: KeyColumns,
        identity: Sequence[str],
        replica_identity: str,
        indexes: Sequence[int],
        types: TypesTable = _TYPES,
        envelope: Envelope = _ENVELOPE,
        chosen: ChosenColumns = _CHOSEN,
    ) -> None:
        schema = describe(
            *(table_schema, table_name, columns, key),
            types=types,
            envelope=envelope,
            chosen=chosen,
        )
        self.schema = schema
        self.envelope = envelope
        self.identity = frozenset(identity)
        self._key = frozenset(key or ())
        self.indexes = tuple(indexes)
        self.value_schema: dict[str, Any] = schema.value_schema
        self.key_schema = schema.key_schema
        self.has_tombstones = schema.key_kind is KeyKind.COLUMNS
        self.needs_full = not {*chosen.key, *chosen.partition} <= {*(key or ())}
        self.encode_row: RowEncoder = compile_row_encoder(schema, indexes)
        self.encode_old: RowEncoder = compile_old_encoder(schema, indexes, self.identity)
        self.encode_unchanged: RowEncoder = compile_unchanged_encoder(schema, indexes)
        self.encode_key: RowEncoder | None = None
        self.canonical_key: RowEncoder | None = None
        if schema.key_schema is not None:
            self.encode_key = compile_key_encoder(schema, indexes)
        if schema.partition_fields:
            self.canonical_key = compile_canonical_key(schema, indexes)
        self.encode_place: RowEncoder | None = self.encode_key
        if schema.place_fields != schema.key_fields:
            self.encode_place = compile_place_encoder(schema, indexes)
        nulls = SOURCE_NULLS if envelope.format == "debezium" else b""
        names = encode_text(table_schema) + encode_text(table_name)
        self.table_part = names + nulls + encode_text(replica_identity)
        plain = envelope.format == "pgsluice"
        texts = [None if plain else unavailable_text(field) for field in schema.fields]
        self.unavailable = tuple(
            _NULL if text is None else _PRESENT + value_encoder(field)(text)
            for field, text in zip(schema.fields, texts, strict=True)
        )
        self.encode_new = _with_texts(
            self.encode_row,
            [(i, text) for i, text in zip(indexes, texts, strict=True) if text is not None],
        )

    def compile_named(self) -> RowEncoder:
        """Compile tuple -> record ``Value`` with the columns of the key only; the others are null.

        Only of tables with a key.
        """
        return compile_old_encoder(self.schema, self.indexes, self._key)

    def begin(self, context: TransactionContext) -> SourcePrefix:
        """Return the encoded fields that this table's records of one transaction share."""
        gateway, transaction, transaction_id, processed = context.encoded
        return gateway + self.table_part + transaction, transaction_id, processed

    def value(
        self,
        op: bytes,
        before: bytes | None,
        after: bytes | None,
        prefix: SourcePrefix,
        lsn: int,
        seq: int,
        total_order: int,
        data_collection_order: int,
        unchanged: bytes = EMPTY_ARRAY,
    ) -> bytes:
        """Assemble record ``Envelope``, without the wire format's prefix.

        Args:
            op: ``c``, ``u``, ``d``, ``t`` or ``r``.
            before: The old tuple as encoded by `encode_row` or `encode_old`, or None.
            after: The new tuple as encoded by `encode_row`, or None.
            prefix: Prefix of the transaction, from `begin`.
            lsn: LSN of the change.
            seq: Number of the change in its transaction.
            total_order: Number of changes of the transaction until this one, inclusive.
            data_collection_order: Number of those that concern this table.
            unchanged: Names of unchanged columns, from `encode_unchanged`.
        """
        source, transaction_id, processed = prefix
        if before is None:
            rows = b"\x00\x00" if after is None else b"\x00\x02" + after
        elif after is None:
            rows = b"\x02" + before + b"\x00"
        else:
            rows = b"\x02" + before + b"\x02" + after
        # Numbers of the usual size are looked up in place: a call costs more than the look-up.
        low, high = lsn << 1 & 0x3FFF, lsn >> 13
        if 0 < high < 0x1000_0000:
            position = PIECES[low] + (
                TAILS[high] if high < 0x4000 else PIECES[high & 0x3FFF] + TAILS[high >> 14]
            )
        else:
            position = encode_long(lsn)
        number = TAILS[seq << 1] if seq < 8192 else encode_long(seq)
        if transaction_id is None:
            return b"".join(
                (
                    rows,
                    source,
                    position,
                    number,
                    _NULL,
                    _OPS[op],
                    processed,
                    unchanged,
                )
            )
        return b"".join(
            (
                rows,
                source,
                position,
                number,
                transaction_id,
                TAILS[total_order << 1] if total_order < 8192 else encode_long(total_order),
                TAILS[data_collection_order << 1]
                if data_collection_order < 8192
                else encode_long(data_collection_order),
                _OPS[op],
                processed,
                unchanged,
            )
        )


class RowFormatEncoder(EnvelopeEncoder):
    """Encoder of the format ``row``: the row after the change, or, deleted, the one before."""

    __slots__ = ()

    def value(
        self,
        op: bytes,
        before: bytes | None,
        after: bytes | None,
        prefix: SourcePrefix,
        lsn: int,
        seq: int,
        total_order: int,
        data_collection_order: int,
        unchanged: bytes = EMPTY_ARRAY,
    ) -> bytes:
        """Assemble record ``Row``, without the wire format's prefix. See the base class."""
        row = before if after is None else after
        assert row is not None  # the format has no truncates
        is_deleted = _FALSE if after is not None else _TRUE
        return row + _OPS[op] + encode_long(lsn) + is_deleted + unchanged


def unavailable_text(field: Field) -> bytes | None:
    """Return the text that stands for an unchanged value of a column; None if it can have none.

    Source: Debezium's UnchangedToastedPlaceholder. Its arrays of numbers and dates, whose items are
    the characters' codes, could be values of the column.
    """
    if field.type.array and field.item is not None:
        item = unavailable_text(field.item)
        return None if item is None else b'{"%s"}' % item.replace(b"\\", b"\\\\")
    match field.type.conversion:
        case "bytea":
            return b"\\x" + _UNAVAILABLE.hex().encode()
        case "ewkb":
            return _UNAVAILABLE.hex().upper().encode()
        case "hstore":
            return b'"%s"=>"%s"' % (_UNAVAILABLE, _UNAVAILABLE)
        case "text":
            return _UNAVAILABLE_UUID if field.type.choice == "uuid" else _UNAVAILABLE
    return None


def _with_texts(encode: RowEncoder, texts: Sequence[tuple[int, bytes]]) -> RowEncoder:
    """Return `encode` with these texts for the columns that are unchanged."""
    if not texts:
        return encode

    def encode_new(row: Sequence[ColumnValue]) -> bytes:
        if UNCHANGED in row:
            row = list(row)
            for index, text in texts:
                if row[index] is UNCHANGED:
                    row[index] = text
        return encode(row)

    return encode_new
