"""Tuples that Python and C hand to each other, under the names that both sides use.

``tools/build_rows.py`` makes an enum of each, in ``declared.h``: of `Feed` it makes
``FEED_SUBSCRIPTION``, ``FEED_MARKERS``, ``FEED_PREFIX`` and, for the number of fields,
``FEED_SIZE``. C reads fields by these names alone, and accepts no tuple of another size.

A field is added here. Type checks then point at every place that makes such a tuple without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

__all__ = [
    "Candidates",
    "Condition",
    "Decision",
    "Feed",
    "Field",
    "Index",
    "KafkaHeader",
    "Projection",
    "Record",
    "Shared",
    "Target",
    "place_of",
    "topic_of",
    "value_of",
]


class KafkaHeader(NamedTuple):
    """`gateway.core.records.Header`, which is a plain tuple: several are made for every row."""

    name: str
    value: bytes


class Record(NamedTuple):
    """`gateway.core.records.Record`, which is a plain tuple: one is made for every row."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[KafkaHeader]


topic_of: Final = itemgetter(Record._fields.index("topic"))
value_of: Final = itemgetter(Record._fields.index("value"))
place_of: Final = itemgetter(*map(Record._fields.index, ("topic", "partition")))
"""Topic and partition of a record."""


class Condition(NamedTuple):
    """Condition on a row (`gateway.rowfilter.evaluation.conditions`).

    Attributes:
        code: ``ALL_OF``, ``ONE_OF`` or ``NOT`` its parts; ``IS_NULL``; or, for a comparison, how
            the column's text is read. All are in `gateway._speedups.codes`.
        parts: Conditions that are joined; ``NOT`` has one.
        column: Index of the column of ``IS_NULL`` or a comparison.
        orders: Set of ``LESS``, ``EQUAL`` and ``GREATER``, for a comparison.
        constants: Sorted constants of a comparison, at least one.
    """

    code: str
    parts: tuple[Condition, ...] = ()
    column: int = -1
    orders: int = 0
    constants: tuple[object, ...] = ()


class Field(NamedTuple):
    """Field of a key or of a row.

    Attributes:
        code: Conversion, of an array or a range that of its items or bounds, or canonical form
            (``CONVERSIONS``, ``KEY_FORMS``).
        column: Index of its column.
        scale: Scale of a decimal, digits of a ``zoned_timestamp``; 0 for other types.
        is_identity: Whether the column is part of the replica identity.
        is_array: Whether it is an array.
        is_range: Whether it is a range.
        unavailable: Encoded value in a new row whose column is unchanged; empty in keys.
    """

    code: int
    column: int
    scale: int
    is_identity: bool
    is_array: bool
    is_range: bool
    unavailable: bytes


class Decision(NamedTuple):
    """Decision of a target on a row.

    Attributes:
        target: Number of the target.
        condition: Number of the condition that decides; -1 if `passes` does.
        passes: Function of the row; None lets every row pass.
    """

    target: int
    condition: int
    passes: Callable[[Any], bool] | None


class Index(NamedTuple):
    """Decisions by the text of one column; None is NULL.

    Attributes:
        by_text: The decisions, if they never change.
        decisions: Otherwise all of them.
        lookup: Places in `decisions` by text, as of now; None for a text that is left to Python. It
            is asked for every row, for the old and the new one, and finds what it does not have.
    """

    column: int
    by_text: Mapping[bytes | None, tuple[Decision, ...]]
    decisions: tuple[Decision, ...] = ()
    lookup: Mapping[bytes | None, tuple[int, ...] | None] | None = None


class Candidates(NamedTuple):
    """`gateway.routing.row.targets.Candidates`, with targets and conditions by number."""

    everyone: tuple[Decision, ...]
    others: tuple[Decision, ...]
    indexes: tuple[Index, ...]


class Target(NamedTuple):
    """`gateway.routing.row.targets.Target`: a subscription that receives rows of a projection.

    Attributes:
        counter: `gateway.routing.row.counters.TopicCounter` of the topic.
        feed: Number of the subscription among the feeds of a series.
        number: Number of the topic among all.
    """

    topic: str
    partitions: int
    key_prefix: bytes
    value_prefix: bytes
    counter: object
    skips_origins: bool
    feed: int
    number: int


class Projection(NamedTuple):
    """`gateway.routing.row.projection_route.ProjectionRoute`.

    Attributes:
        row: Fields of the record ``Value``.
        names: Name of each of these, as an Avro string.
        key: Fields of the key; None if the table has none.
        key_is_union: Whether a field of the key can be NULL.
        place: Fields whose change by an UPDATE is a delete and an insert; None if they are the
            key's.
        needs_full: Whether an UPDATE or DELETE is left to Python without the whole old row.
        names_keys: Whether the halves of a key change have headers with the key of the other, which
            are left to Python.
        canonical: Fields that choose the partition; None if all topics have one partition.
        table_part: Part of the source block that names the table.
        conditions: Conditions to which decisions refer by number.
    """

    row: tuple[Field, ...]
    names: tuple[bytes, ...]
    key: tuple[Field, ...] | None
    key_is_union: bool
    place: tuple[Field, ...] | None
    needs_full: bool
    names_keys: bool
    canonical: tuple[Field, ...] | None
    table_part: bytes
    surely_fits: int
    tombstones: bool
    targets: tuple[Target, ...]
    conditions: tuple[Condition, ...]
    inserting: Candidates
    updating: Candidates
    deleting: Candidates


class Feed(NamedTuple):
    """Subscription to which a series of transactions is routed.

    Attributes:
        markers: Topic of its markers.
        prefix: First bytes of a marker.
    """

    subscription: str
    markers: str
    prefix: bytes


class Shared(NamedTuple):
    """Values that all records of a transaction share.

    Attributes:
        headers: Headers of all its records, as `gateway.envelope.headers.HeaderMaker` orders them.
    """

    gateway_part: bytes
    xid: int
    commit_lsn: int
    commit_ms: int
    ts_ms: int
    origin: bytes | None
    headers: tuple[tuple[str, bytes] | None, ...]
    has_origin: bool
