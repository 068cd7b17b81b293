"""What the job reads from an envelope's schema."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

import schemas
from gateway.definitions.model import Element
from gateway.definitions.tables.keys import KeyColumns
from gateway.envelope.schema import describe
from schemas.settings.tables import ChosenColumns, Envelope
from schemas.types import of_spark
from spark_consumer.errors import ContractError, TableError
from spark_consumer.kafka.layout import KeyLayout, identity_layout, value_layout
from spark_consumer.kafka.schema_contract import parsed_schema
from spark_consumer.values.keys import canonical
from tests.unit.envelope.columns import INT4, NATIVE, T1, EnvelopeColumn, column

ENVELOPE: dict[str, Any] = dict(schemas.load("envelope"))


def test_the_columns_are_those_of_the_row() -> None:
    assert [column.field for column in value_layout(ENVELOPE).columns] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("key", "chosen", "identity"),
    [
        (("a", "c"), (), KeyLayout(("a", "c"))),
        (("a", "c"), ("c",), KeyLayout(("a", "c"), in_row=True)),
        ((), ("b",), None),
        (None, ("b",), None),
        ((), (), None),
    ],
)
def test_rows_are_identified_by_the_replica_identity_whatever_the_key_is(
    key: KeyColumns, chosen: tuple[str, ...], identity: KeyLayout | None
) -> None:
    described = describe("public", "t1", T1, key, chosen=ChosenColumns(chosen, ("b",)))
    value, of_key = (
        None if schema is None else parsed_schema(1, json.dumps(schema))
        for schema in (described.value_schema, described.key_schema)
    )

    assert value is not None
    assert identity_layout(value, of_key) == identity


@pytest.mark.parametrize("names", [["gone"], [7], "a", {"a": 1}])
def test_an_identity_that_is_not_of_the_row_is_refused(names: Any) -> None:
    with pytest.raises(ContractError, match="pg_identity"):
        identity_layout(parsed_schema(1, json.dumps({**ENVELOPE, "pg_identity": names})), None)


@pytest.mark.parametrize("kind", [["null", "string"], "string", ["null", "Other"], {}, 7, None])
def test_a_schema_whose_row_after_the_change_is_of_another_type_is_no_envelope(kind: Any) -> None:
    schema = copy.deepcopy(ENVELOPE)
    schema["fields"][1]["type"] = kind

    with pytest.raises(ContractError, match="is not an envelope"):
        value_layout(schema)


@pytest.mark.parametrize(
    ("envelope", "why"),
    [
        (Envelope("row", truncates=False), "the format row"),
        (Envelope("debezium", truncates=False), "a topic without `t` records"),
        (Envelope("pgsluice", truncates=False), "a topic without `t` records"),
    ],
)
def test_a_topic_of_which_no_equal_table_can_be_made_is_refused(
    envelope: Envelope, why: str
) -> None:
    written = describe("public", "t1", T1, envelope=envelope).value_schema

    with pytest.raises(ContractError, match=why):
        value_layout(parsed_schema(1, json.dumps(written)))


@pytest.mark.parametrize("base", ["public.citext", "jsonb", "interval day[]"])
def test_a_domain_in_a_key_is_compared_as_its_base_type(base: str) -> None:
    domain = replace(
        column("k", (65_001, "code"), typtype="d"), base_type_oid=65_000, base_type_name=base
    )
    written = describe("public", "t", [domain], ("k",)).value_schema

    (layout,) = value_layout(parsed_schema(1, json.dumps(written))).columns

    with pytest.raises(TableError, match="a key column of type"):
        canonical("v", "string", layout.pg_type, key=True)


@pytest.mark.parametrize(
    ("name", "base", "conversion"),
    [
        ("public.place", "ext.geometry(Point,4326)", "ewkb"),
        ("public.place", "bytea", "bytea"),
        ("public.geometry", "bytea", "bytea"),
    ],
)
def test_the_bytes_of_a_domain_are_those_of_its_base_type(
    name: str, base: str, conversion: str
) -> None:
    oid = 17 if base == "bytea" else 65_000
    domain = replace(
        column("b", (65_001, name), typtype="d"), base_type_oid=oid, base_type_name=base
    )
    written = describe("public", "t", [domain], types=NATIVE).value_schema

    (layout,) = value_layout(parsed_schema(1, json.dumps(written))).columns

    assert of_spark("binary", layout.pg_type).conversion == conversion


def test_a_numeric_domain_in_a_key_is_compared_by_value() -> None:
    domain = replace(
        column("k", (65_001, "price"), typtype="d"), base_type_oid=1700, base_type_name="numeric"
    )
    written = describe("public", "t", [domain], ("k",)).value_schema

    (layout,) = value_layout(parsed_schema(1, json.dumps(written))).columns

    assert canonical("v", "string", layout.pg_type, key=True) == canonical(
        "v", "string", "numeric", key=True
    )


TSRANGE = (3908, "tsrange")
TIMESTAMPS = replace(
    column("c", (1115, "timestamp without time zone[]")),
    element=Element(1114, -1, "timestamp without time zone", "b"),
)


@pytest.mark.parametrize(
    "of",
    [
        column("c", (1083, "time without time zone")),
        column("c", (1114, "timestamp without time zone")),
        column("c", TSRANGE),
        TIMESTAMPS,
        replace(column("c", (3909, "tsrange[]")), element=Element(*(3908, -1, "tsrange", "b"))),
    ],
    ids=lambda of: of.type_name,
)
def test_a_topic_with_times_in_milliseconds_is_refused(of: EnvelopeColumn) -> None:
    def written(envelope: Envelope, key: KeyColumns = None) -> dict[str, Any]:
        columns = [column("a", INT4), of]
        found = describe("public", "t", columns, key, types=NATIVE, envelope=envelope)
        return parsed_schema(1, json.dumps(found.value_schema))

    connect = Envelope("debezium", connect_times=True)
    with pytest.raises(ContractError, match="has times in milliseconds") as caught:
        value_layout(written(connect, ("a",)))
    assert "time_precision" in str(caught.value.hint)
    value_layout(written(connect, ("a", "c")))
    value_layout(written(Envelope("debezium"), ("a",)))


def test_debezium_s_envelope_has_the_same_columns() -> None:
    written = describe("public", "t1", T1, envelope=Envelope("debezium")).value_schema

    assert value_layout(parsed_schema(1, json.dumps(written))) == value_layout(ENVELOPE)
