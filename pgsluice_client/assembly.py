"""Transactions put together from the records of several topics. No I/O.

A PROGRESS marker is the last record of a Kafka transaction, and names the offsets that this one
wrote. Once all of them are here, its source transactions are whole. Within a partition records are
in the order of (commit_lsn, seq), and the two halves of a key change can be in different ones; so
those of a Kafka transaction are sorted, over all partitions, before they are grouped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from pgsluice_client.changes import CopyState, Transaction
from pgsluice_client.decoding import Decoder, Record
from pgsluice_client.errors import LostRecordsError, ReadError, UnavailableError
from pgsluice_client.places import Placed, beginning_of, placed, without_repeated_truncates
from pgsluice_client.position import Owner, Position

__all__ = ["Assembly", "Partition"]

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

_MOST_AHEAD: Final = 10_000
"""Number of records of a partition until which it is read ahead of its markers."""
_MOST_MARKED: Final = 1_000
"""Number of Kafka transactions until which markers are read ahead of the records."""
_COPY_AGAIN: Final = (
    "copy the table again (pgsluice copy), and read it without a stored position: reading begins"
    " with that copy then"
)
_log = logging.getLogger("pgsluice_client")


@dataclass(frozen=True, slots=True)
class _Range:
    """Records of one Kafka transaction in a partition; see docs/envelope.md."""

    first: int
    next: int
    records: int


@dataclass(slots=True)
class _KafkaTransaction:
    """Markers of one Kafka transaction.

    Attributes:
        ends: END markers by commit_lsn.
        copies: COPY markers.
        ranges: Ranges of the topics that are read.
    """

    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    copies: list[CopyState] = field(default_factory=list)
    ranges: dict[Partition, _Range] = field(default_factory=dict)
    end_lsn: str = ""
    next_marker: int = 0
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class _Item:
    """Records of one source transaction, or of copies at one position.

    Attributes:
        records: Its records in order, each `t` once.
        offsets: Offset after its last record by partition, whether that is in `records` or not.
        begun: Topics that begin with it.
        end: END marker, if there is one.
        last: Kafka transaction, if it is the last item of that.
    """

    records: list[Record]
    offsets: Mapping[Partition, int]
    begun: frozenset[str]
    end: dict[str, Any] | None
    last: _KafkaTransaction | None


class Assembly:
    """Transactions of one subscription, in commit order.

    Args:
        decoder: Decoder of records and markers.
        start: Position to continue from.
        topics: Topics to read; None for all that the subscription has.
        whole: Whether all markers from `start` on are still in Kafka.

    Attributes:
        position: Position after the last transaction that was returned, or after what followed it
            in Kafka without changes.
    """

    def __init__(
        self, decoder: Decoder, start: Position, *, topics: Collection[str] | None, whole: bool
    ) -> None:
        self.position = start
        self._decoder = decoder
        self._topics = topics
        self._whole = whole
        self._owner = start.owner
        # Stages, in order: markers as received; the Kafka transaction whose PROGRESS is to come;
        # those whose markers are known, which wait for their records; items of the oldest of them.
        self._markers: deque[tuple[int, bytes]] = deque()
        self._open = _KafkaTransaction()
        self._marked: deque[_KafkaTransaction] = deque()
        self._items: deque[_Item] = deque()
        # Records of partitions that are read; the offset after the last one received; the offset
        # from which a partition is read; the same of those that `pop_wanted` is to return.
        self._buffers: dict[Partition, deque[Record]] = {}
        self._reached: dict[Partition, int] = {}
        self._from: dict[Partition, int] = {}
        self._wanted: dict[Partition, int] = {}
        # Where the next range of a partition begins; inside it in the first Kafka transaction.
        self._expected = dict(start.offsets)
        self._inside = start.inside
        self._waiting = set(start.waiting)
        self._handed_over = set(start.handed_over)
        # Topics whose ranges count for nothing until the topic is made again.
        self._gone: set[str] = set()
        self._failure: ReadError | None = None

    def receive_marker(self, offset: int, wire: bytes) -> None:
        """Accept the next record of the marker topic."""
        self._markers.append((offset, wire))

    def receive(self, record: Record) -> None:
        """Accept the next record of a partition of a table's topic."""
        partition = record.topic, record.partition
        if partition in self._buffers:  # else it is wanted no more
            self._buffers[partition].append(record)
            self._reached[partition] = record.offset + 1

    def pop_wanted(self) -> dict[Partition, int]:
        """Return the partitions to read from now on, each from an offset; some are read already."""
        wanted, self._wanted = self._wanted, {}
        for partition, offset in wanted.items():
            self._reached[partition] = self._from[partition] = offset
            self._buffers[partition] = deque()
        return wanted

    def skip_to(self, partition: Partition, first_there: int) -> bool:
        """Accept that there is no record at the offset of a partition, and where the first one is.

        Returns:
            Whether it is to be read, from `first_there` on.

        Raises:
            LostRecordsError: the position needs what is gone.
        """
        topic, offset = partition[0], self._reached.get(partition)
        if offset is None:
            return False
        if first_there <= offset or not self._can_begin(topic):
            what = f"no record at offset {offset}, the first one is at {first_there}"
            self._lose(partition, what)
            return False
        self._wait(topic)
        self._reached[partition] = self._from[partition] = first_there
        self._buffers[partition].clear()  # of a Kafka transaction that is no longer whole
        return True

    def lacking(self) -> dict[Partition, int]:
        """Return the partitions that the next transaction waits for, and until which offset."""
        needed = self._marked[0].ranges if self._marked else {}
        return {
            partition: one.next
            for partition, one in needed.items()
            if self._reached.get(partition, -1) < one.next
        }

    def ends_at(self, partition: Partition, end: int) -> None:
        """Accept that a partition that is lacking ends at an offset; 0 if its topic is gone.

        Raises:
            LostRecordsError: the position needs what is gone.
        """
        self._lose(partition, f"it ends at offset {end}, and the markers say that it went on")

    def paused(self) -> set[Partition]:
        """Return the partitions that are far enough ahead of their markers."""
        needed = self._marked[0].ranges if self._marked else {}
        return {
            partition
            for partition, buffer in self._buffers.items()
            if len(buffer) >= _MOST_AHEAD
            and (partition not in needed or self._reached[partition] >= needed[partition].next)
        }

    def has_enough_markers(self) -> bool:
        """Whether the markers are far enough ahead of the records."""
        return len(self._marked) >= _MOST_MARKED

    def is_drained(self) -> bool:
        """Whether everything was returned for which there are markers."""
        return not (self._items or self._marked or self._markers)

    def pop(self) -> Transaction | None:
        """Return the next transaction; None if it has not come as a whole.

        Raises:
            UnavailableError: the registry does not answer; another call may succeed.
            ReadError: the topics are not what docs/envelope.md says.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._pop()
        except UnavailableError:
            raise
        except ReadError as error:
            self._failure = error
            raise

    def _pop(self) -> Transaction | None:
        while self._markers:
            offset, wire = self._markers[0]
            self._accept_marker(offset, self._decoder.marker(wire))
            self._markers.popleft()
        while self._items or self._is_complete():
            if not self._items:
                self._items.extend(self._split(self._marked.popleft()))
            item = self._items[0]
            changes = self._decoder.changes(item.records)
            self._items.popleft()
            self._advance(item)
            copies = () if item.last is None else tuple(item.last.copies)
            if changes or copies:
                return _transaction(item, changes, copies, self.position)
        return None

    def _accept_marker(self, offset: int, marker: Mapping[str, Any]) -> None:
        if not self._is_owners(marker):
            _log.warning("marker of another writer skipped: offset=%s", offset)
            return
        copy, kind = marker["copy"], marker["kind"]
        if kind == "END":
            self._open.ends[_lsn(marker["commit_lsn"])] = dict(marker)
        elif kind == "COPY" and copy is not None:
            self._open.copies.append(
                CopyState(copy["schema"], copy["table"], copy["state"], copy["reason"])
            )
        elif kind == "PROGRESS":
            read = [
                entry
                for entry in marker["offsets"]
                if self._topics is None or entry["topic"] in self._topics
            ]
            for topic in {entry["topic"] for entry in read if self._is_made_again(entry)}:
                self._begin_again(topic)
            for entry in read:
                self._accept_range(entry)
            self._inside = self._inside and not marker["offsets"]
            made, self._open = self._open, _KafkaTransaction()
            made.end_lsn, made.next_marker = _lsn(marker["end_lsn"]), offset + 1
            made.owner = self._owner
            self._marked.append(made)

    def _is_owners(self, marker: Mapping[str, Any]) -> bool:
        """Whether a marker is the owner's: the first writer, and who has taken over from it."""
        writer, taken_from = _owner(marker.get("writer")), _owner(marker.get("taken_from"))
        claimed = marker["kind"] == "CLAIM" and taken_from == self._owner
        if self._owner is None or claimed:
            self._owner = writer
        if claimed:
            self._handed_over = set(self._expected)
        return writer == self._owner

    def _accept_range(self, entry: Mapping[str, Any]) -> None:
        """Accept the range of a partition, which continues from the one before.

        A new owner does not know that one, and continues from the end of the partition, after
        control records. If there are records between, the number of records shows it.
        """
        topic = entry["topic"]
        partition = topic, entry["partition"]
        if topic in self._gone:
            self._expected[partition] = entry["next_offset"]
            return
        first, previous = entry["first_offset"], entry["previous_offset"]
        expected = self._expected.get(partition)
        start = first
        if expected is None:
            if not any(topic == known for known, _ in self._expected):
                if not self._whole or previous:
                    self._wait(topic)
            elif previous and topic not in self._waiting:
                raise _gap(partition, 0, previous)
        elif expected != previous:
            if self._is_inside(entry, expected):
                start = expected
            elif topic not in self._waiting and not (
                partition in self._handed_over and expected < previous
            ):
                raise _gap(partition, expected, previous)
        self._handed_over.discard(partition)
        self._expected[partition] = entry["next_offset"]
        if partition not in self._reached:
            self._wanted.setdefault(partition, start)
        self._open.ranges[partition] = _Range(first, entry["next_offset"], entry["records"])

    def _is_inside(self, entry: Mapping[str, Any], expected: int) -> bool:
        """Whether it is the rest of a range that the position is in."""
        return self._inside and entry["first_offset"] < expected <= entry["next_offset"]

    def _is_made_again(self, entry: Mapping[str, Any]) -> bool:
        """Whether a partition has begun again, and nothing that was returned is of the old one."""
        expected = self._expected.get((entry["topic"], entry["partition"]))
        return (
            expected is not None
            and entry["previous_offset"] < expected
            and not self._is_inside(entry, expected)
            and self._can_begin(entry["topic"])
        )

    def _begin_again(self, topic: str) -> None:
        """Forget a topic that has been deleted; what has its name now is another one."""
        _log.warning("topic was made again, its earlier records are gone: topic=%s", topic)
        self._forget_ranges(topic)
        self._gone.discard(topic)
        for partition in [one for one in self._expected if one[0] == topic]:
            del self._expected[partition]

    def _forget_ranges(self, topic: str) -> None:
        known: list[dict[Partition, Any]] = [self._wanted, self._reached, self._from, self._buffers]
        for by_partition in (*known, *(one.ranges for one in (*self._marked, self._open))):
            for partition in [one for one in by_partition if one[0] == topic]:
                del by_partition[partition]

    def _lose(self, partition: Partition, what: str) -> None:
        topic, number = partition
        if not self._can_begin(topic):
            raise LostRecordsError(f"topic {topic}, partition {number}: {what}", hint=_COPY_AGAIN)
        self._wait(topic)
        self._forget_ranges(topic)
        self._gone.add(topic)

    def _can_begin(self, topic: str) -> bool:
        """Whether nothing of a topic has been returned, or nothing since it waits for a copy."""
        if topic in self._waiting:
            return not any(topic in item.begun for item in self._items)
        split = (item.offsets for item in self._items)
        return not any(topic == read for one in (self.position.offsets, *split) for read, _ in one)

    def _wait(self, topic: str) -> None:
        if topic not in self._waiting:
            _log.warning("earlier records are gone, waiting for a copy: topic=%s", topic)
        self._waiting.add(topic)

    def _is_complete(self) -> bool:
        return bool(self._marked) and all(
            self._reached.get(partition, -1) >= one.next
            for partition, one in self._marked[0].ranges.items()
        )

    def _split(self, kafka: _KafkaTransaction) -> Iterator[_Item]:
        """Yield the items of a complete Kafka transaction; the last one ends it."""
        records_at: list[Placed] = []
        partitions: dict[str, set[int]] = {}
        for partition, one in kafka.ranges.items():
            partitions.setdefault(partition[0], set()).add(partition[1])
            records_at += placed(self._pop_range(partition, one))
        records_at.sort(key=lambda one: one[0])
        waiting = self._waiting.intersection(partitions)
        made: list[_Item] = []
        for (commit_lsn, is_copy), group in groupby(
            records_at, lambda one: (one[0][0], not one[0][1])
        ):
            found = list(group)
            begins = {
                topic: place
                for topic in waiting
                if (place := beginning_of(found, topic, partitions[topic])) is not None
            }
            waiting -= begins.keys()
            records = list(without_repeated_truncates(found, waiting, begins))
            end = None if is_copy else kafka.ends.get(commit_lsn)
            if records:
                offsets = {(one.topic, one.partition): one.offset + 1 for _, one in found}
                made.append(_Item(records, offsets, frozenset(begins), end, None))
        last = made.pop() if made else _Item([], {}, frozenset(), None, None)
        yield from made
        yield replace(last, last=kafka)

    def _pop_range(self, partition: Partition, one: _Range) -> list[Record]:
        buffer = self._buffers[partition]
        found: list[Record] = []
        while buffer and buffer[0].offset < one.next:
            found.append(buffer.popleft())
        if self._from[partition] <= one.first and len(found) != one.records:
            topic, number = partition
            if self._can_begin(topic):
                self._wait(topic)  # no copy begins here: not in all partitions
                return []
            raise LostRecordsError(
                f"topic {topic}, partition {number}: {len(found)} records from offset {one.first}"
                f" to {one.next}, and their marker says {one.records}",
                hint="was the topic trimmed or compacted, or does another program write to it? "
                + _COPY_AGAIN,
            )
        return found

    def _advance(self, item: _Item) -> None:
        offsets = {**self.position.offsets, **item.offsets}
        self._waiting -= item.begun
        position, end_lsn = self.position, self.position.end_lsn
        if item.end is not None:
            end_lsn = _lsn(item.end["end_lsn"])
        marker, owner, handed_over = position.marker, position.owner, position.handed_over
        if item.last is not None:
            if owner is not None and item.last.owner != owner:
                handed_over = frozenset(position.offsets)
            handed_over = handed_over.difference(item.last.ranges)
            offsets |= {partition: one.next for partition, one in item.last.ranges.items()}
            end_lsn, owner = item.last.end_lsn, item.last.owner
            marker = item.last.next_marker
        self.position = Position(
            position.subscription,
            end_lsn,
            marker,
            offsets,
            inside=item.last is None,
            waiting=frozenset(self._waiting),
            owner=owner,
            handed_over=handed_over,
        )


