"""``pgsluice tail``: one line for each change, in SQL's words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.commands.tail.command import topics_of
from gateway.commands.tail.lines import change_line, change_object
from gateway.core.errors import ConfigError
from gateway.sink.reading.topic_reader import Followed

TIME = datetime(2026, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)
KNOWN = [
    "Odd-x002E-name.Sch.a-x002E-b",
    "nsw.public.t",
    "nsw.public.u",
    "nsw.sales.orders",
    "nsw.sales.t",
    "nsw.transaction",
    "nsw2.public.t",
    "own",
]


def line(
    op: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    *,
    identity: str = "d",
    unchanged: tuple[str, ...] = (),
    rekey: str | None = None,
) -> str | None:
    value = {
        "op": op,
        "before": before,
        "after": after,
        "unchanged": list(unchanged),
        "source": {"identity": identity},
    }
    headers = {"lsn": "00000001/0000002A"} | ({} if rekey is None else {"rekey": rekey})
    found = change_line(Followed("nsw.public.t", value, headers, TIME))
    begin = "2026-03-01 10:00:00.123Z  1/2A  -  nsw.public.t  "
    return None if found is None else found.removeprefix(begin)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (line("c", after={"a": 1, "c": "NSW"}), "INSERT a=1 c=NSW"),
        (line("r", after={"a": 1, "c": None}), "COPY a=1 c=NULL"),
        (line("d", before={"a": 1, "c": None}), "DELETE a=1"),
        (line("t"), "TRUNCATE"),
        (line("u", after={"a": 1, "c": "two words"}), "UPDATE a=1 c='two words'"),
        (
            line("u", {"a": 1, "c": "x"}, {"a": 1, "c": "it's"}, identity="f"),
            "UPDATE a=1: c x -> 'it''s'",
        ),
        (line("u", {"a": 1}, {"a": 1}, identity="f"), "UPDATE a=1: nothing"),
        (
            line("u", after={"a": 1, "c": None}, unchanged=("c",)),
            "UPDATE a=1, unchanged: c",
        ),
        (
            line("c", {"a": 1, "c": None}, {"a": 2, "c": "x"}, rekey="new"),
            "UPDATE a=1 to a=2 c=x",
        ),
        (line("c", after={"b": b"\x00\xff"}), "INSERT b=00ff"),
        (line("c", after={"a": [1, None, "a b"]}), "INSERT a={1,NULL,'a b'}"),
        (line("c", after={"a": [7] * 21}), f"INSERT a={{{'7,' * 20}...}}"),
        (line("c", after={"c": "x" * 100}), f"INSERT c={'x' * 57}..."),
    ],
)
def test_a_change_is_one_line(shown: str | None, text: str) -> None:
    assert shown == text


def test_half_of_a_key_change_and_a_tombstone_say_nothing() -> None:
    assert line("d", before={"a": 1}, rekey="old") is None
    assert change_line(Followed("nsw.public.t", None, {"lsn": "0/0"}, TIME)) is None


def test_a_change_is_one_json_object_with_the_values_of_the_topic() -> None:
    value = {
        "op": "u",
        "before": None,
        "after": {"a": 1, "d": Decimal("1.50"), "b": b"\x00\xff", "f": float("nan"), "c": "\u202e"},
        "unchanged": ["c"],
        "source": {"identity": "d", "schema": "public", "table": "t"},
    }
    headers = {
        "lsn": "00000001/0000002A",
        "commit_lsn": "00000001/0000003B",
        "xid": "745",
        "seq": "2",
        "op": "u",
    }

    found = change_object(Followed("nsw.public.t", value, headers, TIME))

    assert found is not None and "\n" not in found
    assert json.loads(found) == {
        "time": "2026-03-01T10:00:00.123456Z",
        "lsn": "1/2A",
        "commit_lsn": "1/3B",
        "xid": 745,
        "seq": 2,
        "topic": "nsw.public.t",
        "schema": "public",
        "table": "t",
        "op": "u",
        "rekey": None,
        "before": None,
        "after": {"a": 1, "d": "1.50", "b": "\\x00ff", "f": "NaN", "c": "\u202e"},
        "unchanged": ["c"],
    }


def test_a_position_that_no_gateway_has_written_is_shown_as_it_is() -> None:
    value = {"__op": "c", "__lsn": 1, "__deleted": "false", "n": 1}
    record = Followed("nsw.public.t", value, {"lsn": "soon"}, TIME)

    line, found = change_line(record), change_object(record)

    assert line == "2026-03-01 10:00:00.123Z  soon  -  nsw.public.t  INSERT n=1"
    assert found is not None
    assert [json.loads(found)[name] for name in ("lsn", "commit_lsn")] == ["soon", None]


@pytest.mark.parametrize(
    ("what", "topics"),
    [
        ("nsw", ["nsw.public.t", "nsw.public.u", "nsw.sales.orders", "nsw.sales.t"]),
        ("nsw.orders", ["nsw.sales.orders"]),
        ("NSW.Orders", ["nsw.sales.orders"]),
        ("nsw.public.t", ["nsw.public.t"]),
        ("nsw.sales.t", ["nsw.sales.t"]),
        ("nsw.v", ["own"]),
        ('"Odd.name"."Sch"."a.b"', ["Odd-x002E-name.Sch.a-x002E-b"]),
        ("Odd.name.Sch.a.b", ["Odd-x002E-name.Sch.a-x002E-b"]),
    ],
)
def test_a_subscription_or_a_table_is_named(what: str, topics: list[str]) -> None:
    names = {"nsw.public.v": "own"} if what == "nsw.v" else {}

    assert topics_of(what, KNOWN, names)[1] == tuple(topics)


def test_another_name_belongs_to_its_subscription() -> None:
    assert topics_of("nsw", KNOWN, {"nsw.public.u": "own"}) == (
        "nsw",
        ("nsw.public.t", "nsw.sales.orders", "nsw.sales.t", "own"),
    )


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("vic", "Kafka has no topic for vic"),
        ("nsw.x", 'Kafka has no topic for table "x"'),
        ("nsw.t", "t is ambiguous: public.t, sales.t"),
        ('nsw."Orders"', "Kafka has no topic for table"),
    ],
)
def test_what_has_no_topic_or_several_is_refused(what: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        topics_of(what, KNOWN, {})


@pytest.mark.parametrize(
    ("what", "guess"),
    [
        ("t", "did you mean nsw.t or nsw2.t? "),
        ("sales.Orders", "did you mean nsw.sales.orders? "),
        ("public.x", ""),
    ],
)
def test_a_table_without_its_subscription_is_guessed(what: str, guess: str) -> None:
    with pytest.raises(ConfigError) as refused:
        topics_of(what, KNOWN, {})
    assert str(refused.value.hint).startswith(f"{guess}write SUBSCRIPTION")
