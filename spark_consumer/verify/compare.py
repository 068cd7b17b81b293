"""Comparison of a table version with its expected rows, by bucket checksums."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_consumer.names import quoted
from spark_consumer.verify.replay import Change, replay, replay_rows
from spark_consumer.verify.text import Row, digest, joined, joined_sql, marks, row_digest_sql, shown

__all__ = ["Difference", "Expected", "compare", "settle"]

BUCKETS: Final = 4096
_MAX_BUCKETS_COMPARED: Final = 64
"""Most differing buckets whose rows are compared; of further ones only the counts are."""


@dataclass(slots=True)
class Totals:
    """Count and checksum of rows.

    Attributes:
        rows: Number of rows.
        sums: Sums of the two halves of the rows' digests, which are the same in any order.
    """

    rows: int = 0
    sums: tuple[int, int] = (0, 0)

    def add(self, row: Row) -> None:
        """Add a row."""
        hexadecimal = digest(row)
        first, second = self.sums
        self.rows += 1
        self.sums = (first + int(hexadecimal[:15], 16), second + int(hexadecimal[15:30], 16))


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between a table and its expected rows.

    Attributes:
        rows: Number of rows in the table.
        expected: Number of rows expected.
        missing: Keys of rows that the table lacks; for a table without a key: the rows.
        surplus: Keys of rows that the table should not have.
        changed: Keys of rows with other values.
        more: Whether some differing buckets were not compared by rows.
    """

    rows: int
    expected: int
    missing: tuple[Row, ...] = ()
    surplus: tuple[Row, ...] = ()
    changed: tuple[Row, ...] = ()
    more: bool = False

    def __bool__(self) -> bool:
        """Whether there is a difference."""
        return bool(self.missing or self.surplus or self.changed or self.more)

    def keys(self) -> set[Row]:
        """Return all keys that are known to differ."""
        return {*self.missing, *self.surplus, *self.changed}

    def of(self, keys: Collection[Row]) -> Difference:
        """Return the difference of some keys, among those that are known to differ."""
        missing, surplus, changed = (
            tuple(key for key in found if key in keys)
            for found in (self.missing, self.surplus, self.changed)
        )
        more = self.more and bool(keys)
        return Difference(self.rows, self.expected, missing, surplus, changed, more)

    def lines(self, columns: StructType, key: Sequence[str], limit: int = 10) -> Iterator[str]:
        """Yield report lines: counts by kind and sample keys."""
        kinds = [columns[name].dataType for name in key or columns.names]
        for what, keys in (
            ("missing", self.missing),
            ("unexpected", self.surplus),
            ("with other values", self.changed),
        ):
            if keys:
                yield f"{len(keys)}{' or more' if self.more else ''} {what}:"
                for one in keys[:limit]:
                    values = (shown(value, kind) for value, kind in zip(one, kinds, strict=True))
                    yield f"  ({', '.join(values)})"
                if len(keys) > limit:
                    yield f"  ... and {len(keys) - limit} more"


@dataclass(slots=True)
class Expected:
    """Rows that a table should have: those of a spool, some of them replaced.

    Attributes:
        columns: Names of the columns, in the rows' order.
        key: Names of the key's columns; empty for a table without one.
        spooled: Rows of the spool; those whose key is in `replaced` do not count.
        replaced: Keys whose rows are in `rows`, if they exist.
        rows: Rows by key; for a table without a key: number of occurrences by row.
    """

    columns: Sequence[str]
    key: Sequence[str]
    spooled: Iterable[Row]
    replaced: set[Row] = field(default_factory=set)
    rows: Mapping[Row, Row] | Counter[Row] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[Row, Row]]:
        """Yield the key and the row of each."""
        places = key_places(self.columns, self.key)
        for row in self.spooled:
            key = tuple(row[place] for place in places)
            if key not in self.replaced:
                yield key, row
        if isinstance(self.rows, Counter):
            for row in self.rows.elements():
                yield row, row
        else:
            yield from self.rows.items()