def _transaction(
    item: _Item, changes: tuple[Any, ...], copies: tuple[CopyState, ...], position: Position
) -> Transaction:
    if not item.records:
        return Transaction(changes, position, copies=copies)
    headers, end = item.records[0].headers, item.end or {}
    xid, origin, gid = (headers.get(name) for name in ("xid", "origin", "gid"))
    return Transaction(
        changes,
        position,
        xid=None if xid is None else int(xid),
        commit_lsn=headers["commit_lsn"].decode(),
        end_lsn=_lsn(end["end_lsn"]) if end else None,
        commit_time=end.get("commit_time"),
        origin=None if origin is None else origin.decode(),
        gid=None if gid is None else gid.decode(),
        copies=copies,
    )


def _gap(partition: Partition, expected: int, previous: int) -> LostRecordsError:
    topic, number = partition
    return LostRecordsError(
        f"topic {topic}, partition {number}: read up to offset {expected}, and the next marker"
        f" continues from {previous}",
        hint=_COPY_AGAIN,
    )


def _owner(writer: Mapping[str, str] | None) -> Owner | None:
    if writer is None:
        return None
    return writer["system_identifier"], writer["database"], writer["slot"]


def _lsn(number: int) -> str:
    return f"{number >> 32:08X}/{number & 0xFFFFFFFF:08X}"
