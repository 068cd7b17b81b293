"""Records that are not rows: markers, logical messages, the watermark and the running totals.

Written and read by fastavro with the schemas in ``schemas/``; none of it is on the hot path.
Encoders return Avro bytes without the wire format's prefix, decoders take the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any, Final, TypeAlias

import fastavro
from fastavro.types import Schema

from gateway.envelope.values import EPOCH_SHIFT_US
from gateway.errors import ProtocolError
from gateway.lsn import Lsn
from gateway.pgoutput.messages import LogicalMessage
from gateway.records import CopyState, Watermark
from schemas import load

__all__ = [
    "PROGRESS_FORMAT",
    "TOTALS_FORMAT",
    "PartitionCount",
    "decode_marker",
    "decode_progress",
    "decode_progress_key",
    "decode_totals",
    "decode_totals_key",
    "encode_copy",
    "encode_end",
    "encode_filter_error",
    "encode_message",
    "encode_prepare",
    "encode_progress",
    "encode_progress_key",
    "encode_progress_marker",
    "encode_reload",
    "encode_rollback_prepared",
    "encode_totals",
    "encode_totals_key",
]

PROGRESS_FORMAT: Final = 2
"""Version of the watermark's meaning that this gateway writes and understands."""
TOTALS_FORMAT: Final = 1
"""The same of the totals."""

PartitionCount: TypeAlias = tuple[str, int, int, int]
"""topic, partition, records of this transaction or copy, total since the topic's first record."""


@cache
def _schema(name: str) -> Schema:
    return fastavro.parse_schema(load(name))


def _write(name: str, datum: Mapping[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, _schema(name), datum)
    return out.getvalue()


def _read(name: str, data: bytes) -> dict[str, Any]:
    schema = _schema(name)
    datum = fastavro.schemaless_reader(BytesIO(data), schema, schema)
    assert isinstance(datum, dict)
    return datum


def _marker(kind: str, end_lsn: int, **fields: Any) -> bytes:
    return _write("transaction", {"kind": kind, "end_lsn": end_lsn, **fields})


def _counts(partitions: Iterable[PartitionCount]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "records": records, "total": total}
        for topic, partition, records, total in partitions
    ]


def encode_end(
    *,
    xid: int,
    commit_lsn: int,
    end_lsn: int,
    commit_time: int,
    origin: str | None = None,
    gid: str | None = None,
    partitions: Iterable[PartitionCount] = (),
) -> bytes:
    """Encode an END marker; `commit_time` is in microseconds since 2000-01-01 00:00 UTC."""
    return _marker(
        "END",
        end_lsn,
        commit_lsn=commit_lsn,
        xid=xid,
        # An int passes the logical type as it is; a datetime would lose years beyond 9999.
        commit_time=commit_time + EPOCH_SHIFT_US,
        origin=origin,
        gid=gid,
        partitions=_counts(partitions),
    )


def encode_progress_marker(end_lsn: int) -> bytes:
    """Encode a PROGRESS marker: everything up to `end_lsn` has been published."""
    return _marker("PROGRESS", end_lsn)


def encode_reload(end_lsn: int, definitions: str) -> bytes:
    """Encode a RELOAD marker: `definitions`, a fingerprint, are in force behind `end_lsn`."""
    return _marker("RELOAD", end_lsn, definitions=definitions)


def encode_prepare(*, gid: str, xid: int, end_lsn: int, prepare_time: int) -> bytes:
    """Encode a PREPARE marker; the time is in microseconds since 2000-01-01 00:00 UTC."""
    return _marker("PREPARE", end_lsn, gid=gid, xid=xid, commit_time=prepare_time + EPOCH_SHIFT_US)


def encode_rollback_prepared(*, gid: str, xid: int, end_lsn: int, rollback_time: int) -> bytes:
    """Encode a ROLLBACK_PREPARED marker; time as for PREPARE."""
    return _marker(
        "ROLLBACK_PREPARED", end_lsn, gid=gid, xid=xid, commit_time=rollback_time + EPOCH_SHIFT_US
    )


def encode_copy(state: CopyState, partitions: Iterable[PartitionCount] = ()) -> bytes:
    """Encode a COPY marker; `partitions` are the records of the attempt and the totals."""
    return _marker(
        "COPY",
        state.consistent_point or 0,
        partitions=_counts(partitions),
        copy={
            "schema": state.schema,
            "table": state.table,
            "state": state.state,
            "consistent_point": state.consistent_point,
        },
    )


def decode_marker(data: bytes) -> dict[str, Any]:
    """Decode any marker to its datum; times become `datetime.datetime`."""
    return _read("transaction", data)


