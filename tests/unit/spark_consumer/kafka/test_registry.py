"""A schema that the registry does not give: which tables that concerns, and whether it may pass."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from spark_consumer.errors import AccessError, ConsumerError, ContractError, TransientConsumerError
from spark_consumer.kafka.registry import Registry
from spark_consumer.spark.failures import every_table
from tests.support.backends.registry_answers import answering_registry, schema_answer

GOOD = schema_answer({"type": "record", "name": "r", "fields": []})
NOBODY = "http://127.0.0.1:1"
FAST = {"max.retries": 0}
BROKEN = {
    "HTML": (200, b"<html>moved</html>"),
    "nothing": (200, b""),
    "a list": (200, b"[]"),
    "a number": (200, b"5"),
    "a number for a schema": (200, b'{"schema": 5}'),
    "no schema in it": (200, b"{}"),
    "no Avro": (200, json.dumps({"schema": "{}", "schemaType": "JSON"}).encode()),
    "no text": (200, b"\xff\xfe"),
    "bad request": (400, b"{}"),
    "forbidden": (403, b'{"error_code": 40301, "message": "no"}'),
    "unprocessable": (422, b'{"error_code": 42201, "message": "no"}'),
}


def _asked(answers: dict[int, tuple[int, bytes]]) -> ConsumerError:
    """The error for id 2, after 1 was asked for."""
    with (
        answering_registry(NOBODY, answers) as server,
        closing(Registry(server.url, FAST)) as registry,  # type: ignore[arg-type]
    ):
        registry.schema(1)
        server.answers = {**answers, 1: answers.get(-1, answers[1])}
        with pytest.raises(ConsumerError) as raised:
            registry.schema(2)
        server.answers[2] = GOOD
        assert registry.schema(2) == registry.schema(1), "what was wrong is not remembered"
    return raised.value


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_is_no_schema_is_of_the_table_that_needs_it(
    answer: tuple[int, bytes],
) -> None:
    error = _asked({1: GOOD, 2: answer})

    assert isinstance(error, ContractError)
    assert "2" in error.message and "does not answer" not in error.message


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_schema_for_which_the_registry_fails_is_tried_again_for_its_table(status: int) -> None:
    error = _asked({1: GOOD, 2: (status, b"")})

    assert isinstance(error, TransientConsumerError)
    assert every_table(error) is None
    assert f"fails for schema 2, and for no other: status {status}" in error.message


@pytest.mark.parametrize("answer", [(500, b""), (200, b"<html>moved</html>")])
def test_a_registry_that_fails_for_all_schemas_is_waited_for(answer: tuple[int, bytes]) -> None:
    error = _asked({1: GOOD, 2: answer, -1: answer})

    assert isinstance(error, TransientConsumerError)
    assert every_table(error) is error


@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_knows_no_such_user_is_said_to_refuse_access(status: int) -> None:
    error = _asked({1: GOOD, 2: (status, b"{}"), -1: (status, b"{}")})

    assert isinstance(error, AccessError)
    assert every_table(error) is error
    assert error.message == f"the schema registry refuses access: status {status}"
    assert error.hint is not None and "basic.auth.user.info" in error.hint


@pytest.mark.parametrize("next_answer", [(503, b"{}"), (200, b"<html>moved</html>")])
def test_a_registry_that_fails_after_a_refusal_is_waited_for(
    next_answer: tuple[int, bytes],
) -> None:
    error = _asked({1: GOOD, 2: (401, b"{}"), -1: next_answer})

    assert isinstance(error, TransientConsumerError)
    assert every_table(error) is error
    assert "status 401" in error.message
