"""A reader that is asked for what it cannot do says so before it connects."""

from __future__ import annotations

import asyncio
import threading

import pytest

from devkit.embedded.processes import free_port
from pgsluice_client import AsyncReader, Position, Reader, ReadError, UnavailableError
from schemas import kafka_tokens
from tests.support.backends.registry_answers import answering_registry

asked: list[str] = []
released = threading.Event()


def no_token(config: str) -> tuple[str, float]:
    """A plugin whose service is slow, and down."""
    asked.append(config)
    released.wait()
    raise ConnectionRefusedError


def test_one_name_is_not_taken_for_a_collection_of_names() -> None:
    with pytest.raises(ReadError, match="collection of names"):
        Reader("s1", {}, {"url": "http://localhost"}, topics="s1.public.t1")


def test_a_position_of_another_subscription_is_refused() -> None:
    with pytest.raises(ReadError, match="subscription s1"):
        Reader("s2", {}, {"url": "http://localhost"}, start=Position("s1"))


def test_properties_that_kafka_has_not_are_an_error_of_the_reader() -> None:
    kafka = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}

    with pytest.raises(ReadError, match=r"sasl\.password must be set"):
        Reader("s1", kafka, {"url": "http://localhost"})


def test_brokers_that_cannot_be_reached_are_said_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgsluice_client.reader._REQUEST_S", 0.0)
    kafka = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}

    with (
        Reader("s1", kafka, {"url": "http://localhost"}) as reader,
        pytest.raises(UnavailableError, match=r"does not answer: .*Connection refused"),
    ):
        reader.poll()


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, ReadError, "refuses access: no such user (HTTP status code 401"),
        (403, ReadError, "refuses access: no such user (HTTP status code 403"),
        (422, UnavailableError, "fails: no such user (HTTP status code 422"),
    ],
)
def test_a_registry_that_answers_with_an_error_is_said_to(
    status: int, kind: type[ReadError], said: str
) -> None:
    answer = b'{"error_code": 40101, "message": "no such user"}'
    with (
        answering_registry(None, {1: (status, answer)}) as registry,
        Reader("s1", {}, {"url": registry.url}) as reader,
        pytest.raises(ReadError) as raised,
    ):
        reader._schema_text(1)

    assert type(raised.value) is kind
    assert raised.value.message.startswith(f"the schema registry {said}")


def test_an_async_reader_connects_at_its_first_call_while_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_tokens, "_WAIT_S", 600.0)
    kafka = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.plugin": f"{__name__}:no_token",
        "sasl.oauthbearer.config": "c",
    }
    registry = {"url": "http://localhost"}

    async def read() -> None:
        with pytest.raises(ReadError, match="collection of names"):
            AsyncReader("s1", kafka, registry, topics="s1.public.t1")
        async with AsyncReader("s1", kafka, registry) as reader:
            assert asked == []
            first = asyncio.ensure_future(reader.poll(0))
            while not asked:
                await asyncio.sleep(0)
            released.set()
            with pytest.raises(UnavailableError, match="no token for Kafka"):
                await first
            with pytest.raises(UnavailableError):
                await reader.poll(0)

    asyncio.run(read())
    assert asked == ["c", "c"]
