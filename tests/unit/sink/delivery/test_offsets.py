"""Which delivery reports are asked for, and what the markers say of them."""

from __future__ import annotations

from gateway.core.lsn import Lsn
from gateway.core.records import Cut, Feed, Record
from gateway.sink.delivery.offsets import Ledger
from tests.support.models.markers import decode_marker

S = Feed("s", "s.transaction", b"12345\0\0", {"s.t": 2, "s.u": 1})
OTHER = Feed("other", "other.transaction", b"12345\0\0", {"other.t": 1})
FEEDS = (S, OTHER)


def to(topic: str, partition: int = 0, value: bytes | None = b"v") -> Record:
    return (topic, partition, None, value, [])


def close(ledger: Ledger, **fields: object) -> dict[str, list[tuple[object, ...]]]:
    """Markers by topic: their offsets."""
    cut = Cut(Lsn(9), 1, FEEDS, **fields)  # type: ignore[arg-type]
    found = {}
    for topic, partition, key, value, headers in (*ledger.idle(cut), *ledger.close(cut)):
        assert topic not in found
        assert (partition, key, dict(headers)["op"]) == (0, None, b"PROGRESS")
        assert value is not None
        marker = decode_marker(value[5:])
        assert (marker["kind"], marker["end_lsn"]) == ("PROGRESS", 9)
        found[topic] = [tuple(each.values()) for each in marker["offsets"]]
    return found


def test_reports_are_asked_for_the_first_and_the_last_record_of_each_partition() -> None:
    ledger = Ledger({})
    records = [to("s.t"), to("s.t"), to("s.t", 1), to("s.t"), to("s.t", 1), to("s.u")]

    assert ledger.enter(records) == {0, 3, 2, 4, 5}


def test_a_later_piece_asks_for_the_last_records_alone() -> None:
    ledger = Ledger({})
    ledger.enter([to("s.t")])

    assert ledger.enter([to("s.t"), to("s.t"), to("s.u"), to("s.u")]) == {1, 2, 3}


def test_a_marker_has_the_range_of_all_pieces_tombstones_too() -> None:
    ledger = Ledger({"s.t": (0, 5)})
    ledger.enter([to("s.t", 1), to("s.t", 1)])
    ledger.enter([to("s.t", 1, None)])
    for offset in (7, 8, 11):
        assert ledger.unreported(FEEDS) == "s.t"
        ledger.report("s.t", 1, offset)
    assert ledger.unreported(FEEDS) is None

    assert close(ledger) == {"s.transaction": [("s.t", 1, 7, 12, 5, 3)]}
    assert ledger.pop_changed() == {"s.t": (0, 12)}


def test_the_next_kafka_transaction_begins_where_this_one_ended() -> None:
    ledger = Ledger({})
    for first in (0, 2):
        ledger.enter([to("s.t")])
        ledger.report("s.t", 0, first)
        markers = close(ledger)

    assert markers == {"s.transaction": [("s.t", 0, 2, 3, 1, 1)]}
    assert ledger.pop_changed() == {"s.t": (3, 0)}
    assert ledger.pop_changed() == {}


def test_markers_go_to_those_who_have_records_or_markers_or_are_idle_for_long() -> None:
    ledger = Ledger({})

    assert close(ledger) == {}
    assert close(ledger, idle=["other"]) == {"other.transaction": []}
    ledger.enter([to("other.transaction"), to("gateway.message")])
    assert close(ledger) == {"other.transaction": []}


def test_markers_of_the_idle_wait_for_no_report() -> None:
    ledger = Ledger({})
    ledger.enter([to("s.t"), to("s.transaction")])
    cut = Cut(Lsn(9), 1, FEEDS, idle=["s", "other"])

    assert [topic for topic, *_ in ledger.idle(cut)] == ["other.transaction"]
    assert ledger.unreported(FEEDS) == "s.t"
    ledger.report("s.t", 0, 0)
    assert [topic for topic, *_ in ledger.close(cut)] == ["s.transaction"]


def test_reports_of_topics_that_no_marker_names_are_not_waited_for() -> None:
    ledger = Ledger({})
    ledger.enter([to("gateway.message"), to("s.transaction")])

    assert ledger.unreported(FEEDS) is None
    close(ledger)
    ledger.report("gateway.message", 0, 3)

    assert ledger.pop_changed() == {}


def test_a_record_at_an_offset_already_used_shows_that_its_topic_has_lost_the_earlier_ones() -> (
    None
):
    ledger = Ledger({"s.t": (4, 5), "s.u": (5,)})
    ledger.enter([to("s.t", 1), to("s.u"), to("other.t")])

    ledger.report("s.t", 1, 3)
    ledger.report("s.u", 0, 5)

    assert ledger.shorter(FEEDS) == {"s.t"}


def test_a_record_without_a_delivery_report_says_nothing_of_its_topic() -> None:
    ledger = Ledger({"s.t": (4, 5)})
    ledger.enter([to("s.t"), to("s.t")])

    ledger.report("s.t", 0, 0)

    assert ledger.shorter(FEEDS) == set()
