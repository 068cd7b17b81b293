"""A reader that is asked for what it cannot do says so before it connects."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pgsluice_client import AsyncReader, Position, Reader, ReadError, UnavailableError
from schemas import kafka_tokens

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
