"""Positions up to which a previous owner of topics has published."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import choose_group, load_settings
from gateway.core.lsn import Lsn
from gateway.core.records import Writer
from gateway.definitions.model import Plan, SubscriptionDefinition
from gateway.runtime.planning.ownership import published_until, warn_of_gaps
from gateway.sink.own_topics.owners import Owner
from gateway.source.stream.server_position import ServerPosition

FILE = """
[source]
dsn = "postgresql://u@h/d"
[source.groups]
lows = ["s"]
rest = []
[definitions]
file = "replication.sql"
[kafka]
"bootstrap.servers" = "k:9092"
[registry]
url = "http://r:8081"
"""
ROWS = '[envelope.subscriptions]\ns = "row"'
MINE = Writer("1", "d", "pgsluice_lows", "g")
SIBLING = Writer("1", "d", "pgsluice_rest", "g")
SERVER = ServerPosition("1", "d", 3, Lsn(50), history={2: Lsn(40)})

NOT_COPIED = Plan(
    tables={},
    subscriptions=(SubscriptionDefinition("s", ("p",), copy_data=False),),
    publishes=(),
    copies=(),
    server_publications=(),
)


def taken_from(before: Writer = SIBLING, reached: int = 70, timeline: int = 3) -> dict[str, Owner]:
    return {"s": Owner(MINE, before, Lsn(reached), timeline)}


@pytest.mark.parametrize(
    ("lines", "before", "until"),
    [
        pytest.param("", SIBLING, 50, id="another group"),
        pytest.param("", Writer("1", "d", "pgsluice", "g"), 50, id="before there were groups"),
        pytest.param("", Writer("1", "d", "other", "g"), None, id="another configuration"),
        pytest.param("", Writer("2", "d", "pgsluice_rest", "g"), None, id="another server"),
        pytest.param(ROWS, SIBLING, None, id="no t"),
        pytest.param('[envelope]\nwithout_truncates = ["s"]', SIBLING, None, id="no t on request"),
    ],
)
def test_what_a_previous_owner_has_published_counts_where_the_copy_sets_the_rest_right(
    tmp_path: Path, lines: str, before: Writer, until: int | None
) -> None:
    (tmp_path / "pgsluice.toml").write_text(f"{FILE}{lines}")
    settings = choose_group(load_settings(tmp_path / "pgsluice.toml", {}), "lows")

    found = published_until(settings, taken_from(before), SERVER)

    assert found == ({} if until is None else {"s": until})


@pytest.mark.parametrize(
    ("timeline", "reached", "until"),
    [
        pytest.param(3, 45, 45, id="the server's"),
        pytest.param(3, 70, 50, id="beyond the server's end"),
        pytest.param(2, 40, 40, id="left for the server's"),
        pytest.param(2, 70, 40, id="left before that"),
        pytest.param(1, 70, None, id="not in its history"),
        pytest.param(0, 70, None, id="not known"),
    ],
)
def test_positions_of_a_timeline_count_only_up_to_where_it_was_left(
    tmp_path: Path, timeline: int, reached: int, until: int | None
) -> None:
    (tmp_path / "pgsluice.toml").write_text(FILE)
    settings = choose_group(load_settings(tmp_path / "pgsluice.toml", {}), "lows")

    found = published_until(settings, taken_from(reached=reached, timeline=timeline), SERVER)

    assert found == ({} if until is None else {"s": until})


@pytest.mark.parametrize(
    ("timeline", "reached", "published", "hint"),
    [
        pytest.param(3, 45, None, "", id="read by the server's timeline"),
        pytest.param(3, 44, "0/2C", "while the slot of ", id="not as far"),
        pytest.param(2, 70, "0/28", "failed over since", id="beyond where the timeline was left"),
        pytest.param(1, 70, "not known", "failed over since", id="of no timeline of the server"),
        pytest.param(0, 0, "not known", "while the slot of ", id="nothing was published"),
        pytest.param(0, 70, "not known", "does not name the timeline", id="without a timeline"),
    ],
)
def test_a_gap_is_said_that_positions_of_another_timeline_would_hide(
    caplog: pytest.LogCaptureFixture,
    timeline: int,
    reached: int,
    published: str | None,
    hint: str,
) -> None:
    taken = taken_from(reached=reached, timeline=timeline)

    warn_of_gaps(NOT_COPIED, taken, Lsn(45), SERVER)

    said = [vars(record)["fields"] for record in caplog.records]
    assert [fields["published_until"] for fields in said] == (
        [] if published is None else [published]
    )
    assert all(hint in fields["hint"] for fields in said), "no slot has what a failover has lost"
