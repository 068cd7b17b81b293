"""json and jsonb: every function and operator beside the server's, over documents of all kinds.

PGSLUICE_ORACLE_SEED repeats a run.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import product
from random import Random

import pytest

from gateway.pgtypes import json_text, jsonb
from gateway.pgtypes.arrays import parse_array
from gateway.pgtypes.jsonb import Jsonb
from gateway.rowfilter.builtins import json as area
from tests.oracle.attempts import Attempt, Connection, Failure, attempts, outcome
from tests.oracle.json_documents import DOCUMENTS, JSON_TEXTS, KEYS, PATHS, random_document
from tests.oracle.majors import MAJORS
from tests.servers import DatabaseFactory, PostgresServer

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

OPERATIONS = {operation.name: operation for operation in area.OPERATIONS}
CASTS = (
    ("jsonb_bool", "boolean"),
    ("jsonb_numeric", "numeric"),
    ("jsonb_int2", "smallint"),
    ("jsonb_int4", "integer"),
    ("jsonb_int8", "bigint"),
    ("jsonb_float4", "real"),
    ("jsonb_float8", "double precision"),
)
INDEXES = ("0", "1", "-1", "2", "-2", "-3", "5", "-2147483648", "2147483647")


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> Iterator[Connection]:
    """One connection for all: the tests leave nothing behind."""
    factory = DatabaseFactory(postgres)
    try:
        with factory().connect() as connection:
            yield connection
    finally:
        factory.drop_all()


@pytest.fixture(scope="module")
def random() -> Random:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    return Random(seed)


PARSERS: dict[str, Callable[[bytes], object]] = {
    "jsonb": jsonb.read_jsonb,
    "json": json_text.read_json,
    "text": bytes,
    "text[]": lambda text: parse_array(text, bytes),
    "int": int,
    "boolean": lambda text: text == b"true",
}


def shown(value: object) -> object:
    """A result as the server's cast to text shows it."""
    if isinstance(value, Jsonb):
        return jsonb.print_jsonb(value.value).encode()
    if isinstance(value, bool):
        return str(value).lower().encode()
    if isinstance(value, int):
        return str(value).encode()
    return value


def agree(attempt: Attempt, got: object) -> bool:
    if attempt.error is not None:
        return isinstance(got, Failure) and attempt.error.startswith(got.message)
    return not isinstance(got, Failure) and shown(got) == attempt.result


def differences(
    server: Connection,
    key: str,
    expression: str,
    types: Sequence[str],
    rows: Sequence[Sequence[str | None]],
) -> list[str]:
    operation = OPERATIONS[key]
    found = []
    for attempt in attempts(server, expression, types, rows):
        arguments = [
            None if text is None else PARSERS[kind](text)
            for text, kind in zip(attempt.arguments, types, strict=True)
        ]
        if operation.strict and None in arguments:
            continue
        got = outcome(operation.function, arguments)
        if not agree(attempt, got):
            found.append(f"{expression} of {attempt.arguments}: {got!r}, the server {attempt}")
        if isinstance(got, Failure) and not operation.can_raise:
            found.append(f"{key} raised {got}")
        if got is None and operation.strict and not operation.nullable:
            found.append(f"{key} returned None")
    return found


def rows_of(*choices: Sequence[str]) -> list[tuple[str, ...]]:
    return list(product(*choices))


