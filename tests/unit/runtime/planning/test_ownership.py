"""Positions up to which a previous owner of topics has published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config import choose_group, load_settings
from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.core.records import Writer
from gateway.core.watermark import Watermark
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


def reached(timeline: int | None, lsn: int = 70) -> Watermark | None:
    return None if timeline is None else Watermark(Lsn(lsn), timeline, "", ())


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
    taken = {"s": Owner(MINE, before, Lsn(70))}

    found = published_until(settings, taken, SERVER, lambda _: reached(3))

    assert found == ({} if until is None else {"s": until})


@pytest.mark.parametrize(
    ("timeline", "until"),
    [
        pytest.param(3, 50, id="the server's"),
        pytest.param(2, 40, id="left for the server's"),
        pytest.param(1, None, id="not in its history"),
        pytest.param(None, None, id="not known"),
    ],
)
def test_positions_of_a_timeline_count_only_up_to_where_it_was_left(
    tmp_path: Path, timeline: int | None, until: int | None
) -> None:
    (tmp_path / "pgsluice.toml").write_text(FILE)
    settings = choose_group(load_settings(tmp_path / "pgsluice.toml", {}), "lows")
    taken = {"s": Owner(MINE, SIBLING, Lsn(70))}

    found = published_until(settings, taken, SERVER, lambda _: reached(timeline))

    assert found == ({} if until is None else {"s": until})


def test_a_position_from_before_an_owner_began_again_counts_not(tmp_path: Path) -> None:
    (tmp_path / "pgsluice.toml").write_text(FILE)
    settings = choose_group(load_settings(tmp_path / "pgsluice.toml", {}), "lows")
    taken = {"s": Owner(MINE, SIBLING, Lsn(50))}

    assert published_until(settings, taken, SERVER, lambda _: reached(3, 50)) == {"s": 50}
    assert published_until(settings, taken, SERVER, lambda _: reached(3, 0)) == {}


@pytest.mark.parametrize("left", [{}, {2: Lsn(50)}])
def test_a_position_that_was_promised_beyond_a_watermark_counts(
    tmp_path: Path, left: dict[int, Lsn], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pgsluice.toml").write_text(FILE)
    settings = choose_group(load_settings(tmp_path / "pgsluice.toml", {}), "lows")
    taken, server = {"s": Owner(MINE, SIBLING, Lsn(50))}, replace(SERVER, history=left)

    assert published_until(settings, taken, server, lambda _: reached(3, 45)) == {"s": 50}
    warn_of_gaps(NOT_COPIED, taken, Lsn(50), server, lambda _: reached(3, 45))
    assert caplog.records == []


def test_a_gap_is_said_though_kafka_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Writer) -> Watermark | None:
        raise TransientError("no answer")

    warn_of_gaps(NOT_COPIED, {"s": Owner(MINE, SIBLING, Lsn(70))}, Lsn(70), SERVER, fails)
    assert caplog.records == []
    warn_of_gaps(NOT_COPIED, {"s": Owner(MINE, SIBLING, Lsn(70))}, Lsn(71), SERVER, fails)
    assert vars(caplog.records[0])["fields"]["hint"].startswith("while the slot of ")


@pytest.mark.parametrize(
    ("watermark", "published"),
    [
        pytest.param(reached(3), None, id="read by the server's timeline"),
        pytest.param(reached(None), None, id="not known"),
        pytest.param(reached(2), "0/28", id="read beyond where the timeline was left"),
        pytest.param(reached(1), "not known", id="of a timeline that is not the server's"),
        pytest.param(reached(3, 0), "not known", id="begun again since"),
    ],
)
def test_a_gap_is_said_that_positions_of_another_timeline_would_hide(
    caplog: pytest.LogCaptureFixture, watermark: Watermark | None, published: str | None
) -> None:
    taken = {"s": Owner(MINE, SIBLING, Lsn(70))}

    warn_of_gaps(NOT_COPIED, taken, Lsn(45), SERVER, lambda _: watermark)

    said = [vars(record)["fields"]["published_until"] for record in caplog.records]
    assert said == ([] if published is None else [published])
    hints = [vars(record)["fields"]["hint"] for record in caplog.records]
    assert all("failed over since" in hint for hint in hints), "no slot has what is lost"
