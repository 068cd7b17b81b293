"""What becomes of a change whose values, record or schema do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.errors import (
    RecordSizeError,
    SchemaRefusedError,
    UnfitError,
    UnfitKind,
    ValueFormatError,
)
from gateway.core.lsn import Lsn
from gateway.core.records import wire_size
from gateway.definitions.model import Element, Operation, TableCopy
from gateway.pgoutput.messages import (
    UNCHANGED,
    Delete,
    Insert,
    LogicalMessage,
    ReplicaIdentity,
    Truncate,
    Update,
)
from schemas.settings.tables import TypesTable
from schemas.types import MOST_ITEMS
from tests.support.gateway.routing_scene import (
    T1,
    T1_TABLE,
    Gateway,
    Schemas,
    Seen,
    column,
    data,
    full_tuple,
    key_tuple,
    publish,
    relation_of,
    table,
    update,
)

FAR, NEAR = b"294276-12-31 00:00:00", b"2024-01-01 00:00:00"
"""A timestamp that PostgreSQL has and Avro has not, and one that both have."""
AT = column("at", 2, 1114, "timestamp without time zone")
NOTE = column("note", 3, 25, "text")
EVENTS = table(T1, "t1", (column("a", 1), AT, NOTE))
EVENTS_FULL = table(T1, "t1", (column("a", 1), AT, NOTE), replica_identity=ReplicaIdentity.FULL)
TAGS = replace(column("tags", 2, 1007, "integer[]"), element=Element(23, -1, "integer", "b"))
TAGGED = table(T1, "t1", (column("a", 1), TAGS))
KINDS: tuple[UnfitKind, ...] = ("filter", "value", "size", "schema")


def quarantining(*publishes: Any, tables: Sequence[Any] = (EVENTS,), **how: Any) -> Gateway:
    return Gateway(tables, publishes, quarantined=KINDS, **how)


def errors(seen: Sequence[Seen]) -> list[dict[str, Any]]:
    return [s.value for s in seen if s.topic == "gw.error" and s.value is not None]


def taken(seen: Sequence[Seen]) -> list[tuple[str, str | None]]:
    rows = [s for s in data(seen) if s.topic != "gw.error" and s.value is not None]
    return [(s.topic.partition(".")[0], s.op) for s in rows]


def facts(seen: Sequence[Seen]) -> list[tuple[Any, ...]]:
    return [(e["kind"], e["subscription"], e["effect"], e["key"]) for e in errors(seen)]


def test_an_unfit_value_concerns_those_that_publish_its_column_and_take_the_row() -> None:
    gateway = quarantining(
        publish("s"),
        publish("same"),
        publish("filtered", "(a > 5)"),
        publish("few", columns=("a", "note")),
    )

    seen = gateway.commit(
        relation_of(EVENTS), Insert(T1, (b"1", FAR, b"x")), Insert(T1, (b"7", NEAR, b"y"))
    )

    assert facts(seen) == [
        ("value", "s", "missing", {"a": "1"}),
        ("value", "same", "missing", {"a": "1"}),
    ]
    assert errors(seen)[0]["reason"].startswith("public.t1, column at: a timestamp lies after")
    assert taken(seen) == [(s, "c") for s in ("few", "s", "same", "filtered", "few")]


@pytest.mark.parametrize(
    ("change", "sent", "effects"),
    [
        pytest.param(update(None, b"1", FAR, b"x"), [], ["stale"], id="the new row of an update"),
        pytest.param(
            update(full_tuple(b"1", FAR, b"x"), b"1", NEAR, b"x"),
            [],
            ["stale"],
            id="the old row of an update, where it was logged",
        ),
        pytest.param(
            update(full_tuple(b"1", NEAR, b"x"), b"9", FAR, b"x"),
            ["d"],
            [],
            id="the new row of an update that leaves the filter is not sent",
        ),
        pytest.param(
            update(full_tuple(b"9", FAR, b"x"), b"1", NEAR, b"x"),
            ["c"],
            [],
            id="nor the old row of one that enters it",
        ),
        pytest.param(
            Delete(T1, full_tuple(b"1", FAR, b"x")), [], ["kept"], id="the old row of a delete"
        ),
    ],
)
def test_a_change_is_sent_or_quarantined_as_a_whole(
    change: Update | Delete, sent: list[str], effects: list[str]
) -> None:
    gateway = quarantining(publish(where="(a < 5)"), tables=[EVENTS_FULL])

    seen = gateway.commit(relation_of(EVENTS_FULL), change)

    assert [op for _, op in taken(seen)] == sent
    assert [e["effect"] for e in errors(seen)] == effects


def array(items: int) -> bytes:
    """An array as PostgreSQL prints it."""
    return b"{%s}" % b",".join([b"7"] * items)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(array(MOST_ITEMS + 1), "an array has more than 1,000,000 items", id="items"),
        pytest.param(b"{{7},{7}}", "an array cannot be carried", id="dimensions"),
        pytest.param(b"[0:1]={7,7}", "an array cannot be carried", id="lower bound"),
        pytest.param(b"{7,x}", "a value cannot be read as array", id="item"),
    ],
)
def test_an_array_that_readers_would_not_accept_is_quarantined(text: bytes, reason: str) -> None:
    gateway = quarantining(publish(), tables=[TAGGED], types=TypesTable(arrays="native"))

    seen = gateway.commit(
        relation_of(TAGGED), Insert(T1, (b"1", text)), Insert(T1, (b"2", b"{7,NULL}"))
    )

    assert facts(seen) == [("value", "s", "missing", {"a": "1"})]
    assert errors(seen)[0]["reason"].startswith(f"public.t1, column tags: {reason}")
    (row,) = (s.value for s in data(seen) if s.topic != "gw.error")
    assert row is not None
    assert row["after"] == {"a": 2, "tags": [7, None]}


def test_an_array_of_as_many_items_as_readers_accept_is_sent() -> None:
    gateway = quarantining(publish(), tables=[TAGGED], types=TypesTable(arrays="native"))

    seen = gateway.commit(relation_of(TAGGED), Insert(T1, (b"1", array(MOST_ITEMS))))

    assert taken(seen) == [("s", "c")]


def test_an_hstore_of_more_pairs_than_readers_accept_is_quarantined() -> None:
    bag = table(T1, "t1", (column("a", 1), column("tags", 2, 65_000, "public.hstore")))
    gateway = quarantining(publish(), tables=[bag], types=TypesTable(hstore="native"))
    pairs = b", ".join(b'"%d"=>NULL' % number for number in range(MOST_ITEMS))

    seen = gateway.commit(
        relation_of(bag),
        Insert(T1, (b"1", pairs + b', "more"=>NULL')),
        Insert(T1, (b"2", b'"b"=>"7"')),
    )

    assert facts(seen) == [("value", "s", "missing", {"a": "1"})]
    reason = "public.t1, column tags: an hstore has more than 1,000,000 pairs"
    assert errors(seen)[0]["reason"].startswith(reason)
    assert taken(seen) == [("s", "c")]


@pytest.mark.parametrize(
    "text", [b"178956971 years", b"178956971 years 00:00:01", b"-178956971 years +00:00:01"]
)
def test_an_interval_of_more_months_than_postgresql_has_is_quarantined(text: bytes) -> None:
    spans = table(T1, "t1", (column("a", 1), column("span", 2, 1186, "interval")))
    gateway = quarantining(publish(), tables=[spans], types=TypesTable(interval="native"))

    seen = gateway.commit(relation_of(spans), Insert(T1, (b"1", text)))

    assert facts(seen) == [("value", "s", "missing", {"a": "1"})]


def test_a_row_that_fits_again_is_sent_where_the_old_one_was_not_logged() -> None:
    gateway = quarantining(publish())

    seen = gateway.commit(
        relation_of(EVENTS),
        Update(T1, None, (b"1", FAR, UNCHANGED)),
        Update(T1, None, (b"1", NEAR, UNCHANGED)),
    )

    assert facts(seen) == [("value", "s", "stale", {"a": "1"})]
    assert errors(seen)[0]["unchanged"] == ["note"]
    assert taken(seen) == [("s", "u")]


def test_stop_names_row_and_setting() -> None:
    gateway = Gateway([EVENTS], [publish()], quarantined={"filter", "size", "schema"})

    with pytest.raises(ValueFormatError) as caught:
        gateway.commit(relation_of(EVENTS), Insert(T1, (b"1", FAR, b"secret")))

    assert "(row at LSN 0/5DE, transaction 7)" in caught.value.message
    assert '[on_error] value = "quarantine"' in str(caught.value.hint)
    assert "secret" not in str(caught.value)


def test_a_transaction_of_an_origin_that_is_left_out_leaves_nothing_in_the_error_topic() -> None:
    gateway = quarantining(publish(), origin_none=frozenset({"s"}))

    seen = gateway.commit(relation_of(EVENTS), Insert(T1, (b"1", FAR, None)), origin="elsewhere")

    assert data(seen) == []


TOPIC = "s.public.t1"


def size_of(gateway: Gateway, note: bytes) -> int:
    """The bytes of the record that an INSERT becomes."""
    transaction = gateway.transaction(relation_of(EVENTS), Insert(T1, (b"1", NEAR, note)))
    records = [record for piece in gateway.router.route(transaction) for record in piece]
    (found,) = [wire_size(r[2], r[3], r[4]) for r in records if r[0] == TOPIC]
    return found


@pytest.mark.parametrize(("spare", "effects"), [(0, []), (-1, ["missing"])])
def test_a_record_may_be_as_large_as_its_topic_takes(spare: int, effects: list[str]) -> None:
    size = size_of(Gateway([EVENTS], [publish()]), b"x" * 50_000)
    gateway = quarantining(publish(), publish("other"), most_bytes={TOPIC: size + spare})

    seen = gateway.commit(relation_of(EVENTS), Insert(T1, (b"1", NEAR, b"x" * 50_000)))

    assert [e["effect"] for e in errors(seen)] == effects
    assert ("other", "c") in taken(seen)
    assert (("s", "c") in taken(seen)) is (not effects)


@pytest.mark.parametrize(("nulls", "effects"), [(5_000, ["missing"]), (4_000, [])])
def test_a_key_that_is_larger_than_its_value_counts(nulls: int, effects: list[str]) -> None:
    whole_row = replace(
        TAGGED, replica_identity=ReplicaIdentity.FULL, identity=("a", "tags"), primary_key=()
    )
    gateway = quarantining(
        publish(),
        tables=[whole_row],
        types=TypesTable(arrays="native"),
        most_bytes={TOPIC: 30_000},
    )

    # A NULL is five bytes of a key's text, and one byte in the value.
    seen = gateway.commit(
        relation_of(whole_row), Insert(T1, (b"1", b"{%s}" % b",".join([b"NULL"] * nulls)))
    )

    assert [e["effect"] for e in errors(seen)] == effects
    assert (("s", "c") in taken(seen)) is (not effects)


def test_an_array_much_smaller_in_avro_than_as_text_is_sent() -> None:
    instants = replace(
        column("at", 2, 1185, "timestamp with time zone[]"),
        element=Element(1184, -1, "timestamp with time zone", "b"),
    )
    shown = table(T1, "t1", (column("a", 1), instants))
    gateway = quarantining(
        publish(),
        tables=[shown],
        types=TypesTable(arrays="native"),
        most_bytes={TOPIC: 300_000},
    )
    text = b"{%s}" % b",".join([b'"1970-01-01 00:00:00.000001+00"'] * 80_000)

    seen = gateway.commit(relation_of(shown), Insert(T1, (b"1", text)))

    assert taken(seen) == [("s", "c")]


def test_halves_of_a_key_change_are_quarantined_together_and_not_counted() -> None:
    gateway = quarantining(publish(), most_bytes={TOPIC: 30_000})
    large = update(key_tuple(b"1", None, None), b"2", NEAR, b"x" * 40_000)

    seen = gateway.commit(relation_of(EVENTS), large, Insert(T1, (b"3", NEAR, b"small")))

    assert taken(seen) == [("s", "c")]
    assert facts(seen) == [("size", "s", "stale", {"a": "1"})]
    end = seen[-1].value
    assert end is not None
    assert end["topics"] == [{"topic": TOPIC, "records": 1}]


@pytest.mark.parametrize(
    ("most", "omitted"),
    [
        pytest.param(1_000_000, [], id="everything"),
        pytest.param(50_000, ["note"], id="without the long value"),
        pytest.param(300, ["note"], id="without anything long"),
    ],
)
def test_the_error_record_is_as_small_as_its_topic_wants_it(most: int, omitted: list[str]) -> None:
    gateway = quarantining(publish(), most_bytes={TOPIC: 30_000, "gw.error": most})

    seen = gateway.commit(relation_of(EVENTS), Insert(T1, (b"1", NEAR, b"x" * 100_000)))

    (error,) = errors(seen)
    assert error["omitted"] == omitted
    assert error["key"] == {"a": "1"}
    assert ("note" in error["after"]) is (not omitted)


def test_an_oversized_record_stops_with_its_size_and_both_settings() -> None:
    gateway = Gateway([EVENTS], [publish()], most_bytes={TOPIC: 30_000})

    with pytest.raises(
        RecordSizeError, match=f"larger than topic {TOPIC} accepts, 30000"
    ) as caught:
        gateway.commit(relation_of(EVENTS), Insert(T1, (b"1", NEAR, b"x" * 40_000)))

    for setting in ("max.message.bytes", '"message.max.bytes" in [kafka]', "[on_error] size"):
        assert setting in str(caught.value.hint)


def test_a_logical_message_that_is_too_large_is_quarantined() -> None:
    gateway = quarantining(
        publish(), prefixes=frozenset({"app"}), most_bytes={"gw.message": 20_000}
    )

    seen = gateway.commit(LogicalMessage(True, Lsn(1500), "app", b"x" * 30_000))

    assert [(s.topic, s.headers["op"]) for s in seen] == [("gw.error", "m")]
    assert facts(seen) == [("size", None, "missing", None)]
    assert gateway.router.pop_quarantined() == {("gw.message", "size"): 1}


class Refusing(Schemas):
    """A registry that refuses the values of one topic."""

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        if subject == f"{TOPIC}-value":
            raise SchemaRefusedError(f"refuses {subject}", reason="not compatible")
        return super().register(subject, schema)


def refusing(*quarantined: UnfitKind) -> Gateway:
    return Gateway(
        [T1_TABLE],
        [publish("s", "(b > 5)"), publish("other")],
        quarantined=quarantined,
        schemas=Refusing(),
        copies=[TableCopy(name, T1, (), ("a", "b")) for name in ("s", "other")],
    )


def test_a_table_whose_schema_is_refused_is_held_for_that_subscription() -> None:
    gateway = refusing("schema")

    seen = gateway.commit(
        relation_of(T1_TABLE),
        Insert(T1, (b"1", b"1")),
        Insert(T1, (b"2", b"9")),
        Truncate(False, False, (T1,)),
    )

    assert facts(seen) == [
        ("schema", "s", "missing", {"a": "2"}),
        ("schema", "s", "kept", None),
    ]
    assert {e["reason"] for e in errors(seen)} == {"not compatible"}
    assert taken(seen) == [("other", "c"), ("other", "c"), ("other", "t")]
    assert list(gateway.routes.addresses.refused) == [("s", T1)]
    markers = [s.value for s in seen if s.topic == "s.transaction" and s.value is not None]
    assert [(m["kind"], m["copy"]["state"], m["end_lsn"]) for m in markers] == [
        ("COPY", "pending", 2008)
    ]


def test_it_stays_held_when_the_registry_accepts_the_schema_later() -> None:
    gateway = refusing("schema")
    gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"2", b"9")))
    gateway.schemas.register = Schemas.register.__get__(gateway.schemas)  # type: ignore[method-assign]
    narrower = table(T1, "t1", T1_TABLE.columns[1:], identity=())

    seen = gateway.commit(relation_of(narrower), Insert(T1, (b"9",)))

    assert facts(seen) == [("schema", "s", "missing", None)]


@pytest.mark.parametrize("when", ["at the start", "in the stream"])
def test_a_refused_schema_stops_and_names_the_setting(when: str) -> None:
    gateway = refusing("value")

    with pytest.raises(UnfitError, match=r"refuses s\.public\.t1-value") as caught:
        if when == "at the start":
            gateway.routes.register_all()
        else:
            gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"2", b"9")))

    assert '[on_error] schema = "quarantine"' in str(caught.value.hint)


def test_operations_that_are_not_published_are_not_quarantined() -> None:
    inserts = frozenset({Operation.INSERT})
    gateway = Gateway(
        [T1_TABLE],
        [publish(operations=inserts)],
        quarantined={"schema"},
        schemas=Refusing(),
    )

    seen = gateway.commit(relation_of(T1_TABLE), Delete(T1, key_tuple(b"1", None)))

    assert seen == []
