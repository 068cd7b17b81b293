"""The table of types is whole, and all that reads it agrees with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest

from gateway.definitions.model import Element
from gateway.envelope.canonical import KEY_FORMS as GATEWAY_FORMS
from gateway.envelope.encoding.conversions import CONVERSIONS, value_encoder
from gateway.envelope.schema import describe
from gateway.routing.row.native import ROWS
from pgsluice_client.keys import CANONICAL as CLIENT_FORMS
from schemas.settings.tables import TYPE_CHOICES, TypesTable
from schemas.types import (
    ARRAY,
    CHANGES,
    KEY_FORMS,
    MILLIS,
    PARTS,
    TYPES,
    VARIANTS,
    ColumnType,
    job_logical_type,
    of_column,
    of_debezium,
    of_spark,
)
from spark_consumer.values.conversions import CONVERSIONS as JOB_CONVERSIONS
from spark_consumer.values.keys import KEY_FORMS as JOB_FORMS
from tests.unit.envelope.columns import EnvelopeColumn, column, numeric

*NAMED, OTHER = TYPES


def name_of(entry: ColumnType) -> str:
    return next(iter([*entry.names, *entry.extension]), "other")


each_entry = pytest.mark.parametrize("entry", TYPES, ids=[name_of(t) for t in TYPES])


def column_of(entry: ColumnType) -> EnvelopeColumn:
    if entry.decimal:
        return numeric("c", 10, 2)
    if entry.array:
        return replace(column("c", (1007, "integer[]")), element=Element(23, -1, "integer", "b"))
    return column("c", (next(iter(entry.names.values()), 65_000), name_of(entry)))


def types_of(entry: ColumnType) -> TypesTable:
    return TypesTable(columns={"public.t.c": "native" if entry.choice else "text"})


def test_a_type_is_in_one_entry_or_has_one_more_as_text() -> None:
    oids = Counter(key for t in TYPES for key in {(oid, t.choice) for oid in t.names.values()})
    names = Counter((name, t.choice) for t in TYPES for name in (*t.names, *t.extension))

    assert set(oids.values()) == set(names.values()) == {1}
    assert all(t.spark != "string" or not t.decimal for t in TYPES)


def test_every_choice_is_a_setting_and_every_setting_a_choice() -> None:
    assert {entry.choice for entry in TYPES} - {""} == TYPE_CHOICES


def test_every_family_names_its_changes_and_each_has_a_test() -> None:
    root = Path(__file__).parents[4]
    named = {name for entry in TYPES for name in entry.changes}

    assert all(bool(entry.changes) is bool(entry.label) for entry in TYPES)
    assert named == set(CHANGES)
    assert all((root / change["test"]).is_file() for change in CHANGES.values())


def test_the_last_entry_alone_fits_every_type() -> None:
    assert all(entry.names or entry.extension or entry.array for entry in NAMED)
    assert (OTHER.names, OTHER.extension, OTHER.spark) == ({}, (), "string")


@each_entry
def test_an_entry_is_found_by_oid_and_by_name(entry: ColumnType) -> None:
    native = {entry.choice} - {""}
    modifier = column_of(entry).type_modifier
    found = {of_column(o, native=native, modifier=modifier) for o in entry.names.values()}
    assert found <= {entry}
    assert {of_column(65_000, f"s.{name}", native=native) for name in entry.extension} <= {entry}
    assert {of_spark(entry.spark, name) for name in (*entry.names, *entry.extension)} <= {entry}


@each_entry
def test_the_gateway_has_what_an_entry_names(entry: ColumnType) -> None:
    key = None if entry.nested else ("c",)
    schema = describe("public", "t", [column_of(entry)], key, types=types_of(entry))

    assert schema.fields[0].type is entry
    fastavro.parse_schema(schema.value_schema)
    value_encoder(schema.fields[0])
    assert (
        entry.conversion in CONVERSIONS
        or entry.decimal
        or entry.array
        or entry.bounds
        or entry.ranges
    )
    assert entry.key in KEY_FORMS


def semantic(entry: ColumnType) -> list[ColumnType]:
    """How Debezium's records carry it, with both kinds of times."""
    return [of_debezium(entry, connect=connect) for connect in (False, True) if entry.debezium]


def is_exact(entry: ColumnType) -> bool:
    return entry.logical not in MILLIS


