"""What Prometheus reads, parsed back by its own client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.errors import UnfitKind
from gateway.core.watermark import CopyState
from gateway.definitions.ddl.authentication import REASONS
from gateway.monitor.metrics import PREFIX, Exposition
from gateway.monitor.status import tables_of
from gateway.observe import Figures
from gateway.observe.moving import MovingTable
from tests.unit.monitor.figures import COPIES, figures, loop_state, status

Sample = tuple[str, tuple[tuple[str, str], ...]]


def scraped(of: Figures | None, *, safe_wal_bytes: int | None = None) -> dict[Sample, float]:
    """Value by name without prefix, and labels."""
    return {
        (sample.name.removeprefix(PREFIX), tuple(sorted(sample.labels.items()))): sample.value
        for family in families(of, safe_wal_bytes=safe_wal_bytes)
        for sample in family.samples
    }


def families(of: Figures | None, *, safe_wal_bytes: int | None = None) -> Iterator[Metric]:
    """What Prometheus makes of it."""
    held = CopyState("nsw", "public", "v", "held", reason="it has no identity")
    tables = tables_of((*COPIES, held), lambda c: len(c.table) + 8)
    muted = {"silent": "its topic of markers is unfit"}
    shown = replace(status(safe_wal_bytes=safe_wal_bytes), tables=tables, muted=muted)
    exposition = Exposition(
        lambda: of, lambda: shown, lambda: {("warning", "sink.producer"): 2}, "s"
    )
    yield from text_string_to_metric_families(exposition.text().decode())


def everything() -> Iterator[Metric]:
    """Every metric that there can be."""
    lively = figures(
        errors={"TransientError": 4},
        quarantined={("public.t", "value"): 1},
        owner=("7", "shop", "s"),
        loop=loop_state(last_change=42.25),
    )
    yield from families(lively, safe_wal_bytes=5_000)


def test_rows_are_told_by_subscription_table_and_operation() -> None:
    found = scraped(figures())

    of_table = (("subscription", "nsw"), ("table", "public.t"))
    assert found["rows_total", (("operation", "insert"), *of_table)] == 3
    assert found["filtered_rows_total", of_table] == 2


def test_moves_are_told_by_subscription_and_table() -> None:
    moving = (MovingTable("nsw", "public.t", time.time() - 60, 3, 5),)

    found = scraped(figures(moved_rows={("nsw", "public.t"): 12}, moving=moving))

    t, u = ((("subscription", "nsw"), ("table", f"public.{name}")) for name in "tu")
    assert (found["moved_rows_total", t], found["moved_rows_total", u]) == (12, 0)
    assert (found["unsettled_values", t], found["unsettled_values", u]) == (3, 0)
    assert found["moving_seconds", t] >= 60
    assert found["moving_seconds", u] == 0


def test_lag_and_what_is_left_of_the_wal_are_told() -> None:
    found = scraped(figures(), safe_wal_bytes=5_000)

    assert found["lag_bytes", ()] == 100
    assert found["lag_seconds", ()] == 0
    assert found["retained_wal_bytes", ()] == 200
    assert found["retained_wal_left_bytes", ()] == 5_000


def test_without_a_limit_nothing_is_said_of_what_is_left() -> None:
    assert ("retained_wal_left_bytes", ()) not in scraped(figures())


def test_the_role_is_one_of_three() -> None:
    for phase, role in (("streaming", "leader"), ("standby", "standby"), ("retrying", "none")):
        found = scraped(figures(phase=phase))  # type: ignore[arg-type]
        roles = {
            dict(labels)["role"]: value for (name, labels), value in found.items() if name == "role"
        }

        assert roles == {"leader": 0, "standby": 0, "none": 0, role: 1}


def test_commits_are_told_as_histograms() -> None:
    found = scraped(figures())

    assert found["commit_seconds_bucket", (("le", "0.0025"),)] == 0
    assert found["commit_seconds_bucket", (("le", "0.005"),)] == 1
    assert found["commit_seconds_count", ()] == 1
    assert found["commit_records_sum", ()] == 40


def test_buffers_spools_copies_and_errors_are_told() -> None:
    found = scraped(figures(errors={"TransientError": 4}, loop=loop_state()))

    assert found["buffer_bytes", (("buffer", "waiting"),)] == 2
    assert found["spool_bytes", (("buffer", "intake"),)] == 5
    assert found["tables", (("state", "copying"),)] == 1
    assert found["copy_rows", (("subscription", "nsw"), ("table", "public.u"))] == 4
    assert found["copy_estimated_rows", (("subscription", "nsw"), ("table", "public.u"))] == 9
    assert found["errors_total", (("kind", "TransientError"),)] == 4
    assert found["log_events_total", (("level", "warning"), ("source", "sink.producer"))] == 2
    assert found["process_resident_memory_bytes", ()] > 0


def test_before_the_loop_has_posted_there_is_what_is_known() -> None:
    found = scraped(None)

    assert ("slot_active", ()) in found
    assert not any(name == "lag_seconds" for name, _ in found)


def test_what_is_known_beforehand_is_there_with_0_before_its_first_event() -> None:
    found = scraped(figures())

    for kind in get_args(UnfitKind):
        assert found["quarantined_records_total", (("kind", kind), ("table", "public.u"))] == 0
    for kind in ("TransientError", "SlotBusyError", "FencedError"):
        assert found["errors_total", (("kind", kind),)] == 0
    for reason in REASONS:
        assert found["ddl_messages_ignored_total", (("reason", reason),)] == 0
    of_table = (("subscription", "nsw"), ("table", "public.u"))
    for operation in ("insert", "update", "delete", "truncate", "copy"):
        assert found["rows_total", (("operation", operation), *of_table)] == 0
    assert found["filtered_rows_total", of_table] == 0


def test_what_has_been_counted_prevails() -> None:
    counted = figures(errors={"TransientError": 4}, quarantined={("public.t", "value"): 1})
    found = scraped(replace(counted, ignored={"forged": 3}))

    assert found["errors_total", (("kind", "TransientError"),)] == 4
    assert found["quarantined_records_total", (("kind", "value"), ("table", "public.t"))] == 1
    assert found["quarantined_records_total", (("kind", "size"), ("table", "public.t"))] == 0
    assert found["ddl_messages_ignored_total", (("reason", "forged"),)] == 3


def test_several_gateways_are_told_apart_by_their_slots() -> None:
    assert scraped(figures())["role", (("role", "leader"), ("slot", "s"))] == 1


def test_the_help_of_every_metric_is_a_sentence() -> None:
    for family in everything():
        words = family.documentation.split()
        assert family.documentation[0].isupper() or family.documentation[0] == "1", family.name
        is_ours = not family.name.removeprefix(PREFIX).startswith("process_")
        assert not is_ours or (family.documentation.endswith(".") and len(words) >= 7), family.name


def test_the_process_has_the_names_that_every_program_has() -> None:
    found = {family.name for family in families(None)}

    assert {"process_start_time_seconds", "process_resident_memory_bytes"} <= found


def test_owner_last_commit_and_last_change_are_told() -> None:
    owned = figures(owner=("7", "shop", "s"), committed_at=99.5, loop=loop_state(last_change=42.25))
    found = scraped(owned)
    labels = (("database", "shop"), ("slot", "s"), ("system_identifier", "7"))

    assert found["owner", labels] == 1
    assert scraped(replace(owned, phase="standby"))["owner", labels] == 0
    assert found["last_commit_timestamp_seconds", ()] == 99.5
    assert found["last_change_timestamp_seconds", ()] == 42.25
