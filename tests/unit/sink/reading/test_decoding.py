"""Records read by the schemas that a registry has."""

from __future__ import annotations

from contextlib import closing

import pytest

from gateway.core.errors import ProtocolError
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.registry.registry import Registry
from tests.support.registry_answers import answering_registry, schema_answer


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