def settle(
    columns: Sequence[str],
    key: Sequence[str],
    spooled: Iterable[Row],
    read_again: Mapping[Row, Row | None],
    changes: Sequence[Change],
    sees: Callable[[Row, Change], bool],
) -> tuple[Expected, set[Row]]:
    """Return the rows that a table should have, with all rows brought to one position.

    Args:
        columns: Names of the columns, in the rows' order.
        key: Names of the key's columns; empty for a table without one.
        spooled: Rows as they were read first.
        read_again: Rows that were read later, by key; None where there was no row.
        changes: Changes that some row was read without, in order.
        sees: Whether the row that was read under a key has a change already; see `replay`.

    Returns:
        The rows, and the keys that have to be read again.
    """
    expected = Expected(columns, key, spooled)
    if not key:
        counts: Counter[Row] = Counter()
        unseen = [change for change in changes if not sees((), change)]
        for change in unseen:
            expected.replaced |= {row for row in (change.old, change.row) if row is not None}
        for row in spooled if unseen else ():
            if row in expected.replaced:
                counts[row] += 1
        replay_rows(unseen, counts)
        expected.rows = counts
        return expected, set()
    expected.replaced |= read_again.keys()
    for change in changes:
        expected.replaced |= {one for one in (change.key, change.old) if one is not None}
    places = key_places(columns, key)
    rows = {one: row for one, row in read_again.items() if row is not None}
    for row in spooled if changes else ():
        one = tuple(row[place] for place in places)
        if one in expected.replaced and one not in read_again:
            rows[one] = row
    opened = replay(changes, rows, sees)
    expected.rows = rows
    return expected, opened


def key_places(columns: Sequence[str], key: Sequence[str]) -> list[int]:
    """Return the positions of the key's columns; without a key, those of all columns."""
    return [list(columns).index(name) for name in key or columns]


def compare(table: DataFrame, expected: Expected) -> Difference:
    """Compare by counts and checksums, then by rows where these differ.

    Args:
        table: Rows of the table, with the columns of `expected` in that order.
        expected: Rows that the table should have; iterated over twice.
    """
    key = list(expected.key or expected.columns)
    wanted: dict[int, Totals] = defaultdict(Totals)
    for one, row in expected:
        wanted[_bucket(one)].add(row)
    marked = marks(table, expected.key).selectExpr(
        f"CAST(pmod(crc32(encode({joined_sql(key)}, 'UTF-8')), {BUCKETS}) AS INT) AS bucket",
        f"array({', '.join(map(quoted, key))}) AS k",
        f"{row_digest_sql(table.columns)} AS d",
    )
    there = {
        row.bucket: Totals(row.n, (int(row.s1), int(row.s2)))
        for row in marked.selectExpr(
            "bucket",
            "CAST(CAST(conv(substring(d, 1, 15), 16, 10) AS BIGINT) AS DECIMAL(20, 0)) AS h1",
            "CAST(CAST(conv(substring(d, 16, 15), 16, 10) AS BIGINT) AS DECIMAL(20, 0)) AS h2",
        )
        .groupBy("bucket")
        .agg(F.count("*").alias("n"), F.sum("h1").alias("s1"), F.sum("h2").alias("s2"))
        .collect()
    }
    differing = sorted(b for b in {*wanted, *there} if wanted.get(b) != there.get(b))
    rows = sum(totals.rows for totals in there.values())
    total = sum(totals.rows for totals in wanted.values())
    if not differing:
        return Difference(rows, total)
    compared = set(differing[:_MAX_BUCKETS_COMPARED])
    listed = ", ".join(map(str, sorted(compared)))
    balance: dict[Row, Counter[str]] = defaultdict(Counter)
    for one, row in expected:
        if _bucket(one) in compared:
            balance[one][digest(row)] += 1
    for row_digest in marked.where(f"bucket IN ({listed})").select("k", "d").toLocalIterator():
        balance[tuple(row_digest.k)][row_digest.d] -= 1
    return _difference(rows, total, balance, more=len(differing) > len(compared))


def _difference(
    rows: int, expected: int, balance: Mapping[Row, Counter[str]], *, more: bool
) -> Difference:
    missing: list[Row] = []
    surplus: list[Row] = []
    changed: list[Row] = []
    for key in sorted(balance, key=repr):
        digests = balance[key]
        lacking = sum(count for count in digests.values() if count > 0)
        extra = -sum(count for count in digests.values() if count < 0)
        both = min(lacking, extra)
        changed += [key] * both
        missing += [key] * (lacking - both)
        surplus += [key] * (extra - both)
    return Difference(rows, expected, tuple(missing), tuple(surplus), tuple(changed), more)


def _bucket(key: Row) -> int:
    return zlib.crc32(joined(key).encode()) % BUCKETS