@each_entry
def test_debezium_s_types_are_read_by_the_job_as_what_the_entry_is(entry: ColumnType) -> None:
    for one in filter(is_exact, semantic(entry)):
        assert isinstance(one.avro_type, dict)
        assert one.avro_type["connect.name"] == one.semantic
        logical = job_logical_type(one.avro_type)
        assert (logical is None) is (one.avro == "string" and entry.avro == "string")
        assert (one.spark, one.key, one.choice) == (entry.spark, entry.key, entry.choice)


@each_entry
def test_times_in_keys_have_microseconds(entry: ColumnType) -> None:
    for connect in (False, True):
        assert is_exact(of_debezium(entry, connect=connect, exact=True))


def test_a_semantic_type_of_another_avro_type_means_nothing() -> None:
    name = "io.debezium.time.MicroTimestamp"
    assert job_logical_type({"type": "long", "connect.name": name}) == "local-timestamp-micros"
    assert job_logical_type({"type": "string", "connect.name": name}) is None
    assert job_logical_type({"type": "long", "connect.name": [name]}) is None


def test_an_array_is_found_by_its_spark_type() -> None:
    assert of_spark("array<decimal(10,2)>", "numeric(10,2)[]") is ARRAY
    assert of_spark("array<int>", "public.counts") is ARRAY


def test_a_variant_is_one_whatever_its_type_is_called() -> None:
    assert frozenset({"json", "jsonb"}) == VARIANTS
    assert {of_spark("variant", name).conversion for name in (*VARIANTS, "s.facts")} == {"variant"}


@each_entry
def test_the_spark_job_has_what_an_entry_names(entry: ColumnType) -> None:
    assert entry.conversion in JOB_CONVERSIONS or entry.array or entry.bounds or entry.ranges
    assert entry.key in JOB_FORMS or entry.spark != "string" or entry.key in ("printed", "jsonb")


def test_every_side_has_conversions_and_canonical_forms_of_the_same_names() -> None:
    named = {entry.conversion for entry in TYPES} - {"array", "range", "multirange"}
    assert set(JOB_CONVERSIONS) == {*named, "variant"}
    assert {one.conversion for entry in TYPES for one in semantic(entry)} | named == {
        *CONVERSIONS,
        "decimal",
        "zoned_timestamp",
    }
    assert set(JOB_FORMS) <= set(KEY_FORMS)


def test_gateway_and_client_have_every_canonical_form_and_no_other() -> None:
    assert set(GATEWAY_FORMS) == set(CLIENT_FORMS) == set(KEY_FORMS)


def test_the_compiled_row_path_has_no_name_that_nobody_else_has() -> None:
    if not isinstance(ROWS, str):
        assert set(ROWS.CONVERSIONS) <= {*CONVERSIONS, "decimal", "zoned_timestamp"}
        assert set(ROWS.KEY_FORMS) <= set(KEY_FORMS)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("numeric(10,2)", "numeric"),
        ("numeric(10,2)[]", "numbers"),
        ("numrange", "numbers"),
        ("nummultirange[]", "numbers"),
        ("jsonb[]", "printed"),
        ("bpchar[]", "printed"),
        ("tsquery", "printed"),
        ("public.citext[]", "printed"),
        ("character(5)", "bpchar"),
        ("character(5)[]", "text"),
        ("character varying(5)", "text"),
        ("interval day to second(3)", "interval"),
        ("interval year", "interval"),
        ("interval(0)[]", "printed"),
        ("jsonb", "jsonb"),
        ("public.citext", "printed"),
        ('"Ext".citext', "printed"),
        ("numeric_codes.code", "text"),
        ("characters.name", "text"),
        ("intervals.label", "text"),
        ('public."numeric(1)"', "text"),
    ],
)
def test_a_column_of_text_is_found_by_what_format_type_calls_its_type(name: str, key: str) -> None:
    assert of_spark("string", name).key == key


def test_each_range_and_multirange_has_parts_that_the_table_names() -> None:
    with_parts = [entry for entry in TYPES if entry.bounds or entry.ranges]

    assert sorted(PARTS) == sorted(oid for entry in with_parts for oid in entry.names.values())
    for entry in with_parts:
        assert {*entry.names} == {*entry.bounds, *entry.ranges}


def test_a_column_whose_type_has_another_name_is_found_by_its_spark_type() -> None:
    assert of_spark("decimal(12,4)", "public.money_amount").conversion == "decimal"
    assert of_spark("bigint", "integer").conversion == "integer"
    assert of_spark("timestamp_ntz", "public.instant").conversion == "timestamp"
    assert of_spark("string", "public.label") is OTHER
