"""jsonpath: every function and operator beside the server's, over many paths and documents.

PGSLUICE_ORACLE_SEED repeats a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import pytest

from gateway.pgtypes import jsonb
from gateway.pgtypes.jsonb import Jsonb
from gateway.pgtypes.jsonpath import JsonPath, read_jsonpath
from gateway.rowfilter.builtins import jsonpath as area
from tests.oracle.attempts import Connection, Failure, attempts, outcome
from tests.oracle.json_documents import random_document
from tests.oracle.jsonpath_paths import (
    CONVERSIONS,
    CONVERTED,
    DOCUMENTS,
    PATHS,
    UNSUPPORTED,
    random_path,
)
from tests.oracle.majors import MAJORS
from tests.servers import DatabaseFactory, PostgresServer

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

OPERATIONS = {operation.name: operation for operation in area.OPERATIONS}
VARIABLES = '{"x": 1, "s": "a", "o": {"a": [1, 2]}, "n": null}'
CALLS = (
    ("jsonb_path_exists_opr", "a1 @? a2"),
    ("jsonb_path_match_opr", "a1 @@ a2"),
    ("jsonb_path_exists", "jsonb_path_exists(a1, a2)"),
    ("jsonb_path_match", "jsonb_path_match(a1, a2)"),
    ("jsonb_path_query_array", "jsonb_path_query_array(a1, a2)"),
    ("jsonb_path_query_first", "jsonb_path_query_first(a1, a2)"),
)
CALLS_WITH_VARIABLES = (
    ("jsonb_path_exists", "jsonb_path_exists(a1, a2, a3, a4)"),
    ("jsonb_path_match", "jsonb_path_match(a1, a2, a3, a4)"),
    ("jsonb_path_query_array", "jsonb_path_query_array(a1, a2, a3, a4)"),
    ("jsonb_path_query_first", "jsonb_path_query_first(a1, a2, a3, a4)"),
)


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


def shown(value: object) -> object:
    if isinstance(value, Jsonb):
        return jsonb.print_jsonb(value.value).encode()
    return str(value).lower().encode() if isinstance(value, bool) else value


def differences(
    server: Connection,
    key: str,
    expression: str,
    rows: Sequence[Sequence[str | None]],
    *,
    supported: bool = True,
) -> list[str]:
    """What differs; paths that are not supported count only if all have to be `supported`."""
    operation = OPERATIONS[key]
    found = []
    types = ["jsonb", "jsonpath", "jsonb", "boolean"][: len(rows[0])]
    for attempt in attempts(server, expression, types, rows):
        document, text, *others = attempt.arguments
        path = read_jsonpath(text or b"")
        assert operation.specialize is not None
        constants: dict[int, object] = {1: path}
        arguments: list[object] = [jsonb.read_jsonb(document or b""), path]
        if others:
            arguments += [jsonb.read_jsonb(others[0] or b""), others[1] == b"true"]
            constants[3] = arguments[3]
        refusal = operation.specialize(constants)
        if isinstance(refusal, str):
            if supported and not path.messages_vary:
                found.append(f"{text!r} is refused: {refusal}")
            continue
        got = outcome(operation.function, arguments)
        if attempt.error is not None:
            agree = isinstance(got, Failure) and attempt.error == got.message
        else:
            agree = not isinstance(got, Failure) and shown(got) == attempt.result
        if not agree:
            found.append(f"{expression} of {attempt.arguments}: {got!r}, the server {attempt}")
    return found


@pytest.mark.parametrize(("key", "expression"), CALLS)
def test_many_paths_on_many_documents(server: Connection, key: str, expression: str) -> None:
    found = differences(server, key, expression, list(product(DOCUMENTS, PATHS)))

    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize(("key", "expression"), CALLS)
def test_random_paths_on_random_documents(
    server: Connection, random: Random, key: str, expression: str
) -> None:
    paths = [random_path(random) for _ in range(400)]
    documents = [random_document(random) for _ in range(60)] + list(DOCUMENTS)
    rows = [(random.choice(documents), path) for path in paths for _ in range(8)]
    found = differences(server, key, expression, rows, supported=False)

    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize(("key", "expression"), CALLS_WITH_VARIABLES)
def test_variables_and_suppressed_errors(server: Connection, key: str, expression: str) -> None:
    paths = (
        *PATHS[::3], "$x", '$.a ? (@ == $"x")', "$.a ? (@ starts with $s)", "$o.a[*]", "$missing",
        "$ ? (@.a == $missing)", "$n", "$o.*.type()", "strict $o.b", "exists($missing)",
    )  # fmt: skip
    choices = (DOCUMENTS[:12], paths, (VARIABLES, "{}", "[]", "1"), ("true", "false"))
    found = differences(server, key, expression, list(product(*choices)))

    assert not found, "\n".join(found[:10])


def test_methods_that_read_texts(server: Connection, postgres_major: int) -> None:
    paths = CONVERSIONS if postgres_major >= 17 else CONVERSIONS[:3]
    rows = [(f"[{element}]", path, "{}", "true") for element, path in product(CONVERTED, paths)]
    found = differences(
        server, "jsonb_path_query_array", "jsonb_path_query_array(a1, a2, a3, a4)", rows
    )

    assert not found, "\n".join(line[:500] for line in found[:10])


@pytest.mark.parametrize("path", UNSUPPORTED)
def test_what_cannot_be_evaluated_exactly_is_refused(server: Connection, path: str) -> None:
    [attempt] = attempts(server, "a1", ["jsonpath"], [(path,)])

    read = read_jsonpath(attempt.result or b"")
    assert isinstance(read, JsonPath)
    assert read.unsupported