ONE_DOCUMENT = (
    ("jsonb_typeof", "jsonb_typeof(a1)"),
    ("jsonb_array_length", "jsonb_array_length(a1)"),
    ("jsonb_strip_nulls", "jsonb_strip_nulls(a1)"),
    ("jsonb_pretty", "jsonb_pretty(a1)"),
    ("json_typeof", "json_typeof(a1)"),
    ("json_array_length", "json_array_length(a1)"),
    ("json_strip_nulls", "json_strip_nulls(a1)"),
)
TWO_DOCUMENTS = (
    ("jsonb_eq", "a1 = a2"),
    ("jsonb_ne", "a1 <> a2"),
    ("jsonb_lt", "a1 < a2"),
    ("jsonb_le", "a1 <= a2"),
    ("jsonb_gt", "a1 > a2"),
    ("jsonb_ge", "a1 >= a2"),
    ("jsonb_cmp", "sign(jsonb_cmp(a1, a2))::int"),
    ("jsonb_contains", "a1 @> a2"),
    ("jsonb_contained", "a1 <@ a2"),
    ("jsonb_concat", "a1 || a2"),
)
DOCUMENT_AND_KEY = (
    ("jsonb_object_field", "a1 -> a2"),
    ("jsonb_object_field_text", "a1 ->> a2"),
    ("jsonb_exists", "a1 ? a2"),
    ("jsonb_delete", "a1 - a2"),
    ("json_object_field", "a1 -> a2"),
    ("json_object_field_text", "a1 ->> a2"),
)
DOCUMENT_AND_INDEX = (
    ("jsonb_array_element", "a1 -> a2"),
    ("jsonb_array_element_text", "a1 ->> a2"),
    ("jsonb_delete_idx", "a1 - a2"),
    ("json_array_element", "a1 -> a2"),
    ("json_array_element_text", "a1 ->> a2"),
)
DOCUMENT_AND_PATH = (
    ("jsonb_extract_path", "a1 #> a2"),
    ("jsonb_extract_path_text", "a1 #>> a2"),
    ("jsonb_exists_any", "a1 ?| a2"),
    ("jsonb_exists_all", "a1 ?& a2"),
    ("jsonb_delete_array", "a1 - a2"),
    ("jsonb_delete_path", "a1 #- a2"),
    ("json_extract_path", "a1 #> a2"),
    ("json_extract_path_text", "a1 #>> a2"),
)


def texts_of(key: str) -> tuple[str, Sequence[str]]:
    """The type of a function's document, and texts of it."""
    return ("jsonb", DOCUMENTS) if key.startswith("jsonb") else ("json", JSON_TEXTS)


@pytest.mark.parametrize(("key", "expression"), ONE_DOCUMENT)
def test_of_one_document(server: Connection, random: Random, key: str, expression: str) -> None:
    kind, texts = texts_of(key)
    rows = rows_of((*texts, *(random_document(random) for _ in range(300))))

    found = differences(server, key, expression, [kind], rows)
    assert not found, found[:10]


@pytest.mark.parametrize(("key", "expression"), TWO_DOCUMENTS)
def test_of_two_documents(server: Connection, random: Random, key: str, expression: str) -> None:
    rows = rows_of(DOCUMENTS, DOCUMENTS)
    rows += [(random_document(random, 2), random_document(random, 2)) for _ in range(2000)]

    found = differences(server, key, expression, ["jsonb", "jsonb"], rows)
    assert not found, found[:10]


@pytest.mark.parametrize(("key", "expression"), DOCUMENT_AND_KEY)
def test_of_a_document_and_a_key(
    server: Connection, random: Random, key: str, expression: str
) -> None:
    kind, texts = texts_of(key)
    rows = rows_of((*texts, *(random_document(random) for _ in range(100))), KEYS)

    found = differences(server, key, expression, [kind, "text"], rows)
    assert not found, found[:10]


@pytest.mark.parametrize(("key", "expression"), DOCUMENT_AND_INDEX)
def test_of_a_document_and_an_index(
    server: Connection, random: Random, key: str, expression: str
) -> None:
    kind, texts = texts_of(key)
    rows = rows_of((*texts, *(random_document(random) for _ in range(100))), INDEXES)

    found = differences(server, key, expression, [kind, "int"], rows)
    assert not found, found[:10]


@pytest.mark.parametrize(("key", "expression"), DOCUMENT_AND_PATH)
def test_of_a_document_and_a_path(
    server: Connection, random: Random, key: str, expression: str
) -> None:
    kind, texts = texts_of(key)
    rows = rows_of((*texts, *(random_document(random) for _ in range(50))), PATHS)

    found = differences(server, key, expression, [kind, "text[]"], rows)
    assert not found, found[:10]


@pytest.mark.parametrize(
    ("key", "expression"),
    [("jsonb_set", "jsonb_set(a1, a2, a3, a4)"), ("jsonb_insert", "jsonb_insert(a1, a2, a3, a4)")],
)
def test_of_a_document_changed_at_a_path(
    server: Connection, random: Random, key: str, expression: str
) -> None:
    documents = (*DOCUMENTS[25:], "1", *(random_document(random) for _ in range(30)))
    rows = rows_of(documents, PATHS, ('"new"', "[1]"), ("true", "false"))

    found = differences(server, key, expression, ["jsonb", "text[]", "jsonb", "boolean"], rows)
    assert not found, found[:10]


