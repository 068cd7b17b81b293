"""Copy jobs: one for each table and all subscriptions with the same progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.copy import ChunkedCopy, Claim, Front, Progress
from gateway.definitions.model import Plan, Table, TableCopy
from gateway.definitions.tables.keys import key_of
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.copied_rows import CopyRoute
from gateway.routing.row.counters import TopicCounter
from gateway.routing.row.filters import Filters
from gateway.runtime.copy.first_snapshot import FirstSnapshot
from gateway.runtime.copy.states import CopyStates
from gateway.source.copy.chunk_reader import ChunkSource

__all__ = ["CopyJob", "CopyReport", "CopyStanding", "make_jobs"]

_LEAST: Final = 0.001


@dataclass(frozen=True, slots=True)
class CopyStanding:
    """Progress of the copy of a table.

    Attributes:
        subscriptions: Names of the subscriptions.
        rows: Number of rows read so far.
        estimate: Number of all rows by the server's statistics; None if it has none.
        rows_per_second: Rate since the copy began, or was resumed.
    """

    subscriptions: tuple[str, ...]
    table: Table
    rows: int
    estimate: int | None
    rows_per_second: float
    done: bool

    @property
    def seconds_left(self) -> int | None:
        """Seconds that the rest takes at this rate; None if not known."""
        if self.estimate is None or not self.rows_per_second:
            return None
        return max(0, round((self.estimate - self.rows) / self.rows_per_second))


CopyReport = Callable[[CopyStanding], None]
"""Called at intervals."""


@dataclass(slots=True, eq=False)
class CopyJob:
    """The copy of one table for the subscriptions with the same progress.

    Attributes:
        part: The condition of the rows that are copied once more, of a table that stays ready;
            empty: the whole table is copied.
        front: The ranges that are being read.
        unread: Ranges of it whose ends are known, and which their threads could not read.
        awaits_sets: Whether sets are still to be built by which its rows are chosen; set by the
            loop.
        gate: Gate that a thread passes before it reads, of a job that was added later.
        workers: Number of threads that read it.
        begun: Whether one of them has asked the server for an estimate of its size.
        rows: Number of rows read so far by this copier.
        estimate: Number of all rows by the server's statistics; None if it has none.
        began_at: When the first thread began, in seconds of the monotonic clock.
        reported_at: When its progress was last reported, likewise.
        over: Whether it is ready, or was given up.
        records_per_row: Number of records that a row is expected to make.
    """

    table: Table
    copies: tuple[TableCopy, ...]
    route: CopyRoute
    source: ChunkSource
    copy: ChunkedCopy
    front: Front
    unread: list[Claim] = field(default_factory=list)
    awaits_sets: bool = False
    gate: FirstSnapshot | None = None
    workers: int = 0
    begun: bool = False
    rows: int = 0
    estimate: int | None = None
    began_at: float = 0.0
    reported_at: float = 0.0
    part: str = ""
    over: bool = False
    records_per_row: float = field(init=False)
    _counted: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.records_per_row = len(self.copies)
        self._counted = {counter.subscription: counter.copied for counter in self._counters()}

    def progress_of(self, copy: TableCopy) -> Progress:
        """Return the progress to commit for one of `copies`.

        Without its keys where the subscription masks one of their columns: after a restart, such a
        copy begins again.
        """
        progress = self.copy.progress
        if all(name not in self.route.key for name, _ in copy.masks):
            return progress
        return Progress(complete=progress.ready, rows=progress.rows)

    def pop_published(self, subscription: str) -> int:
        """Return how many rows a subscription has been sent since the last call."""
        now = sum(c.copied for c in self._counters() if c.subscription == subscription)
        before, self._counted[subscription] = self._counted.get(subscription, 0), now
        return now - before

    def _counters(self) -> Iterator[TopicCounter]:
        return (
            target.counter for route in self.route.projection_routes for target in route.targets
        )

    @property
    def is_ranged(self) -> bool:
        """Whether several threads can read it."""
        return bool(self.source.key) and not self.part

    def learn(self, rows: int, records: int) -> None:
        """Note that `rows` rows have become `records` records.

        A range without matching rows may be followed by one in which all match, so that the ratio
        falls by half at most.
        """
        if rows:
            self.records_per_row = max(records / rows, self.records_per_row / 2, _LEAST)


def _narrow(
    copies: Sequence[TableCopy], filters: Filters, key: Collection[str]
) -> tuple[tuple[str, ...], bool]:
    """Return the filters that the server can apply while a table is read, and what they read.

    Returns:
        The texts of the filters, of which each wanted row passes at least one; empty if all rows
        have to be read. And whether they read no column outside `key`.
    """
    if not key or not all(copy.filters for copy in copies):
        return (), True
    clauses = {clause for copy in copies for clause in copy.filters}
    if any(clause.formula for clause in clauses):
        return (), True  # the sets are those of the place of a chunk, not of its snapshot
    reads = {name for clause in clauses for name in filters.of(clause).columns}
    return tuple(sorted({clause.text for clause in clauses})), reads.issubset(key)


def make_jobs(
    plan: Plan, states: CopyStates, routes: RelationRoutes, copies: Iterable[TableCopy]
) -> Iterator[CopyJob]:
    """Prepare what is to be copied, and let `routes` show it the changes of its table.

    Yields:
        One for each table, key, progress and condition among the `copies` that are not settled.
    """
    groups: dict[tuple[object, ...], list[TableCopy]] = {}
    for copy in copies:
        state = states.of(copy)
        if state.is_settled:
            continue
        key = key_of(plan.tables[copy.target_oid], copy.columns) or ()
        alike = (copy.target_oid, key, state.progress, state.asked)
        groups.setdefault(alike, []).append(copy)
    for group in groups.values():
        table = plan.tables[group[0].target_oid]
        state = states.of(group[0])
        route = routes.copy_route(group, key_of(table, group[0].columns) or ())
        if any(map(states.is_schema_refused, group)):
            group = [copy for copy in group if not states.is_schema_refused(copy)]
            if not group:
                continue
            route = routes.copy_route(group, key_of(table, group[0].columns) or ())
        part = (state.asked or "") if state.state == "ready" else ""
        narrow, by_key = _narrow(group, routes.filters, route.key)
        masked = any(copy.masked_as for copy in group)
        source = ChunkSource(table, route.columns, route.key, part, narrow, by_key, masked)
        progress = state.progress if state.progress.started else Progress()
        chunked = ChunkedCopy(source.key_positions, progress)
        routes.watch(route, chunked, whole=() if part else group)
        front = Front(chunked.request())
        yield CopyJob(table, tuple(group), route, source, chunked, front, part=part)
