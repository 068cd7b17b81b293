"""``pgsluice tail``: one line for each change, in SQL's words."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.commands.tail import change_line, topics_of
from gateway.core.errors import ConfigError
from gateway.sink.reading.topic_reader import Followed

KNOWN = ["nsw.public.t", "nsw.public.u", "nsw.sales.t", "nsw.transaction", "nsw2.public.t", "own"]


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
    found = change_line(Followed("nsw.public.t", value, headers))
    return None if found is None else found.removeprefix("00000001/0000002A  nsw.public.t  ")


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
    assert change_line(Followed("nsw.public.t", None, {"lsn": "0/0"})) is None


@pytest.mark.parametrize(
    ("what", "topics"),
    [
        ("nsw", ["nsw.public.t", "nsw.public.u", "nsw.sales.t"]),
        ("nsw.t", ["nsw.public.t"]),
        ("nsw.sales.t", ["nsw.sales.t"]),
        ("nsw.v", ["own"]),
    ],
)
def test_a_subscription_or_a_table_is_named(what: str, topics: list[str]) -> None:
    names = {"nsw.public.v": "own"} if what == "nsw.v" else {}

    assert topics_of(what, KNOWN, names) == topics


def test_another_name_belongs_to_its_subscription() -> None:
    assert "own" in topics_of("nsw", KNOWN, {"nsw.public.v": "own"})


def test_what_has_no_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match="no topic of vic"):
        topics_of("vic", KNOWN, {})
