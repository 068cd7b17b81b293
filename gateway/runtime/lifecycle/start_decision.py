"""Decision of a start, from slot, watermark, server, plan and policy. Pure.

The slot is the lock. Before it is touched, `look` says whether it may be: a slot that is not proven
to be this gateway's is left alone, and where there is none, one may have to be made. While it is
held, and nobody else can move slot or watermark, `decide` says what to do.

    slot            watermark    server               ──►
    another's       any          any                  refuse
    no              no           any                  first start
    no              0            any                  first start: the one before died early
    no              yes          continues it         lost: stop, or copy again by policy
    yes             no           any                  refuse: not ours as far as Kafka knows
    yes             0            any                  first start died early: start over
    yes, lost       yes          continues it         lost: stop, or copy again by policy
    yes, beyond it  yes          continues it         lost: stop, or copy again by policy
    yes             yes          continues it         go on
    any             yes          does not             refuse: restored, replaced, promoted with loss
    any             yes          standby that lags    wait
    no              of the same definitions, from another server: refuse

A watermark of 0 is the claim that a gateway commits before it makes its slot: it proves that a slot
found later is its own, and that nothing was streamed from it.

The server is compared with the watermark because everything until the watermark is dropped as
known: a server whose history differs before that point would have its new transactions dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from gateway.core.errors import FatalError, SlotError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.core.watermark import CopyState, Watermark
from gateway.definitions.changes import copy_states
from gateway.definitions.model import Plan
from gateway.source.stream.server_position import ServerPosition
from gateway.source.stream.slot import SlotStatus, check_owner

__all__ = [
    "Decision",
    "Facts",
    "FirstStart",
    "GoOn",
    "LostSlotPolicy",
    "StartOver",
    "decide",
    "look",
]

LostSlotPolicy: TypeAlias = Literal["stop", "resync"]

_START_OVER: Final = "`pgsluice slot drop`, then `pgsluice run` copies all tables again"


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that decide a start.

    Attributes:
        slot: The slot of this name, or None.
        watermark: Watermark in Kafka for this server, database and slot, or None.
        elsewhere: System identifiers of other servers of which Kafka has a watermark for the same
            database, slot and definitions.
        definitions: Fingerprint of the current definitions.
        topic_names: ``[topics] names``.
    """

    name: str
    slot: SlotStatus | None
    watermark: Watermark | None
    server: ServerPosition
    plan: Plan
    definitions: str
    policy: LostSlotPolicy = "stop"
    elsewhere: Sequence[str] = ()
    topic_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FirstStart:
    """Claim the slot with a watermark of 0, create it, copy.

    Attributes:
        because: Reason for starting over, or None for the very first start.
    """

    because: str | None = None


@dataclass(frozen=True, slots=True)
class StartOver:
    """Commit a watermark of 0, drop the slot, and start for the first time.

    Attributes:
        because: The reason, for the log.
    """

    because: str


@dataclass(frozen=True, slots=True)
class GoOn:
    """Stream on from the watermark.

    Attributes:
        watermark: The watermark, with the copy states that apply from now on.
        confirmed_lsn: LSN where the slot's stream begins; None for a new slot.
        rewritten: Whether other definitions are to be put into force there first.
        altered: Whether the same definitions select other tables than before; these are to be put
            into force as well.
    """

    watermark: Watermark
    confirmed_lsn: Lsn | None = None
    rewritten: bool = False
    altered: bool = False


Decision: TypeAlias = FirstStart | StartOver | GoOn


def look(facts: Facts) -> FirstStart | None:
    """Return how to create the slot; None if it exists, and may be used.

    Raises:
        SlotError, TransientError: as `decide`.
    """
    if facts.slot is not None:
        _check_ours(facts.slot, facts)
        return None
    decision = decide(facts)
    assert isinstance(decision, FirstStart), "without a slot there is nothing to go on with"
    return decision


def decide(facts: Facts) -> Decision:
    """Return what to do; see the table above.

    Raises:
        SlotError: a person must act: the slot is another's, or changes since the watermark are
            gone, or the server is not the one of the watermark.
        TransientError: a standby has not yet replayed what Kafka has.
    """
    slot, watermark = facts.slot, facts.watermark
    if slot is not None:
        _check_ours(slot, facts)
    if watermark is None:
        if facts.elsewhere:
            raise _replaced(facts)
        return FirstStart()
    if watermark.end_lsn == ZERO_LSN:
        if slot is None:
            return FirstStart(
                "there was a slot before, or an earlier start ended before its slot was made"
            )
        return StartOver("an earlier start ended before it streamed")
    _check_history(watermark, facts.server)
    lost = _loss(facts.name, slot, watermark)
    if lost is None:
        assert slot is not None
        return _go_on(facts, watermark, slot.confirmed_flush_lsn)
    if facts.policy == "stop":
        raise SlotError(
            lost,
            hint=f'{_START_OVER}; [source] on_lost_slot = "resync" does so by itself',
        )
    return FirstStart(lost) if slot is None else StartOver(lost)


