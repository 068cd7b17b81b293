"""Order of the records of one Kafka transaction, over all partitions. No I/O.

A truncate, and the beginning of a copy, is in every partition. The records that follow such a ``t``
at the same position can be in any of them: those of copies have seq 0, and a copy can begin again
where it was. Therefore a record's place has the number of ``t`` before it, of its position and in
its partition, which says for all partitions after which ``t`` it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from pgsluice_client.decoding import Record
from pgsluice_client.errors import ReadError

__all__ = ["Placed", "beginning_of", "placed", "without_repeated_truncates"]

_Place: TypeAlias = tuple[str, int, int]
"""Sort key of a record: commit_lsn, seq, number of `t` at these."""
Placed: TypeAlias = tuple[_Place, Record]
"""A record and its place."""


def placed(records: Iterable[Record]) -> Iterator[Placed]:
    """Yield the records of one partition that are no tombstones, each with its place."""
    at, truncates = ("", -1), 0
    for record in records:
        if record.value is None:
            continue
        headers = record.headers
        try:
            here = headers["commit_lsn"].decode(), int(headers["seq"])
            truncates_here = headers["op"] == b"t"
        except (KeyError, ValueError) as error:
            raise ReadError(
                f"topic {record.topic}, partition {record.partition}, offset {record.offset}:"
                f" not a record of the gateway: {error}"
            ) from error
        if here != at:
            at, truncates = here, 0
        truncates += truncates_here
        yield (*here, truncates), record


def beginning_of(found: Iterable[Placed], topic: str, partitions: set[int]) -> _Place | None:
    """Return the first place where a copy of a topic begins in all its partitions."""
    there: dict[_Place, set[int]] = {}
    for place, record in found:
        if record.topic == topic and place[1] == 0 and record.headers["op"] == b"t":
            there.setdefault(place, set()).add(record.partition)
    return min((place for place, numbers in there.items() if numbers == partitions), default=None)


def without_repeated_truncates(
    found: Iterable[Placed], waiting: Collection[str], begins: Mapping[str, _Place]
) -> Iterator[Record]:
    """Yield the records of topics that have begun, and of each `t` the one of one partition."""
    truncated: dict[str, _Place] = {}
    for place, record in found:
        topic = record.topic
        if topic in waiting or (topic in begins and place < begins[topic]):
            continue
        if record.headers["op"] == b"t":
            if truncated.get(topic) == place:
                continue
            truncated[topic] = place
        yield record
