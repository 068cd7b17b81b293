"""Which Avro a table becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fastavro
import pytest

import schemas
from gateway.core.errors import SchemaError
from gateway.definitions.model import Column, Element, Table
from gateway.definitions.tables.keys import key_of
from gateway.envelope.schema import describe, has_choice
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.tables import TYPE_CHOICES, ChosenColumns, Envelope, TypeMode, TypesTable
from tests.unit.envelope.columns import INT4, NATIVE, T1, TEXT, EnvelopeColumn, column, numeric


def value_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = schema["fields"][0]["type"][1]["fields"]
    return fields


def test_the_manuals_t1_has_the_value_schema_of_the_contract() -> None:
    assert describe("public", "t1", T1, ("a", "c")).value_schema == schemas.load("envelope")


def test_tables_share_no_part_that_one_of_them_changes() -> None:
    contract = schemas.load("envelope")
    others = [
        describe("public", "t2", [column("x", TEXT)], ()),
        describe("public", "t3", T1, ("a",), envelope=Envelope(format="debezium")),
    ]
    assert describe("public", "t1", T1, ("a", "c")).value_schema == contract
    assert [field["name"] for field in value_fields(others[0].value_schema)] == ["x"]
    assert [each.value_schema["namespace"] for each in others] == [
        "pgsluice.public.t2",
        "pgsluice.public.t3",
    ]


def test_the_manuals_t1_has_the_key_schema_of_the_contract() -> None:
    assert describe("public", "t1", T1, ("a", "c")).key_schema == schemas.load("envelope-key")


DATE = {"type": "int", "logicalType": "date"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
UUID = {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize(
    ("oid", "avro"),
    [
        pytest.param(16, "boolean", id="bool"),
        pytest.param(21, "int", id="int2"),
        pytest.param(23, "int", id="int4"),
        pytest.param(20, "long", id="int8"),
        pytest.param(26, "long", id="oid"),
        pytest.param(28, "long", id="xid"),
        pytest.param(29, "long", id="cid"),
        pytest.param(700, "float", id="float4"),
        pytest.param(701, "double", id="float8"),
        pytest.param(1700, "string", id="numeric"),
        pytest.param(25, "string", id="text"),
        pytest.param(1043, "string", id="varchar"),
        pytest.param(1042, "string", id="bpchar"),
        pytest.param(19, "string", id="name"),
        pytest.param(18, "string", id="char"),
        pytest.param(114, "string", id="json"),
        pytest.param(3802, "string", id="jsonb"),
        pytest.param(142, "string", id="xml"),
        pytest.param(2950, UUID, id="uuid"),
        pytest.param(869, "string", id="inet"),
        pytest.param(17, "bytes", id="bytea"),
        pytest.param(1082, DATE, id="date"),
        pytest.param(1114, LOCAL, id="timestamp"),
        pytest.param(1184, INSTANT, id="timestamptz"),
        pytest.param(1083, "string", id="time"),
        pytest.param(1266, "string", id="timetz"),
        pytest.param(1186, "string", id="interval"),
        pytest.param(1007, "string", id="int4[]"),
        pytest.param(3904, "string", id="int4range"),
        pytest.param(65000, "string", id="unknown"),
    ],
)
def test_a_type_becomes_its_avro_type(oid: int, avro: object) -> None:
    schema = describe("public", "t", [column("c", (oid, "the type"))], ("c",))

    assert value_fields(schema.value_schema) == [
        {"name": "c", "type": ["null", avro], "default": None, "pg_type": "the type"}
    ]
    assert schema.key_schema is not None
    assert schema.key_schema["fields"] == [{"name": "c", "type": avro}]


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (10, 2), (38, 0), (38, 38)])
def test_a_numeric_that_fits_becomes_a_decimal(precision: int, scale: int) -> None:
    schema = describe("public", "t", [numeric("n", precision, scale)])

    assert value_fields(schema.value_schema)[0]["type"] == [
        "null",
        {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale},
    ]


@pytest.mark.parametrize(
    ("precision", "scale"),
    [
        pytest.param(39, 2, id="more than 38 digits"),
        pytest.param(3, -2, id="negative scale"),
        pytest.param(3, 5, id="scale beyond precision"),
    ],
)
def test_another_numeric_becomes_a_string(precision: int, scale: int) -> None:
    schema = describe("public", "t", [numeric("n", precision, scale)])

    assert value_fields(schema.value_schema)[0]["type"] == ["null", "string"]


CHOSEN = {
    "numeric": numeric("c", 10, 2),
    "date": column("c", (1082, "date")),
    "timestamp": column("c", (1114, "timestamp without time zone")),
    "timestamptz": column("c", (1184, "timestamp with time zone")),
    "uuid": column("c", (2950, "uuid")),
    "time": column("c", (1083, "time without time zone")),
    "interval": column("c", (1186, "interval")),
    "ranges": column("c", (3904, "int4range")),
    "hstore": column("c", (65_000, '"of extensions".hstore')),
    "vectors": column("c", (65_000, "public.vector(3)")),
    "geometry": column("c", (65_000, "public.geometry(Point,4326)")),
    "arrays": replace(column("c", (1007, "integer[]")), element=Element(23, -1, "integer", "b")),
}


def avro_of(column_: EnvelopeColumn, types: TypesTable) -> Any:
    (field,) = value_fields(describe("public", "t", [column_], types=types).value_schema)
    return field["type"][1]


def chosen(choice: str, mode: TypeMode) -> TypesTable:
    settings: dict[str, Any] = {choice: mode}
    return TypesTable(**settings)


@pytest.mark.parametrize("choice", sorted(TYPE_CHOICES))
def test_a_type_becomes_a_string_where_its_setting_or_its_columns_says_so(choice: str) -> None:
    column_ = CHOSEN[choice]
    as_native, as_text = chosen(choice, "native"), chosen(choice, "text")
    native = avro_of(column_, as_native)

    assert native != "string"
    assert avro_of(column_, as_text) == "string"
    assert avro_of(column_, replace(as_native, columns={"public.t.c": "text"})) == "string"
    assert avro_of(column_, replace(as_native, columns={"public.t.d": "text"})) == native
    assert avro_of(column_, replace(as_text, columns={"public.t.c": "native"})) == native
    assert has_choice(column_)


@pytest.mark.parametrize(
    ("element", "items"),
    [
        (Element(23, -1, "integer", "b"), "int"),
        (Element(1700, (10 << 16 | 2) + 4, "numeric", "b"), {
            "type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2
        }),
        (Element(1700, -1, "numeric", "b"), "string"),
        (Element(1083, -1, "hour", "d"), {"type": "long", "logicalType": "time-micros"}),
        (Element(65_000, -1, "mood", "e"), "string"),
        (Element(1007, -1, "counts", "d"), "string"),
        (Element(65_000, -1, "public.tags", "d"), "string"),
    ],
)  # fmt: skip
def test_items_of_an_array_may_be_null_and_are_what_their_own_type_is(
    element: Element, items: Any
) -> None:
    array = replace(column("c", (65_001, "an array")), element=element)

    assert avro_of(array, NATIVE) == {"type": "array", "items": ["null", items]}
    assert avro_of(array, TypesTable(columns={"public.t.c": "text"})) == "string"


@pytest.mark.parametrize("name", ["hstore", "vector(3)", "halfvec", "sparsevec"])
def test_arrays_of_values_with_any_number_of_parts_are_text(name: str) -> None:
    array = replace(
        column("c", (65_001, f"public.{name}[]")), element=Element(65_000, -1, name, "b")
    )

    assert avro_of(array, NATIVE) == "string"
    assert not has_choice(array)


def test_items_follow_the_choice_of_their_own_type() -> None:
    instants = replace(
        column("c", (1185, "timestamptz[]")),
        element=Element(1184, -1, "timestamp with time zone", "b"),
    )
    types = TypesTable(arrays="native", timestamptz="text")

    assert avro_of(instants, types) == {"type": "array", "items": ["null", "string"]}


def test_records_have_full_names_of_their_own() -> None:
    intervals = Element(1186, -1, "interval", "b")
    columns = [
        column("a", (1186, "interval")),
        replace(column("b", (1187, "interval[]")), element=intervals),
    ]
    schema = describe("public", "t", columns, types=NATIVE).value_schema
    a, b = value_fields(schema)
    fields = [
        {"name": "months", "type": "int"},
        {"name": "days", "type": "int"},
        {"name": "microseconds", "type": "long"},
    ]

    interval = {"type": "record", "name": "Interval", "fields": fields}
    assert a["type"][1] == {**interval, "namespace": "pgsluice.public.t.a"}
    assert b["type"][1]["items"][1] == {**interval, "namespace": "pgsluice.public.t.b"}
    fastavro.parse_schema(schema)


@pytest.mark.parametrize(
    ("oid", "types", "bound"),
    [
        (3904, NATIVE, "int"),
        (3926, NATIVE, "long"),
        (3906, NATIVE, "string"),
        (3908, NATIVE, LOCAL),
        (3910, NATIVE, INSTANT),
        (3912, NATIVE, DATE),
        (3912, TypesTable(ranges="native", date="text"), "string"),
    ],
)
def test_bounds_of_a_range_may_be_null_and_are_what_their_own_type_is(
    oid: int, types: TypesTable, bound: Any
) -> None:
    assert avro_of(column("c", (oid, "a range")), types) == {
        "type": "record",
        "name": "Range",
        "namespace": "pgsluice.public.t.c",
        "fields": [
            {"name": "lower", "type": ["null", bound]},
            {"name": "upper", "type": ["null", bound]},
            {"name": "lower_inclusive", "type": "boolean"},
            {"name": "upper_inclusive", "type": "boolean"},
            {"name": "empty", "type": "boolean"},
        ],
    }


def test_an_hstore_is_a_map_of_texts_that_may_be_null() -> None:
    assert avro_of(CHOSEN["hstore"], NATIVE) == {"type": "map", "values": ["null", "string"]}


def test_a_vector_is_an_array_of_floats_and_a_sparse_one_a_record() -> None:
    floats = {"type": "array", "items": "float"}

    assert avro_of(column("c", (65_000, "public.vector(3)")), NATIVE) == floats
    assert avro_of(column("c", (65_000, "halfvec")), NATIVE) == floats
    assert avro_of(column("c", (65_000, "sparsevec(9)")), NATIVE) == {
        "type": "record",
        "name": "SparseVector",
        "namespace": "pgsluice.public.t.c",
        "fields": [
            {"name": "dimensions", "type": "int"},
            {"name": "indices", "type": {"type": "array", "items": "int"}},
            {"name": "values", "type": floats},
        ],
    }


@pytest.mark.parametrize("name", ["geometry", "public.geometry(PointZ,4326)", "x.geography"])
def test_types_of_postgis_are_bytes_in_values_and_keys_and_their_arrays_are_text(
    name: str,
) -> None:
    keyed = describe("public", "t", [column("c", (65_000, name))], ("c",), types=NATIVE)

    assert value_fields(keyed.value_schema)[0]["type"] == ["null", "bytes"]
    assert keyed.key_schema is not None
    assert keyed.key_schema["fields"] == [{"name": "c", "type": "bytes"}]
    # Their delimiter is a colon, so that the catalog gives no element.
    assert avro_of(column("c", (65_001, f"{name}[]")), NATIVE) == "string"
    assert avro_of(column("c", (65_000, "public.geometry_dump"), typtype="c"), NATIVE) == "string"


@pytest.mark.parametrize(
    "column_",
    [
        column("c", (65_000, "public.hstore"), typtype="c"),
        column("c", (65_000, "public.hstore"), typtype="d"),
        column("c", (65_000, "public.hstores")),
        column("c", (65_000, "hstore.other")),
    ],
)
def test_a_type_that_has_the_name_of_an_extensions_only_in_part_is_text(
    column_: EnvelopeColumn,
) -> None:
    assert avro_of(column_, NATIVE) == "string"


@pytest.mark.parametrize("choice", ["arrays", "interval", "ranges", "hstore", "vectors"])
def test_a_type_with_parts_is_text_in_a_key(choice: str) -> None:
    nested = CHOSEN[choice]

    keyed = describe("public", "t", [nested], ("c",), types=NATIVE)
    whole = describe("public", "t", [nested], (), types=NATIVE)

    assert keyed.key_schema is not None and whole.key_schema is not None
    assert keyed.key_schema["fields"][0]["type"] == "string"
    assert value_fields(keyed.value_schema)[0]["type"] == ["null", "string"]
    assert whole.key_schema["fields"][0]["type"] == ["null", "string"]
    assert value_fields(whole.value_schema)[0]["type"][1] == avro_of(nested, NATIVE)

    named = describe("public", "t", [nested], (), types=NATIVE, chosen=ChosenColumns(("c",)))
    assert value_fields(named.value_schema)[0]["type"] == ["null", "string"]


def test_a_field_of_an_enum_has_its_labels() -> None:
    mood = replace(column("c", (65_000, "mood"), typtype="e"), labels=("sad", "so so"))

    (field,) = value_fields(describe("public", "t", [mood]).value_schema)
    keyed = describe("public", "t", [mood], ("c",))

    assert field["type"] == ["null", "string"]
    assert field["pg_labels"] == ["sad", "so so"]
    assert keyed.key_schema is not None
    assert keyed.key_schema["fields"] == [{"name": "c", "type": "string"}]


def test_a_schema_leaves_out_labels_that_would_make_it_large() -> None:
    fits = replace(column("a", (65_000, "mood")), labels=("x" * 60,))
    more = [replace(fits, name=f"c{number}") for number in range(1024)]

    assert all("pg_labels" in f for f in value_fields(describe("s", "t", more).value_schema))
    one_more, other_letters = replace(fits, labels=("z",)), replace(fits, labels=("é" * 60,))
    for columns in ([*more, one_more], [other_letters, *more[1:]]):
        large = describe("s", "t", columns).value_schema
        assert not any("pg_labels" in field for field in value_fields(large))


def test_a_type_without_a_setting_is_carried_in_one_way() -> None:
    assert not has_choice(column("c", INT4))
    assert avro_of(column("c", INT4), TypesTable(columns={"public.t.c": "text"})) == "int"


def test_a_domain_becomes_what_its_base_type_becomes() -> None:
    domain = EnvelopeColumn("price", 65001, -1, "money_amount", 1700, (12 << 16 | 4) + 4, "d")

    (field,) = value_fields(describe("public", "t", [domain]).value_schema)

    assert field["pg_type"] == "money_amount"
    assert field["type"][1] == {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 12,
        "scale": 4,
    }


def test_a_domain_over_a_type_of_an_extension_is_that_type() -> None:
    domain = replace(
        column("pairs", (65_001, "pairs"), typtype="d"),
        base_type_oid=65_000,
        base_type_name="public.hstore",
    )

    (field,) = value_fields(describe("public", "t", [domain], types=NATIVE).value_schema)

    assert (field["pg_type"], field["pg_base_type"]) == ("pairs", "public.hstore")
    assert field["type"][1] == {"type": "map", "values": ["null", "string"]}
    assert has_choice(domain)


@pytest.mark.parametrize(
    ("base", "form"),
    [("public.citext", "printed"), ("public.hstore", "text"), ("public.ltree", "text")],
)
def test_a_key_over_a_type_of_an_extension_has_its_canonical_form(base: str, form: str) -> None:
    domain = replace(
        column("k", (65_001, "code"), typtype="d"), base_type_oid=65_000, base_type_name=base
    )
    plain = column("k", (65_000, base))

    forms = {
        describe("public", "t", [one], ("k",)).key_fields[0].type.key for one in (domain, plain)
    }

    assert forms == {form}


def test_names_that_avro_does_not_know_are_escaped_and_kept_beside() -> None:
    schema = describe("my schema", "1st", [column("Größe", INT4)], ("Größe",))

    assert schema.value_schema["namespace"] == "pgsluice.my_x0020_schema._x0031_st"
    assert value_fields(schema.value_schema)[0] == {
        "name": "Gr_x00F6__x00DF_e",
        "type": ["null", "int"],
        "default": None,
        "pg_type": "integer",
        "pg_column": "Größe",
    }
    assert schema.key_schema is not None
    assert schema.key_schema["fields"] == [{"name": "Gr_x00F6__x00DF_e", "type": "int"}]


def test_the_whole_row_as_key_has_nullable_fields_without_properties() -> None:
    schema = describe("public", "t", [column("a", INT4), column("c", TEXT)], ())

    assert schema.key_schema is not None
    assert schema.key_schema["fields"] == [
        {"name": "a", "type": ["null", "int"], "default": None},
        {"name": "c", "type": ["null", "string"], "default": None},
    ]


def test_without_identity_there_is_no_key_schema() -> None:
    assert describe("public", "t", T1, None).key_schema is None


def test_a_key_column_that_is_not_published_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"public\.t: key columns are not published: z"):
        describe("public", "t", T1, ("a", "z"))


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"public\.t: a column is named twice"):
        describe("public", "t", [column("a", INT4), column("a", TEXT)])


def test_fastavro_accepts_value_and_key_schema_of_awkward_names() -> None:
    schema = describe("a.b", "t-1", [column("x.y", INT4), column("select", TEXT)], ("x.y",))

    fastavro.parse_schema(schema.value_schema)
    fastavro.parse_schema(schema.key_schema or {})


def table(
    replica_identity: ReplicaIdentity,
    identity: tuple[str, ...],
    primary_key: tuple[str, ...],
) -> Table:
    columns = tuple(
        Column(name, number, oid, -1, text, oid, -1, "b", False, "", None)
        for number, (name, (oid, text)) in enumerate([("a", INT4), ("b", INT4), ("c", TEXT)], 1)
    )
    return Table(
        oid=16384,
        schema="public",
        name="t1",
        kind="r",
        columns=columns,
        replica_identity=replica_identity,
        identity=identity,
        primary_key=primary_key,
    )


ALL = ("a", "b", "c")
DEFAULT, INDEX = ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX
FULL, NOTHING = ReplicaIdentity.FULL, ReplicaIdentity.NOTHING


@pytest.mark.parametrize(
    ("replica_identity", "identity", "primary_key", "published", "key"),
    [
        pytest.param(DEFAULT, ("a", "c"), ("a", "c"), ALL, ("a", "c"), id="primary key"),
        pytest.param(DEFAULT, (), (), ALL, None, id="default without primary key"),
        pytest.param(INDEX, ("b",), ("a", "c"), ALL, ("b",), id="index"),
        pytest.param(FULL, ALL, ("a", "c"), ALL, ("a", "c"), id="full with primary key"),
        pytest.param(FULL, ALL, (), ALL, (), id="full without primary key"),
        pytest.param(NOTHING, (), ("a", "c"), ALL, None, id="nothing"),
        pytest.param(DEFAULT, ("a", "c"), ("a", "c"), ("a", "b"), None, id="left out"),
        pytest.param(FULL, ALL, ("a", "c"), ("a", "b"), (), id="left out under full"),
    ],
)
def test_the_key_follows_from_the_replica_identity(
    replica_identity: ReplicaIdentity,
    identity: tuple[str, ...],
    primary_key: tuple[str, ...],
    published: tuple[str, ...],
    key: tuple[str, ...] | None,
) -> None:
    assert key_of(table(replica_identity, identity, primary_key), published) == key
