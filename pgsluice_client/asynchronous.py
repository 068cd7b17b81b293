"""The reader for asyncio: `Reader` in a thread of its own.

`confluent_kafka.aio` works with threads, too, and a call that is cancelled there loses the records
that it would have returned. Here a cancelled call goes on, and the next one returns its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self, TypeVar

from pgsluice_client.changes import Transaction
from pgsluice_client.position import Position
from pgsluice_client.reader import STEP_S, Reader, check_arguments

__all__ = ["AsyncReader"]

T = TypeVar("T")


class AsyncReader:
    """`Reader` for asyncio, with the same arguments. It is of one task.

    The first call constructs the clients, which takes a second or more where a plugin has Kafka's
    tokens, and raises what `Reader` does; after `UnavailableError`, the next call tries again.

    Args:
        subscription: Name of the subscription.
        kafka: Properties of librdkafka.
        registry: Properties of Confluent's `SchemaRegistryClient`.
        start: Position to continue from; None for the beginning.
        topics: Topics of tables to read; None for all of the subscription.

    Raises:
        ReadError: an argument is wrong.
    """

    def __init__(
        self,
        subscription: str,
        kafka: Mapping[str, Any],
        registry: Mapping[str, Any],
        *,
        start: Position | None = None,
        topics: Collection[str] | None = None,
    ) -> None:
        check_arguments(subscription, start, topics)
        self._make = partial(
            Reader, subscription, dict(kafka), dict(registry), start=start, topics=topics
        )
        self._reader: Reader | None = None
        self._thread = ThreadPoolExecutor(1, "pgsluice_client")
        self._step: asyncio.Future[Transaction | None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Transaction]:
        return self.transactions()

    async def close(self) -> None:
        """Wait for the call that is running, and close the clients."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def transactions(self, *, to_end: bool = False) -> AsyncIterator[Transaction]:
        """Yield transactions as they are committed; see `Reader.transactions`."""
        end = await self._run(Reader._end_of_markers) if to_end else None
        while (
            end is None
            or self._step is not None  # the result of a cancelled call is one of them
            or not await self._run(Reader._has_all, end)
        ):
            if (transaction := await self.poll(STEP_S)) is not None:
                yield transaction

    async def poll(self, timeout: float = 1.0) -> Transaction | None:
        """Return the next transaction, as `Reader.poll`; may be cancelled at any time."""
        if self._step is None:
            self._step = asyncio.ensure_future(self._run(Reader.poll, timeout))
        step, self._step = self._step, None
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            self._step = step
            raise

    async def _run(self, method: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._call, method, *arguments)

    def _call(self, method: Callable[..., T], *arguments: Any) -> T:
        if self._reader is None:
            self._reader = self._make()
        return method(self._reader, *arguments)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