def _check_ours(slot: SlotStatus, facts: Facts) -> None:
    check_owner(slot, facts.server.database)
    if facts.watermark is None:
        raise _not_proven(facts)


def _loss(name: str, slot: SlotStatus | None, watermark: Watermark) -> str | None:
    """Return why changes since the watermark can no longer be read, or None."""
    reached = format_lsn(watermark.end_lsn)
    if slot is None:
        return (
            f'replication slot "{name}" is gone; Kafka has its changes until {reached}, and those '
            "since are lost"
        )
    if slot.lost:
        why = slot.invalidation_reason or "its WAL was removed"
        return f'replication slot "{name}" is lost ({why}); Kafka has its changes until {reached}'
    if slot.confirmed_flush_lsn is None:
        return f'replication slot "{name}" was not created to its end, but Kafka has {reached}'
    if slot.confirmed_flush_lsn > watermark.end_lsn:
        return (
            f'replication slot "{name}" was moved to {format_lsn(slot.confirmed_flush_lsn)}, '
            f"beyond the watermark {reached}: changes in between are lost"
        )
    return None


def _go_on(facts: Facts, watermark: Watermark, confirmed_lsn: Lsn | None) -> GoOn:
    watermark = _on_the_timeline_of(facts.server, watermark)
    if watermark.definitions != facts.definitions:
        return GoOn(watermark, confirmed_lsn, rewritten=True)
    states = copy_states(facts.plan, watermark.copies, reconcile=False, names=facts.topic_names)
    if _tables_of(states) != _tables_of(watermark.copies):
        return GoOn(watermark, confirmed_lsn, altered=True)
    return GoOn(replace(watermark, copies=states), confirmed_lsn)


def _on_the_timeline_of(server: ServerPosition, watermark: Watermark) -> Watermark:
    """Return the watermark without what an older timeline had after it was left.

    A table that is pending or held may have the position of a previous owner of its topics.
    """
    if server.timeline <= watermark.timeline:
        return watermark
    left = server.history[watermark.timeline]
    copies = tuple(
        replace(state, consistent_point=left)
        if state.state in ("pending", "held") and (state.consistent_point or ZERO_LSN) > left
        else state
        for state in watermark.copies
    )
    return replace(watermark, timeline=server.timeline, copies=copies)


def _tables_of(states: Iterable[CopyState]) -> set[tuple[str, str, str, int, str]]:
    distinct = ("missing", "held", "pending")
    return {
        (s.subscription, s.schema, s.table, s.oid, s.state if s.state in distinct else "")
        for s in states
    }


def _check_history(watermark: Watermark, server: ServerPosition) -> None:
    """Refuse a server whose WAL is not the continuation of what Kafka has."""
    reached, timeline = watermark.end_lsn, watermark.timeline
    if server.in_recovery and (server.wal_end < reached or server.timeline < timeline):
        raise TransientError(
            f"the standby has replayed up to {format_lsn(server.wal_end)}, Kafka has up to "
            f"{format_lsn(reached)}",
            hint="it goes on when the standby has caught up with its primary",
        )
    differs = _difference(server.history, timeline, reached, server)
    if differs is not None:
        raise SlotError(
            f"the changes in Kafka are not from this source server: {differs}; Kafka has "
            f"everything until {format_lsn(reached)} on timeline {timeline}, the server is at "
            f"{format_lsn(server.wal_end)} on timeline {server.timeline}",
            hint="it was restored from a backup, replaced, or promoted without its last changes. "
            "Point source.dsn at the right server; or, when this one is to stay, "
            f"{_START_OVER}, which brings the subscriber tables to what it holds",
        )


def _difference(
    history: Mapping[int, Lsn], timeline: int, reached: Lsn, server: ServerPosition
) -> str | None:
    if server.timeline < timeline:
        return "its timeline is older"
    if server.timeline > timeline:
        forked = history.get(timeline)
        if forked is None:
            return f"timeline {timeline} is not in its history"
        if forked < reached:
            return f"it left timeline {timeline} at {format_lsn(forked)}, before that"
    if server.wal_end < reached:
        return "its WAL ends before that"
    return None


def _not_proven(facts: Facts) -> FatalError:
    return SlotError(
        f'replication slot "{facts.name}" exists, but Kafka has no record that it belongs to this '
        "gateway",
        hint="when it does (another cluster in [kafka], or another [topics] progress): put that "
        "setting back. When it is another program's: choose another [source] slot. Only when "
        "nobody needs it any more: `pgsluice slot drop --force`, then `pgsluice run` copies all "
        "tables again",
    )


def _replaced(facts: Facts) -> FatalError:
    others = ", ".join(facts.elsewhere)
    return SlotError(
        f"the source server (system identifier {facts.server.system_identifier}) is not the one "
        f'that slot "{facts.name}" has been read from so far ({others})',
        hint="point source.dsn at the right server; or, when this one is to take its place, "
        f"`pgsluice slot drop --system-identifier {facts.elsewhere[0]}` forgets the other one, and "
        "`pgsluice run` copies all tables again",
    )