def test_jsonb_set_lax_with_and_without_a_value(server: Connection) -> None:
    documents = ('{"a": 1, "b": {"c": 2}}', "[1, 2]", "{}", "3", None)
    paths = ("{a}", "{b,c}", "{0}", "{}", "{{a},{b}}", "{NULL}", None)
    treatments = ("use_json_null", "delete_key", "return_target", "raise_exception", "x", None)
    choices = (documents, paths, ("9", None), ("true", "false", None), treatments)

    found = differences(
        server, "jsonb_set_lax", "jsonb_set_lax(a1, a2, a3, a4, a5)",
        ["jsonb", "text[]", "jsonb", "boolean", "text"], list(product(*choices)),
    )  # fmt: skip
    assert not found, found[:10]


@pytest.mark.parametrize(("key", "target"), CASTS)
def test_casts_to_other_types(
    server: Connection, postgres_major: int, key: str, target: str
) -> None:
    """A float is compared by its bits, everything else by its text."""
    [operation] = [found for found in area.operations(postgres_major) if found.name == key]
    expression = f"a1::{target}"
    if key.startswith("jsonb_float"):
        expression = f"float{key[-1]}send(a1::{target})"
    for attempt in attempts(server, expression, ["jsonb"], rows_of(DOCUMENTS)):
        [text] = attempt.arguments
        got = outcome(operation.function, [jsonb.read_jsonb(text or b"")])
        if isinstance(got, float):
            got = f"\\x{struct.pack('!f' if key[-1] == '4' else '!d', got).hex()}".encode()
        if isinstance(got, Decimal):
            got = f"{got:f}".encode()
        if attempt.error is not None and " is out of range for type " in attempt.error:
            # Ours leaves out the value that PostgreSQL quotes.
            assert isinstance(got, Failure)
            assert attempt.error.endswith(got.message.removeprefix("value"))
        else:
            assert agree(attempt, got), (attempt, got)
        assert got is not None or operation.nullable


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_objects_of_arrays(server: Connection, kind: str) -> None:
    arrays = ("{}", "{a,1}", "{a,NULL}", "{NULL,1}", "{a}", "{a,1,a,2,b,3}", "{{a,1},{b,2}}",
              "{{a,1,2}}", "{{{a}}}", '{"é\\"","\t"}', "{{a},{b}}")  # fmt: skip

    found = differences(server, f"{kind}_object", f"{kind}_object(a1)", ["text[]"], rows_of(arrays))
    found += differences(
        server, f"{kind}_object_two_arg", f"{kind}_object(a1, a2)", ["text[]"] * 2,
        rows_of(arrays, arrays),
    )  # fmt: skip
    assert not found


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_the_binary_form(server: Connection, kind: str) -> None:
    """As the bytes that the text of bytea shows."""
    _, texts = texts_of(kind)
    parse = PARSERS[kind]
    for attempt in attempts(server, f"{kind}_send(a1)", [kind], rows_of(texts)):
        [text] = attempt.arguments
        assert text is not None
        sent = outcome(OPERATIONS[f"{kind}_send"].function, [parse(text)])
        assert isinstance(sent, bytes)
        assert attempt.result == f"\\x{sent.hex()}".encode()


def test_stripping_nulls_in_arrays_too(server: Connection, postgres_major: int) -> None:
    if postgres_major < 18:
        pytest.skip("a parameter of 18")
    found = differences(
        server, "jsonb_strip_nulls", "jsonb_strip_nulls(a1, a2)", ["jsonb", "boolean"],
        rows_of(DOCUMENTS, ("true", "false")),
    )  # fmt: skip
    found += differences(
        server, "json_strip_nulls", "json_strip_nulls(a1, a2)", ["json", "boolean"],
        rows_of(JSON_TEXTS, ("true", "false")),
    )  # fmt: skip
    assert not found


def test_a_constant_key_is_prepared(server: Connection) -> None:
    for key, name in product(("jsonb_object_field", "jsonb_object_field_text"), KEYS):
        operation = OPERATIONS[key]
        assert operation.prepare is not None
        prepared = operation.prepare({1: name.encode()})
        assert prepared is not None
        for text in DOCUMENTS:
            [attempt] = attempts(server, "a1", ["jsonb"], [(text,)])
            document = jsonb.read_jsonb(attempt.result or b"")
            assert prepared(document) == operation.function(document, name.encode())
