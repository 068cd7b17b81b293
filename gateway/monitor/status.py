"""Status of slot, watermark and tables: state, problems, and what to do. Pure.

One value, derived from the server and Kafka; the command, the HTTP endpoint and the page show the
same and apply the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from gateway.core.errors import HeldCause
from gateway.core.identifiers import quote_identifier
from gateway.core.lsn import Lsn, format_lsn
from gateway.core.watermark import CopyState, Refusal
from gateway.monitor.health import muted, refused, takeover_refused
from gateway.monitor.page.texts import moves
from gateway.monitor.remedies import remedy_of
from gateway.observe.moving import MovingTable
from gateway.source.session.blockers import Task, Wait
from gateway.source.stream.slot import SlotStatus

__all__ = [
    "KAFKA",
    "SOURCE",
    "Problem",
    "Severity",
    "Status",
    "TableStatus",
    "of_table",
    "retention_problem",
    "table_notices",
    "table_problem",
    "tables_of",
]

_WAITERS: Final[Mapping[Task, str]] = {
    "slot": "the slot waits",
    "copy": "the copy waits",
    "reload": "changed definitions wait",
}
SOURCE: Final = "PostgreSQL"
KAFKA: Final = "Kafka"
NEAR: Final = 0.25
"""Remaining fraction of max_slot_wal_keep_size at which to warn."""


class Severity(IntEnum):
    """Severity of a problem: what a supervisor should do."""

    WAIT = 1
    """The problem may pass by itself."""
    ACT = 2
    """An operator must act."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem with its hint and severity."""

    severity: Severity
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of one table of one subscription.

    Attributes:
        table: Its name, as ``schema.table``.
        read: Number of rows that the copy has read so far.
        published: Number of these rows sent to the subscription, after its filters.
        estimate: Estimated number of rows, by the server's statistics; None if unknown.
        reason: Reason for which it is held.
        cause: Code of that reason.
        topic: Topic that has its rows; empty if unknown.
        asked: Requested copy of a ready table: the condition on its rows, empty for the whole
            table, None without a request. The row counts then refer to that copy.
        moving_since: Time since when rows of it enter or leave because another table has changed,
            in seconds since 1970; None if none do, or it is not known.
        unsettled: Number of values and keys whose rows are still to be read because of that.
        moved_rows: Number of rows that were read because of that so far.
        parts: Schema and name, which `table` does not tell apart where one has a dot.
    """

    subscription: str
    table: str
    state: str
    read: int = 0
    published: int = 0
    estimate: int | None = None
    reason: str = ""
    asked: str | None = None
    cause: HeldCause = ""
    topic: str = ""
    moving_since: float | None = None
    unsettled: int = 0
    moved_rows: int = 0
    parts: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a gateway, as its servers report it.

    Attributes:
        name: Name of the slot.
        slot: Status of the slot; None if there is none.
        server_lsn: End of the server's WAL.
        durable_lsn: Watermark in Kafka; None if there is none.
        waits: Waits for other sessions' transactions.
        refusal: Refusal of changed definitions.
        away: Reasons why servers do not answer, by server; the state of these is unknown.
        denied: Hints by message, for access that a server refuses the gateway's user.
        muted: Reasons why nothing is published for a subscription, by subscription.
        lagging: Notice of a lag above the limit, or None.
        publications: Existing publications of the gateway; determined only without a slot.
        standing_by: Whether the gateway stands by.
        takeover_refused: Reason why a standby does not take over; empty if it does.
        file_differs: Whether the definitions file differs from the definitions in force.
        last_change: Commit time at the source of the last transaction in Kafka that changed rows,
            in seconds since 1970; None if unknown.
    """

    name: str
    slot: SlotStatus | None
    server_lsn: Lsn | None
    durable_lsn: Lsn | None
    tables: Sequence[TableStatus] = ()
    waits: Sequence[Wait] = ()
    refusal: Refusal | None = None
    away: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, str] = field(default_factory=dict)
    muted: Mapping[str, str] = field(default_factory=dict)
    lagging: str | None = None
    publications: Sequence[str] = ()
    standing_by: bool = False
    takeover_refused: str = ""
    file_differs: bool = False
    last_change: float | None = None

    @property
    def lag_bytes(self) -> int | None:
        """WAL between the watermark and the server in bytes; None without a watermark."""
        if not self.durable_lsn or self.server_lsn is None:
            return None
        return max(0, self.server_lsn - self.durable_lsn)

    @property
    def retained(self) -> int | None:
        """WAL that the server retains for the slot in bytes; None if it retains none."""
        if self.slot is None or self.slot.restart_lsn is None or self.server_lsn is None:
            return None
        return max(0, self.server_lsn - self.slot.restart_lsn)

    @property
    def left(self) -> int | None:
        """WAL that can be written before the slot may be lost, in bytes; None if unlimited."""
        return None if self.slot is None else self.slot.safe_wal_bytes

    @property
    def silent(self) -> dict[str, str]:
        """Notices of unreachable servers, by name; one that refuses the user is reachable."""
        return {
            name: f"{name} does not answer: {why}"
            for name, why in self.away.items()
            if why not in self.denied
        }

    def problems(self) -> list[Problem]:
        """Return the problems, worst first."""
        return sorted(self._problems(), key=lambda problem: -problem.severity)

    def _problems(self) -> Iterator[Problem]:
        for message, hint in self.denied.items():
            yield Problem(Severity.ACT, message, hint or None)
        for notice in self.silent.values():
            yield Problem(
                Severity.WAIT,
                notice,
                "the rest of the status is current; a running gateway retries by itself",
            )
        if self.lagging is not None:
            yield Problem(Severity.WAIT, self.lagging)
        if self.refusal is not None:
            yield Problem(
                Severity.ACT,
                refused(self.refusal),
                self.refusal.hint
                or "`pgsluice check` has details; the previous definitions stay in force",
            )
        if self.takeover_refused:
            yield Problem(
                Severity.ACT,
                takeover_refused(self.takeover_refused),
                "use the same definitions file for all gateways: `pgsluice reload` puts the "
                "leader's into force, SIGHUP to the standby its own at a failover",
            )
        if self.file_differs and self.refusal is None:
            yield Problem(
                Severity.WAIT,
                "the definitions file differs from the definitions in force",
                "`pgsluice reload` puts it into force, a restart if the masks of [columns] differ; "
                "with a standby, use the same file for all gateways",
            )
        if SOURCE not in self.away:
            yield from self._slot_problems()
        for name, why in self.muted.items():
            yield Problem(
                Severity.ACT,
                muted(name, why),
                "repair the topic, the rights or the subject, or end what keeps its markers from "
                "being read; its tables are then copied",
            )
        for table in self.tables:
            found = table_problem(table)
            if found is not None:
                yield found

    def _slot_problems(self) -> Iterator[Problem]:
        if self.slot is None and KAFKA in self.away:
            return
        if self.slot is None:
            if self.durable_lsn:
                yield Problem(
                    Severity.ACT,
                    f"replication slot {self.name} is gone; changes since the watermark are lost",
                    "`pgsluice slot drop` forgets the watermark, too; the next `pgsluice run` "
                    "copies all tables again",
                )
            elif self.publications:
                yield Problem(
                    Severity.WAIT,
                    "the slot and the watermark were dropped; publications are left: "
                    + ", ".join(self.publications),
                    "`pgsluice run` starts over and copies all tables; to remove them: "
                    + "; ".join(
                        f"DROP PUBLICATION {quote_identifier(n)}" for n in self.publications
                    ),
                )
            elif self.durable_lsn is not None:
                yield Problem(
                    Severity.WAIT,
                    "the slot and the watermark were dropped; topics keep their records",
                    "`pgsluice run` starts over and copies all tables",
                )
            else:
                yield Problem(Severity.WAIT, "no gateway has run yet", "start `pgsluice run`")
            return
        if self.slot.lost:
            why = self.slot.invalidation_reason or "its WAL was removed"
            yield Problem(
                Severity.ACT,
                f"replication slot {self.name} is lost ({why})",
                "raise max_slot_wal_keep_size, then `pgsluice slot drop` and `pgsluice run`: all "
                "tables are copied again",
            )
        elif not self.slot.active:
            yield Problem(
                Severity.WAIT,
                "no gateway reads the slot; the server retains WAL for it",
                "start `pgsluice run`, or check its log",
            )
        elif self._is_starting():
            yield Problem(Severity.WAIT, "the gateway is starting")
        for wait in self.waits:
            yield Problem(
                Severity.WAIT,
                f"{_WAITERS[wait.task]} for transactions that are still running: {wait}",
                "let them end, or end them: pg_terminate_backend(pid), ROLLBACK PREPARED",
            )
        near = retention_problem(self.slot, self.retained)
        if near is not None:
            yield near

    def _is_starting(self) -> bool:
        # A watermark of 0 is the claim of a first start, before the tables to copy are known.
        known = bool(self.durable_lsn) or KAFKA in self.away
        return not (known or self.waits or self.standing_by)

    def as_json(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        return {
            "slot": {
                "name": self.name,
                "exists": self.slot is not None,
                "active": self.slot is not None and self.slot.active,
                "pid": None if self.slot is None else self.slot.active_pid,
                "reader": None if self.slot is None else self.slot.reader,
                "reading_since": None if self.slot is None else self.slot.reading_since,
                "wal_status": None if self.slot is None else self.slot.wal_status,
                "retained_bytes": self.retained,
                "left_bytes": self.left,
            },
            "server_lsn": None if self.server_lsn is None else format_lsn(self.server_lsn),
            "watermark": None if self.durable_lsn is None else format_lsn(self.durable_lsn),
            "behind_bytes": self.lag_bytes,
            "last_change": self.last_change,
            "tables": [
                {
                    "subscription": table.subscription,
                    "table": table.table,
                    "topic": table.topic or None,
                    "state": table.state,
                    "rows_read": table.read,
                    "rows_published": table.published,
                    "estimate": table.estimate,
                    "reason": table.reason or None,
                    # The condition is omitted: it may quote values of rows.
                    "asked": None if table.asked is None else "part" if table.asked else "all",
                    "moving_since": table.moving_since,
                    "unsettled": table.unsettled,
                    "moved_rows": table.moved_rows,
                }
                for table in self.tables
            ],
            "waits": [
                {"task": wait.task, "awaited": wait.names, "age_s": wait.age_s}
                for wait in self.waits
            ],
            "refused": None
            if self.refusal is None
            else {
                "since": self.refusal.since_ms / 1000,
                "message": self.refusal.message,
                "hint": self.refusal.hint or None,
            },
            "away": dict(self.away),
            "lagging": self.lagging,
            "muted": dict(self.muted),
            "takeover_refused": self.takeover_refused or None,
            "file_differs": self.file_differs,
            "publications": list(self.publications),
            "problems": [
                {
                    "severity": problem.severity.name.lower(),
                    "message": problem.message,
                    "hint": problem.hint,
                }
                for problem in self.problems()
            ],
        }


def retention_problem(slot: SlotStatus, retained: int | None) -> Problem | None:
    """Return the problem of WAL retention that approaches its limit, or None."""
    left = slot.safe_wal_bytes
    if slot.lost or left is None or retained is None:
        return None
    most = left + retained
    if left > NEAR * most:
        return None
    return Problem(
        Severity.ACT,
        f"the slot retains {_mib(retained)} MiB of WAL, and is lost once the server has written "
        f"{_mib(max(0, left))} MiB more (max_slot_wal_keep_size)",
        "find out what delays the gateway, or raise max_slot_wal_keep_size: if the slot is lost, "
        "all tables are copied again",
    )


def table_notices(tables: Iterable[TableStatus]) -> list[str]:
    """Return a line for each table that is held or missing, or whose rows move."""
    tables = list(tables)
    held = [table_problem(table) for table in tables if table.state in ("held", "missing")]
    return [problem.message for problem in held if problem is not None] + [
        f"table {table.table} of subscription {table.subscription}: {table_moves(table)}"
        for table in tables
        if table.unsettled and table.state == "ready"
    ]


def table_moves(table: TableStatus) -> str:
    """Return how far the moves of a table are; an empty text if no row moves."""
    if not table.unsettled:
        return ""
    return moves(table.unsettled, table.moving_since, table.moved_rows)


def table_problem(table: TableStatus) -> Problem | None:
    """Return the problem of a table, or None."""
    named = f"table {table.table} of subscription {table.subscription}"
    if table.state == "held":
        hint = remedy_of(table.cause, table.parts)
        return Problem(Severity.ACT, f"{named} is held: {table.reason}", hint)
    if table.state == "missing":
        return Problem(
            Severity.ACT,
            f"{named} is no longer in the source database",
            "create it again, or remove it from the definitions and run `pgsluice reload`",
        )
    if table.state != "ready":
        return Problem(Severity.WAIT, f"{named} is not copied yet")
    return None


def of_table(copy: CopyState) -> tuple[str, str]:
    """Return subscription and table as named in the figures."""
    return copy.subscription, f"{copy.schema}.{copy.table}"


def tables_of(
    copies: Sequence[CopyState],
    estimate: Callable[[CopyState], int | None],
    moving: Sequence[MovingTable] = (),
) -> list[TableStatus]:
    """Return the tables of a watermark; `estimate` returns the estimated row count of one."""
    by_table = {(each.subscription, each.table): each for each in moving}
    return [
        TableStatus(
            *of_table(c),
            c.state,
            read=c.progress.rows,
            published=c.published,
            estimate=estimate(c),
            reason=c.reason,
            asked=c.asked,
            cause=c.cause,
            parts=(c.schema, c.table),
            topic=c.topic,
            moving_since=None if found is None else found.since,
            unsettled=0 if found is None else found.unsettled,
            moved_rows=0 if found is None else found.moved_rows,
        )
        for c in copies
        if c.state != "gone"
        for found in [by_table.get(of_table(c))]
    ]


def _mib(size: int) -> int:
    return round(size / (1 << 20))
