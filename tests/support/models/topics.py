"""A small model of a gateway: it writes the topics of one subscription, in real Avro.

Kafka's control records are offsets that nobody sees, as in a topic that is read with
``read_committed``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro

import schemas
from pgsluice_client.decoding import Record

MARKER, KEY, VALUE = 1, 2, 3
"""IDs of schemas."""
TEXTS = {
    MARKER: schemas.text("transaction"),
    KEY: schemas.text("envelope-key"),
    VALUE: schemas.text("envelope"),
}
_PARSED = {number: fastavro.parse_schema(json.loads(text)) for number, text in TEXTS.items()}

Partition = tuple[str, int]


def wire(schema_id: int, datum: dict[str, Any]) -> bytes:
    """A datum in Confluent's wire format."""
    data = BytesIO()
    fastavro.schemaless_writer(data, _PARSED[schema_id], datum)
    return b"\0" + schema_id.to_bytes(4) + data.getvalue()


@dataclass(frozen=True)
class Written:
    """A change as a test writes it.

    Attributes:
        key: Value of column a; None of a truncate.
        partitions: Partitions of its record; a truncate is in all.
    """

    op: str
    key: int | None
    partitions: tuple[int, ...]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    unchanged: tuple[str, ...] = ()
    rekey: str | None = None
    first: bool = False


@dataclass
class Topics:
    """All records of a subscription: those of partitions, and markers by offset."""

    partitions: dict[Partition, list[Record]] = field(default_factory=lambda: defaultdict(list))
    markers: list[tuple[int, bytes]] = field(default_factory=list)
    writer: str = "slot"
    _ends: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    _next: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    _next_marker: int = 0
    _ranges: dict[Partition, list[int]] = field(default_factory=dict)

    def change(
        self, topic: str, written: Written, commit_lsn: int, seq: int, xid: int | None
    ) -> None:
        """Write the records of a change, with the tombstone of a delete."""
        headers = {
            "lsn": lsn(commit_lsn).encode(),
            "commit_lsn": lsn(commit_lsn).encode(),
            "seq": b"%d" % seq,
            "op": written.op.encode(),
        }
        if xid is not None:
            headers["xid"] = b"%d" % xid
        if written.rekey is not None:
            headers["rekey"] = written.rekey.encode()
        value = wire(VALUE, self._envelope(topic, written, commit_lsn, seq, xid))
        key = None if written.key is None else wire(KEY, {"a": written.key, "c": "c"})
        for number in written.partitions:
            self._append((topic, number), key, value, headers)
            if written.op == "d":
                self._append((topic, number), key, None, headers)

    def _envelope(
        self, topic: str, written: Written, commit_lsn: int, seq: int, xid: int | None
    ) -> dict[str, Any]:
        snapshot = "first" if written.first else "false" if seq else "true"
        source: dict[str, Any] = {"version": "1", "connector": "postgresql", "name": "g", "db": "d"}
        source |= {"schema": "public", "table": topic, "identity": "d", "ts_ms": 0, "txId": xid}
        positions = {"commit_lsn": commit_lsn, "lsn": commit_lsn, "seq": seq}
        return {
            "before": written.before,
            "after": written.after,
            "source": source | positions | {"snapshot": snapshot, "origin": None},
            "transaction": None,
            "op": written.op,
            "ts_ms": 0,
            "unchanged": list(written.unchanged),
        }

    def _append(
        self,
        partition: Partition,
        key: bytes | None,
        value: bytes | None,
        headers: dict[str, bytes],
    ) -> None:
        offset = self._next[partition]
        self._next[partition] = offset + 1
        self.partitions[partition].append(Record(*partition, offset, key, value, headers))
        self._ranges.setdefault(partition, [offset, 0])[1] += 1

    def marker(self, kind: str, end_lsn: int, **fields: Any) -> None:
        """Write a marker."""
        writer = {"system_identifier": "1", "database": "d", "slot": self.writer, "gateway": "g"}
        datum = {"writer": writer, "kind": kind, "end_lsn": end_lsn, **fields}
        self.markers.append((self._next_marker, wire(MARKER, datum)))
        self._next_marker += 1

    def commit(self, end_lsn: int) -> None:
        """End the Kafka transaction."""
        offsets = [
            {
                "topic": partition[0],
                "partition": partition[1],
                "first_offset": first,
                "next_offset": self._next[partition],
                "previous_offset": self._ends[partition],
                "records": records,
            }
            for partition, (first, records) in self._ranges.items()
        ]
        self.marker("PROGRESS", end_lsn, offsets=offsets)
        for partition in self._ranges:
            self._ends[partition] = self._next[partition]
            self._next[partition] += 1
        self._next_marker += 1
        self._ranges = {}

    def delete(self, topic: str) -> None:
        """Delete a topic, which the next change makes again."""
        for partition in [one for one in self._next if one[0] == topic]:
            for of_partition in (self.partitions, self._next, self._ends):
                of_partition.pop(partition, None)

    def hand_over(self, slot: str) -> None:
        """Let another gateway take the topics over; it begins after all that is there."""
        owner = {"system_identifier": "1", "database": "d", "slot": self.writer, "gateway": "g"}
        self.writer = slot
        self.marker("CLAIM", 0, taken_from=owner)
        self._ranges = {}
        self._ends = defaultdict(int, self._next)


def lsn(number: int) -> str:
    """As headers have it."""
    return f"{number >> 32:08X}/{number & 0xFFFFFFFF:08X}"