def encode_message(
    message: LogicalMessage, *, commit_lsn: int, xid: int | None, seq: int, ts_ms: int
) -> bytes:
    """Encode a logical message; `ts_ms` as in `gateway.envelope.envelope.TransactionContext`."""
    return _write(
        "message",
        {
            "prefix": message.prefix,
            "content": message.content,
            "transactional": message.transactional,
            "lsn": message.lsn,
            "commit_lsn": commit_lsn,
            "xid": xid,
            "seq": seq,
            "ts_ms": ts_ms,
        },
    )


def encode_filter_error(
    *,
    subscription: str,
    schema: str,
    table: str,
    relation: str,
    op: str,
    reason: str,
    filters: Iterable[tuple[str, str]],
    key: Mapping[str, str | None] | None,
    before: Mapping[str, str | None] | None,
    after: Mapping[str, str | None] | None,
    unchanged: Sequence[str],
    lsn: int,
    commit_lsn: int,
    xid: int | None,
    seq: int,
    ts_ms: int,
) -> bytes:
    """Encode a row on which a filter raised; docs/envelope.md says what the fields mean.

    `filters` are pairs of publication and row filter, of which one has to be true; `ts_ms` is as in
    `gateway.envelope.envelope.TransactionContext`.
    """
    return _write(
        "error",
        {
            "subscription": subscription,
            "schema": schema,
            "table": table,
            "relation": relation,
            "op": op,
            "reason": reason,
            "filters": [
                {"publication": publication, "where": where} for publication, where in filters
            ],
            "key": key,
            "before": before,
            "after": after,
            "unchanged": unchanged,
            "lsn": lsn,
            "commit_lsn": commit_lsn,
            "xid": xid,
            "seq": seq,
            "ts_ms": ts_ms,
        },
    )


def encode_progress_key(system_identifier: str, database: str, slot: str) -> bytes:
    """Encode the key of the watermark."""
    return _write(
        "progress-key",
        {"system_identifier": system_identifier, "database": database, "slot": slot},
    )


def decode_progress_key(data: bytes) -> tuple[str, str, str]:
    """Decode what `encode_progress_key` takes."""
    datum = _read("progress-key", data)
    return datum["system_identifier"], datum["database"], datum["slot"]


def encode_progress(watermark: Watermark) -> bytes:
    """Encode the watermark."""
    return _write(
        "progress",
        {
            "format": PROGRESS_FORMAT,
            "timeline": watermark.timeline,
            "end_lsn": watermark.end_lsn,
            "definitions": watermark.definitions,
            "copies": [
                {
                    "subscription": copy.subscription,
                    "schema": copy.schema,
                    "table": copy.table,
                    "state": copy.state,
                    "consistent_point": copy.consistent_point,
                    "definition": copy.definition,
                }
                for copy in watermark.copies
            ],
        },
    )


def decode_progress(data: bytes) -> Watermark:
    """Decode the watermark.

    Raises:
        ProtocolError: written by a gateway of another format.
    """
    _check_format(_format_of(data), PROGRESS_FORMAT)
    datum = _read("progress", data)
    return Watermark(
        end_lsn=Lsn(datum["end_lsn"]),
        timeline=datum["timeline"],
        definitions=datum["definitions"],
        copies=tuple(
            CopyState(
                subscription=copy["subscription"],
                schema=copy["schema"],
                table=copy["table"],
                state=copy["state"],
                consistent_point=(
                    None if copy["consistent_point"] is None else Lsn(copy["consistent_point"])
                ),
                definition=copy["definition"],
            )
            for copy in datum["copies"]
        ),
    )


def encode_totals_key(system_identifier: str, database: str, slot: str, topic: str) -> bytes:
    """Encode the key of a topic's running totals."""
    return _write(
        "totals-key",
        {
            "system_identifier": system_identifier,
            "database": database,
            "slot": slot,
            "topic": topic,
        },
    )


def decode_totals_key(data: bytes) -> tuple[str, str, str, str]:
    """Decode what `encode_totals_key` takes."""
    datum = _read("totals-key", data)
    return datum["system_identifier"], datum["database"], datum["slot"], datum["topic"]


def encode_totals(partitions: Sequence[int]) -> bytes:
    """Encode a topic's running totals; the index is the partition."""
    return _write("totals", {"format": TOTALS_FORMAT, "partitions": list(partitions)})


def decode_totals(data: bytes) -> tuple[int, ...]:
    """Decode a topic's running totals.

    Raises:
        ProtocolError: written by a gateway of another format.
    """
    datum = _read("totals", data)
    _check_format(datum["format"], TOTALS_FORMAT)
    return tuple(datum["partitions"])


def _format_of(data: bytes) -> int:
    """The first field of a record, an Avro int, which is the same in every format."""
    found: Any = fastavro.schemaless_reader(BytesIO(data), "int", "int")
    return int(found)


def _check_format(found: int, known: int) -> None:
    if found != known:
        raise ProtocolError(
            f"the record in Kafka has format {found}, this gateway knows {known};"
            " start the version of pgsluice that wrote it",
            tag=b"",
            offset=0,
        )
