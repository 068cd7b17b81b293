"""Records read by the schemas that a registry has."""

from __future__ import annotations

from contextlib import closing

import pytest

from gateway.core.errors import ProtocolError, TransientError
from gateway.sink.reading.decoding import RegisteredSchemas, decode_as
from gateway.sink.registry.registry import Registry
from tests.support.backends.registry_answers import answering_registry, schema_answer


def test_schema_that_does_not_match_is_not_quoted_whole() -> None:
    fields = [{"name": f"f{n}", "type": "null"} for n in range(10_000)]
    schema = {"type": "record", "name": "Transaction", "fields": fields}
    with (
        answering_registry("http://127.0.0.1:1", {7: schema_answer(schema)}) as server,
        closing(Registry({"url": server.url})) as registry,
        pytest.raises(ProtocolError) as raised,
    ):
        RegisteredSchemas(registry).decode(b"\0\0\0\0\7", "transaction")

    assert len(raised.value.reason) < 1000


def test_schema_that_is_nested_too_deeply_is_refused_with_that_reason() -> None:
    nested: object = "int"
    for _ in range(200):
        nested = {"type": "array", "items": nested}
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": nested}]}
    with (
        answering_registry(None, {7: schema_answer(schema)}) as server,
        closing(Registry({"url": server.url})) as registry,
        pytest.raises(ProtocolError, match=r"schema 7 does not parse: .*nested too deeply"),
    ):
        RegisteredSchemas(registry).decode(b"\0\0\0\0\7\0")


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>moved</html>"),
        (200, b"[]"),
        (200, b'{"schema": 5}'),
        (200, b"{}"),
        (400, b"{}"),
        (422, b'{"error_code": 42201, "message": "no"}'),
    ],
)
def test_answer_that_is_no_schema_makes_its_record_one_that_cannot_be_read(
    answer: tuple[int, bytes],
) -> None:
    with (
        answering_registry(None, {7: answer}) as server,
        closing(Registry({"url": server.url})) as registry,
        pytest.raises(ProtocolError, match="schema 7 does not parse"),
    ):
        RegisteredSchemas(registry).decode(b"\0\0\0\0\7")


def test_registry_that_gives_no_answer_to_anything_is_waited_for() -> None:
    with (
        answering_registry("http://127.0.0.1:1", {7: (200, b"<html>moved</html>")}) as server,
        closing(Registry({"url": server.url, "max.retries": 0})) as registry,
        pytest.raises(TransientError),
    ):
        RegisteredSchemas(registry).decode(b"\0\0\0\0\7")


def test_record_with_more_values_than_the_caller_accepts_is_refused() -> None:
    schema = {"type": "array", "items": "null"}
    fields = [{"name": "n", "type": schema}]
    answer = schema_answer({"type": "record", "name": "R", "fields": fields})
    with (
        answering_registry(None, {7: answer}) as server,
        closing(Registry({"url": server.url})) as registry,
    ):
        few = RegisteredSchemas(registry, most_values=5)
        assert few.decode(b"\0\0\0\0\7\4\0") == {"n": [None, None]}
        with pytest.raises(ProtocolError, match="8 items"):
            few.decode(b"\0\0\0\0\7\x10\0")
    with pytest.raises(ProtocolError, match="too many values"):
        decode_as(b"\0\0\0\0\7\0\0\0\0", "transaction", most_values=2)
