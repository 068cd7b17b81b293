"""Records that are not rows: markers, logical messages, changes that cannot be published.

Written by fastavro with the schemas in ``schemas/``; but END and PROGRESS, of which a transaction
has one for each subscription, are put together by hand. Encoders return Avro bytes without the wire
format's prefix; those of markers also without the first two fields, which say who writes. They are
the same in all markers of a feed and stand in `gateway.core.records.Feed.prefix`: see
`encode_writer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from gateway.core.errors import UnfitKind
from gateway.core.records import PartitionOffsets, Writer
from gateway.core.watermark import CopyState
from gateway.envelope.datums import write_datum
from gateway.envelope.encoding.conversions import EPOCH_SHIFT_US
from gateway.envelope.encoding.varint import encode_long, encode_text
from gateway.pgoutput.messages import LogicalMessage
from schemas import load

__all__ = [
    "encode_claim",
    "encode_copy",
    "encode_end",
    "encode_end_of",
    "encode_error",
    "encode_message",
    "encode_move",
    "encode_prepare",
    "encode_progress",
    "encode_reload",
    "encode_rollback_prepared",
    "encode_writer",
]


_KINDS: Final[list[str]] = next(
    field["type"]["symbols"] for field in load("transaction")["fields"] if field["name"] == "kind"
)
_END: Final = encode_long(_KINDS.index("END"))
_PROGRESS: Final = encode_long(_KINDS.index("PROGRESS"))
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_REST: Final = b"\x00\x00\x00\x00"
"""The end of `offsets`; no `copy`, no `definitions`, no `move`."""
_ONE: Final = encode_long(1)
_END_REST: Final = b"\x00" + _REST + _NULL
"""The end of `topics`, and the rest, without a `timeline`."""


_topic: Final = lru_cache(4096)(encode_text)


_NOBODY: Final = b"\x00\x00"
"""No `writer`, no `taken_from`."""


def _marker(kind: str, end_lsn: int, **fields: Any) -> bytes:
    datum = write_datum("transaction", {"kind": kind, "end_lsn": end_lsn, **fields})
    return datum.removeprefix(_NOBODY)


def encode_writer(writer: Writer, taken_from: Writer | None = None) -> bytes:
    """Encode the first two fields of a marker: who writes, and for a CLAIM from whom it takes."""
    return _writer(writer) + (_NULL if taken_from is None else _writer(taken_from))


def _writer(writer: Writer) -> bytes:
    names = (writer.system_identifier, writer.database, writer.slot, writer.gateway)
    return _PRESENT + b"".join(map(encode_text, names))


def encode_claim() -> bytes:
    """Encode a CLAIM marker: the subscription's topics are its writer's."""
    return _marker("CLAIM", 0)


def encode_end_of(
    *,
    xid: int,
    commit_lsn: int,
    end_lsn: int,
    commit_time: int,
    origin: str | None = None,
    gid: str | None = None,
) -> bytes:
    """Encode what the END markers of a transaction have in common, for `encode_end`.

    `commit_time` is in microseconds since 2000-01-01 00:00 UTC.
    """
    return b"".join(
        (
            _END,
            encode_long(end_lsn),
            _PRESENT,
            encode_long(commit_lsn),
            _PRESENT,
            encode_long(xid),
            _PRESENT,
            encode_long(commit_time + EPOCH_SHIFT_US),
            _NULL if origin is None else _PRESENT + encode_text(origin),
            _NULL if gid is None else _PRESENT + encode_text(gid),
        )
    )


def encode_end(transaction: bytes, topics: Sequence[tuple[str, int]] = ()) -> bytes:
    """Encode the END marker of one subscription.

    Args:
        transaction: The transaction, as encoded by `encode_end_of`.
        topics: Pairs of a table's topic and the number of records of the transaction there.
    """
    if len(topics) == 1:  # as most have: a transaction can have a marker for each of many
        ((topic, records),) = topics
        return transaction + _ONE + _topic(topic) + encode_long(records) + _END_REST
    counts = b""
    for topic, records in topics:
        counts += _topic(topic) + encode_long(records)
    many = encode_long(len(topics)) if topics else b""
    return transaction + many + counts + _END_REST


def encode_progress(
    end_lsn: int,
    *,
    timeline: int,
    commit_time: int | None = None,
    offsets: Sequence[PartitionOffsets] = (),
) -> bytes:
    """Encode a PROGRESS marker: everything until `end_lsn` has been published.

    Args:
        end_lsn: Position in the source's WAL.
        timeline: Timeline of that WAL.
        commit_time: As for END; None if unknown.
        offsets: Records that the Kafka transaction has written to the subscription's table topics.
    """
    time = _NULL if commit_time is None else _PRESENT + encode_long(commit_time + EPOCH_SHIFT_US)
    # No `commit_lsn`, no `xid`; no `origin`, no `gid`, no `topics`.
    parts = [_PROGRESS, encode_long(end_lsn), _NULL, _NULL, time, _NULL, _NULL, b"\x00"]
    if offsets:
        parts.append(encode_long(len(offsets)))
    for each in offsets:
        numbers = (
            *(each.partition, each.first_offset, each.next_offset),
            *(each.previous_offset, each.records),
        )
        parts += [_topic(each.topic), *map(encode_long, numbers)]
    return b"".join((*parts, _REST, _PRESENT, encode_long(timeline)))


def encode_reload(end_lsn: int, definitions: str) -> bytes:
    """Encode a RELOAD marker: `definitions`, a fingerprint, are in force after `end_lsn`."""
    return _marker("RELOAD", end_lsn, definitions=definitions)


def encode_prepare(*, gid: str, xid: int, end_lsn: int, prepare_time: int) -> bytes:
    """Encode a PREPARE marker; the time is in microseconds since 2000-01-01 00:00 UTC."""
    return _marker("PREPARE", end_lsn, gid=gid, xid=xid, commit_time=prepare_time + EPOCH_SHIFT_US)


def encode_rollback_prepared(*, gid: str, xid: int, end_lsn: int, rollback_time: int) -> bytes:
    """Encode a ROLLBACK_PREPARED marker; time as for PREPARE."""
    return _marker(
        "ROLLBACK_PREPARED", end_lsn, gid=gid, xid=xid, commit_time=rollback_time + EPOCH_SHIFT_US
    )


def encode_copy(state: CopyState) -> bytes:
    """Encode a COPY marker."""
    return _marker(
        "COPY",
        state.consistent_point or 0,
        copy={
            "schema": state.schema,
            "table": state.table,
            "state": state.state,
            "consistent_point": state.consistent_point,
            "reason": state.reason or None,
        },
    )


def encode_move(end_lsn: int, *, schema: str, table: str, settled: bool) -> bytes:
    """Encode a MOVE marker of a table: its rows move from `end_lsn` on, or are settled there."""
    state = "settled" if settled else "begun"
    return _marker("MOVE", end_lsn, move={"schema": schema, "table": table, "state": state})


def encode_message(
    message: LogicalMessage, *, commit_lsn: int, xid: int | None, seq: int, ts_ms: int
) -> bytes:
    """Encode a logical message; `ts_ms` as in `gateway.envelope.envelope.TransactionContext`."""
    return write_datum(
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


def encode_error(
    *,
    kind: UnfitKind,
    op: str,
    effect: str,
    reason: str,
    lsn: int,
    commit_lsn: int,
    xid: int | None,
    seq: int,
    ts_ms: int,
    subscription: str | None = None,
    schema: str | None = None,
    table: str | None = None,
    relation: str | None = None,
    sqlstate: str | None = None,
    filters: Iterable[tuple[str, str]] = (),
    key: Mapping[str, str | None] | None = None,
    before: Mapping[str, str | None] | None = None,
    after: Mapping[str, str | None] | None = None,
    unchanged: Sequence[str] = (),
    omitted: Sequence[str] = (),
) -> bytes:
    """Encode a change that cannot be published; docs/envelope.md says what the fields mean.

    `filters` are pairs of publication and row filter, of which one has to be true; `ts_ms` is as in
    `gateway.envelope.envelope.TransactionContext`.
    """
    return write_datum(
        "error",
        {
            "kind": kind,
            "subscription": subscription,
            "schema": schema,
            "table": table,
            "relation": relation,
            "op": op,
            "effect": effect,
            "reason": reason,
            "sqlstate": sqlstate,
            "filters": [
                {"publication": publication, "where": where} for publication, where in filters
            ],
            "key": key,
            "before": before,
            "after": after,
            "unchanged": unchanged,
            "omitted": omitted,
            "lsn": lsn,
            "commit_lsn": commit_lsn,
            "xid": xid,
            "seq": seq,
            "ts_ms": ts_ms,
        },
    )
