"""What is wrong with a gateway, and what to do: for the command, the endpoint and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from gateway.core.errors import HeldCause
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import UNTIL_ASKED, Refusal
from gateway.monitor.remedies import REMEDIES
from gateway.monitor.status import (
    KAFKA,
    SOURCE,
    Severity,
    TableStatus,
    retention_problem,
    table_moves,
    table_notices,
    tables_of,
)
from gateway.observe.moving import MovingTable
from gateway.source.session.blockers import Task, Wait
from tests.unit.monitor.figures import COPIES, SLOT, status

MIB = 1 << 20


def test_a_gateway_that_reads_its_slot_and_has_copied_all_has_no_problem() -> None:
    assert status().problems() == []


@pytest.mark.parametrize(
    ("changes", "severity", "text"),
    [
        ({"active_pid": None}, Severity.WAIT, "no gateway reads the slot"),
        ({"wal_status": "lost"}, Severity.ACT, "is lost (its WAL was removed)"),
        ({"invalidation_reason": "idle_timeout"}, Severity.ACT, "is lost (idle_timeout)"),
        ({"safe_wal_bytes": 50}, Severity.ACT, "max_slot_wal_keep_size"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_each_trouble_of_the_slot_is_named_and_says_what_to_do(
    changes: dict[str, Any], severity: Severity, text: str
) -> None:
    (problem,) = status(**changes).problems()

    assert problem.severity is severity
    assert text in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    ("state", "severity"),
    [
        ("pending", Severity.WAIT),
        ("copying", Severity.WAIT),
        ("held", Severity.ACT),
        ("missing", Severity.ACT),
    ],
)
def test_a_table_that_is_not_ready_is_named(state: str, severity: Severity) -> None:
    tables = [TableStatus("nsw", "public.t", state, reason="it has no identity")]

    (problem,) = replace(status(), tables=tables).problems()

    assert problem.severity is severity
    assert "table public.t of subscription nsw" in problem.message
    assert ("it has no identity" in problem.message) == (state == "held")


def test_a_first_start_that_has_not_said_yet_what_is_copied_is_not_all_well() -> None:
    claimed = replace(status(), durable_lsn=ZERO_LSN, tables=())

    (problem,) = claimed.problems()

    assert (problem.severity, problem.message) == (Severity.WAIT, "the gateway is starting")


def test_an_access_that_is_refused_is_said_once_and_before_what_may_pass() -> None:
    why, hint = "role r is not permitted to log in", "the role must be allowed to log in"
    refused = replace(status(), denied={why: hint}, away={SOURCE: why, KAFKA: "Connection refused"})

    first, second = refused.problems()

    assert (first.severity, first.message, first.hint) == (Severity.ACT, why, hint)
    assert (second.severity, second.message) == (
        Severity.WAIT,
        "Kafka does not answer: Connection refused",
    )


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("grant", "`pgsluice check --sql`"),
        ("publication", "the owner of the"),
        ("bypass_rls", "a superuser runs ALTER ROLE ... BYPASSRLS for the role"),
        ("lock", "let that session end"),
        ("identity", "a primary key"),
        ("column", "`pgsluice reload`"),
        ("compaction", "have the cleanup.policy"),
        ("markers", "keep a Kafka transaction open"),
        ("marker_schema", "delete from the registry"),
        ("schema", "[topics] names"),
        ("", "alter the table or the definitions"),
    ],
)
def test_the_hint_of_a_held_table_fits_the_code_of_its_reason(
    cause: HeldCause, remedy: str
) -> None:
    evil = "(GRANT row security hides rows [topics.keys] refuses the schema"
    tables = [TableStatus("nsw", f"public.{evil}", "held", reason=evil, cause=cause)]

    (problem,) = replace(status(), tables=tables).problems()

    assert remedy in (problem.hint or "")
    assert (problem.hint or "").endswith("copied automatically")


def test_each_code_has_a_remedy() -> None:
    assert {"", *UNTIL_ASKED, *REMEDIES} == set(get_args(HeldCause))


@pytest.mark.parametrize("cause", ["lost", "partitions"])
def test_a_table_that_waits_for_a_request_says_what_to_ask_for(cause: HeldCause) -> None:
    named = ("public", "t")
    tables = [TableStatus("nsw", "public.t", "held", reason="it is gone", cause=cause, parts=named)]

    (problem,) = replace(status(), tables=tables).problems()

    assert "it is gone" in problem.message
    assert "pgsluice copy public.t" in (problem.hint or "")


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("slot", "the slot waits"),
        ("copy", "the copy waits"),
        ("reload", "changed definitions wait"),
    ],
)
def test_who_keeps_something_waiting_is_named(task: Task, text: str) -> None:
    waits = [Wait(task, ("pid 7", "prepared transaction 'x'"), 30)]

    found = replace(status(), waits=waits)

    (problem,) = found.problems()
    assert problem.severity is Severity.WAIT
    running = "for transactions that are still running: pid 7; prepared transaction 'x'"
    assert problem.message == f"{text} {running}"
    (wait,) = found.as_json()["waits"]
    assert wait == {"task": task, "awaited": ("pid 7", "prepared transaction 'x'"), "age_s": 30}


def test_a_slot_that_is_read_before_there_is_a_watermark_is_a_start() -> None:
    (problem,) = replace(status(), durable_lsn=None, tables=()).problems()

    assert problem.message == "the gateway is starting"


def test_the_worst_comes_first() -> None:
    tables = [TableStatus("nsw", "t", "pending"), TableStatus("nsw", "u", "held")]

    found = replace(status(active_pid=None), tables=tables).problems()

    assert [problem.severity for problem in found] == [Severity.ACT, Severity.WAIT, Severity.WAIT]


def test_a_watermark_without_a_slot_is_a_loss_and_neither_is_a_beginning() -> None:
    lost = replace(status(), slot=None)
    new = replace(status(), slot=None, durable_lsn=None, tables=())

    assert [p.severity for p in lost.problems()] == [Severity.ACT]
    assert [p.severity for p in new.problems()] == [Severity.WAIT]


@pytest.mark.parametrize(
    ("kept", "left", "near"),
    [(10, 90, False), (74, 26, False), (75, 25, True), (99, 1, True), (200, -100, True)],
)
def test_retained_wal_is_a_problem_when_a_quarter_of_its_limit_is_left(
    kept: int, left: int, near: bool
) -> None:
    slot = replace(SLOT, safe_wal_bytes=left * MIB)

    problem = retention_problem(slot, kept * MIB)

    assert (problem is not None) == near


def test_the_json_has_what_the_lines_have() -> None:
    found = json.loads(json.dumps(status(safe_wal_bytes=1 << 30).as_json()))

    assert found["slot"] == {
        "name": "s",
        "exists": True,
        "active": True,
        "pid": 7,
        "reader": None,
        "reading_since": None,
        "wal_status": "reserved",
        "retained_bytes": 200,
        "left_bytes": 1 << 30,
    }
    assert (found["server_lsn"], found["watermark"]) == ("0/3E8", "0/384")
    assert found["behind_bytes"] == Lsn(1000) - Lsn(900)
    assert [table["table"] for table in found["tables"]] == ["public.t"]
    assert found["problems"] == []


def test_what_does_not_answer_is_named_and_the_other_is_shown() -> None:
    found = replace(status(), durable_lsn=None, tables=(), away={"Kafka": "no answer"})

    (problem,) = found.problems()

    assert (problem.severity, problem.message) == (
        Severity.WAIT,
        "Kafka does not answer: no answer",
    )
    assert found.as_json()["slot"]["retained_bytes"] is not None


def test_refused_definitions_are_to_be_dealt_with() -> None:
    refusal = Refusal(0, 0, "", "must be owner of table u", "let the owner run: ALTER ...")

    (problem,) = replace(status(), refusal=refusal).problems()

    assert problem.severity is Severity.ACT
    assert problem.message.endswith("1970-01-01 00:00:00 UTC: must be owner of table u")
    assert problem.hint == "let the owner run: ALTER ..."
    assert replace(status(), refusal=refusal).as_json()["refused"]["message"] in problem.message


def test_a_standby_that_does_not_take_over_and_a_file_that_is_not_in_force_are_named() -> None:
    base = status()
    (standby,) = replace(base, takeover_refused="why", standing_by=True).problems()
    (differs,) = replace(base, file_differs=True).problems()
    refusal = Refusal(0, 0, "f", "why")

    assert (standby.severity, standby.message) == (
        Severity.ACT,
        "this standby does not take over: why",
    )
    assert (differs.severity, differs.message) == (
        Severity.WAIT,
        "the definitions file differs from the definitions in force",
    )
    assert len(replace(base, file_differs=True, refusal=refusal).problems()) == 1
    assert replace(base, durable_lsn=None, standing_by=True).problems() == []


def test_after_slot_drop_it_is_said_what_is_left() -> None:
    dropped = replace(status(), slot=None, durable_lsn=Lsn(0), tables=())

    (problem,) = dropped.problems()
    (left,) = replace(dropped, publications=("s_leaf",)).problems()

    assert problem.message == "the slot and the watermark were dropped; topics keep their records"
    assert "publications are left: s_leaf" in left.message


def test_tables_whose_rows_move_say_since_when_and_how_much_is_left() -> None:
    moving = [MovingTable("nsw", "public.t", 5.0, 3, 12)]
    tables = tables_of(COPIES, lambda _: None, moving)

    names = ("moving_since", "unsettled", "moved_rows")
    found = [tuple(map(each.get, names)) for each in shown_tables(tables)]
    assert found == [(5.0, 3, 12), (None, 0, 0)]
    held = TableStatus("nsw", "public.v", "held", reason="it has no identity", unsettled=1)
    assert table_notices([*tables, held]) == [
        "table public.v of subscription nsw is held: it has no identity",
        "table public.t of subscription nsw: rows moving since 1970-01-01 00:00:05 UTC: "
        "3 values and keys to read, 12 rows moved so far",
    ]
    assert list(map(table_moves, tables)) == [
        "rows moving since 1970-01-01 00:00:05 UTC: "
        "3 values and keys to read, 12 rows moved so far",
        "",
    ]
    begun = TableStatus("nsw", "public.t", "ready", unsettled=1, moved_rows=1)
    assert table_moves(begun) == "rows moving: 1 value or key to read, 1 row moved so far"


def shown_tables(tables: list[TableStatus]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = replace(status(), tables=tables).as_json()["tables"]
    return found
