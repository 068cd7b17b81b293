"""What a start does: every row of the table in `gateway.runtime.lifecycle.start_decision`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.errors import FatalError, SlotError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import CopyState, Watermark
from gateway.definitions.model import Plan
from gateway.runtime.lifecycle.start_decision import (
    Decision,
    Facts,
    FirstStart,
    GoOn,
    StartOver,
    decide,
    look,
)
from gateway.source.stream.server_position import ServerPosition, parse_timeline_history
from gateway.source.stream.slot import SlotStatus

NO_TABLES = Plan({}, (), (), (), ())
SERVER = ServerPosition(
    "4711", "shop", timeline=3, wal_end=Lsn(9000), history={1: Lsn(100), 2: Lsn(500)}
)
SLOT = SlotStatus(
    name="pgsluice",
    plugin="pgoutput",
    database="shop",
    temporary=False,
    active_pid=None,
    confirmed_flush_lsn=Lsn(900),
    restart_lsn=Lsn(800),
    wal_status="reserved",
    safe_wal_bytes=None,
    invalidation_reason=None,
    two_phase=False,
)
WATERMARK = Watermark(Lsn(1000), 3, "d", ())
CLAIM = replace(WATERMARK, end_lsn=ZERO_LSN)

FACTS = Facts("pgsluice", SLOT, WATERMARK, SERVER, NO_TABLES, "d")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(replace(FACTS, slot=None, watermark=None), FirstStart(), id="nothing at all"),
        pytest.param(
            replace(FACTS, slot=None, watermark=CLAIM),
            FirstStart(
                "there was a slot before, or an earlier start ended before its slot was made"
            ),
            id="a claim without a slot",
        ),
        pytest.param(
            replace(FACTS, watermark=CLAIM),
            StartOver("an earlier start ended before it streamed"),
            id="a claim with a slot",
        ),
        pytest.param(
            replace(FACTS, slot=replace(SLOT, confirmed_flush_lsn=None), watermark=CLAIM),
            StartOver("an earlier start ended before it streamed"),
            id="a claim with a slot half made",
        ),
        pytest.param(FACTS, GoOn(WATERMARK, confirmed_lsn=Lsn(900)), id="all is well"),
        pytest.param(
            replace(FACTS, slot=replace(SLOT, confirmed_flush_lsn=Lsn(1000))),
            GoOn(WATERMARK, confirmed_lsn=Lsn(1000)),
            id="everything confirmed",
        ),
    ],
)
def test_a_start(facts: Facts, expected: Decision) -> None:
    assert decide(facts) == expected


LOST = [
    pytest.param(replace(FACTS, slot=None), "is gone", FirstStart, id="dropped"),
    pytest.param(
        replace(FACTS, slot=replace(SLOT, wal_status="lost")),
        "its WAL was removed",
        StartOver,
        id="its WAL removed",
    ),
    pytest.param(
        replace(FACTS, slot=replace(SLOT, invalidation_reason="idle_timeout")),
        "idle_timeout",
        StartOver,
        id="invalidated",
    ),
    pytest.param(
        replace(FACTS, slot=replace(SLOT, confirmed_flush_lsn=Lsn(1001))),
        "beyond the watermark 0/3E8",
        StartOver,
        id="moved",
    ),
    pytest.param(
        replace(FACTS, slot=replace(SLOT, confirmed_flush_lsn=None)),
        "not created to its end",
        StartOver,
        id="half made",
    ),
]


@pytest.mark.parametrize(("facts", "said", "decision"), LOST)
def test_a_lost_position_stops_by_default(
    facts: Facts, said: str, decision: type[FirstStart | StartOver]
) -> None:
    with pytest.raises(SlotError, match=said) as caught:
        decide(facts)

    assert "pgsluice slot drop" in (caught.value.hint or "")
    assert "on_lost_slot" in (caught.value.hint or "")


@pytest.mark.parametrize(("facts", "said", "decision"), LOST)
def test_a_lost_position_is_healed_by_policy(
    facts: Facts, said: str, decision: type[FirstStart | StartOver]
) -> None:
    made = decide(replace(facts, policy="resync"))

    assert isinstance(made, decision)
    assert said in (made.because or "")


@pytest.mark.parametrize("policy", ["stop", "resync"])
@pytest.mark.parametrize(
    ("slot", "database", "said"),
    [
        pytest.param(replace(SLOT, plugin="test_decoding"), "shop", "test_decoding", id="plugin"),
        pytest.param(replace(SLOT, plugin=None), "shop", "physical", id="physical"),
        pytest.param(SLOT, "other", "belongs to database shop", id="database"),
    ],
)
@pytest.mark.parametrize("watermark", [None, CLAIM, WATERMARK], ids=["never", "claim", "some"])
def test_a_slot_of_somebody_else_is_left_alone(
    slot: SlotStatus, database: str, said: str, watermark: Watermark | None, policy: str
) -> None:
    facts = replace(
        FACTS,
        slot=slot,
        watermark=watermark,
        server=replace(SERVER, database=database),
        policy="resync" if policy == "resync" else "stop",
    )

    for rule in (look, decide):
        with pytest.raises(SlotError, match=said):
            rule(facts)


@pytest.mark.parametrize("slot", [SLOT, replace(SLOT, wal_status="lost")], ids=["fine", "lost"])
def test_a_slot_that_kafka_knows_nothing_of_is_never_dropped(slot: SlotStatus) -> None:
    facts = replace(FACTS, slot=slot, watermark=None, policy="resync")
    with pytest.raises(SlotError, match="no record that it belongs to this gateway"):
        look(facts)
    with pytest.raises(SlotError, match="no record that it belongs to this gateway") as caught:
        decide(facts)

    hint = caught.value.hint or ""
    assert "[topics] progress" in hint
    assert "[source] slot" in hint
    assert "pgsluice slot drop --force" in hint


@pytest.mark.parametrize(
    ("server", "watermark", "said"),
    [
        pytest.param(
            replace(SERVER, wal_end=Lsn(999)),
            WATERMARK,
            "its WAL ends before that",
            id="restored from a copy",
        ),
        pytest.param(
            SERVER,
            replace(WATERMARK, timeline=2, end_lsn=Lsn(501)),
            "it left timeline 2 at 0/1F4, before that",
            id="promoted with a loss",
        ),
        pytest.param(
            replace(SERVER, history={1: Lsn(100)}),
            replace(WATERMARK, timeline=2),
            "timeline 2 is not in its history",
            id="another branch",
        ),
        pytest.param(
            replace(SERVER, timeline=2),
            WATERMARK,
            "its timeline is older",
            id="the old primary",
        ),
    ],
)
@pytest.mark.parametrize("slot", [None, SLOT], ids=["no slot", "slot"])
def test_a_server_with_another_history_is_refused_whatever_the_policy(
    server: ServerPosition, watermark: Watermark, said: str, slot: SlotStatus | None
) -> None:
    facts = replace(FACTS, server=server, watermark=watermark, slot=slot, policy="resync")

    with pytest.raises(SlotError, match=said) as caught:
        decide(facts)

    # Both positions, and the repair.
    message = str(caught.value)
    assert f"0/{watermark.end_lsn:X}" in message
    assert f"0/{server.wal_end:X}" in message
    assert "pgsluice slot drop" in message


@pytest.mark.parametrize("server", [replace(SERVER, wal_end=Lsn(999)), replace(SERVER, timeline=2)])
def test_a_standby_that_lags_is_waited_for(server: ServerPosition) -> None:
    with pytest.raises(TransientError, match="standby has replayed"):
        decide(replace(FACTS, server=replace(server, in_recovery=True)))


def test_another_server_with_the_same_definitions_is_refused() -> None:
    facts = replace(FACTS, slot=None, watermark=None, elsewhere=("1234",))

    with pytest.raises(FatalError, match=r"system identifier 4711.*1234"):
        decide(facts)


@pytest.mark.parametrize("watermark", [CLAIM, WATERMARK], ids=["claim", "some"])
@pytest.mark.parametrize("slot", [SLOT, replace(SLOT, wal_status="lost")], ids=["fine", "lost"])
def test_a_slot_that_is_proven_ours_is_taken_before_anything_else_is_decided(
    slot: SlotStatus, watermark: Watermark
) -> None:
    # The watermark may move until then.
    behind = replace(watermark, end_lsn=min(watermark.end_lsn, Lsn(1)))

    assert look(replace(FACTS, slot=slot, watermark=behind)) is None


def test_where_there_is_no_slot_one_is_made() -> None:
    assert look(replace(FACTS, slot=None, watermark=None)) == FirstStart()
    with pytest.raises(SlotError, match="is gone"):
        look(replace(FACTS, slot=None))


def test_the_watermark_takes_on_the_timeline_that_it_is_continued_on() -> None:
    before = replace(WATERMARK, timeline=2, end_lsn=Lsn(500))
    slot = replace(SLOT, confirmed_flush_lsn=Lsn(500))

    decision = decide(replace(FACTS, watermark=before, slot=slot))

    assert isinstance(decision, GoOn)
    assert decision.watermark.timeline == 3


def test_positions_that_an_older_timeline_had_after_it_was_left_are_not_kept() -> None:
    points = {"pending": 450, "held": 5000, "ready": 5000}
    copies = tuple(
        CopyState("s", "public", state, state, Lsn(point), oid=point)  # type: ignore[arg-type]
        for state, point in points.items()
    )
    slot = replace(SLOT, confirmed_flush_lsn=Lsn(300))
    found = decide(replace(FACTS, slot=slot, watermark=Watermark(Lsn(400), 2, "other", copies)))

    assert isinstance(found, GoOn)
    kept = {state.table: state.consistent_point for state in found.watermark.copies}
    assert kept == {"pending": 450, "held": 500, "ready": 5000}


def test_a_history_file_is_read() -> None:
    text = (
        "1\t0/3000148\tno recovery target specified\n"
        "# a comment\n"
        "\n"
        "2\t16/B374D848\tbefore 2026-01-01 00:00:00+00\n"
    )

    assert parse_timeline_history(text) == {1: 0x3000148, 2: 0x16B374D848}


@pytest.mark.parametrize("text", ["1", "one\t0/1\tx", "1\tzero\tx"])
def test_a_history_file_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(FatalError, match="history"):
        parse_timeline_history(text)
