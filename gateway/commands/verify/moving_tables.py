"""Tables whose rows move at a marker, by the MOVE markers before it.

At a state of the rebuilt tables that has the last marker of a move, they hold what their filters
select; at others some rows are still to come, or to go.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from gateway.core.closing import Closing
from gateway.core.errors import ProtocolError, TransientError
from gateway.core.names import transaction_topic
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.properties import consumer_properties, make_client
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import read_partition_bounds
from schemas.topic_names import topic_part

__all__ = ["MovingTables"]

_FIRST_LOOK: Final = 1_000
"""Number of offsets before a marker that are read first."""
_FARTHER: Final = 16
_POLL_S: Final = 0.2


class MovingTables(Closing):
    """Reader of one subscription's MOVE markers.

    Args:
        kafka: librdkafka properties of the user.
        registry: Registry with the schemas of markers.
        deadline: Value of `time.monotonic` at which reading ends.
    """

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        registry: Registry,
        subscription: str,
        deadline: float,
    ) -> None:
        self._topic = transaction_topic(subscription)
        self._schemas = RegisteredSchemas(registry)
        self._deadline = deadline
        self._consumer = make_client(Consumer, consumer_properties(kafka))
        self._next = 0
        self._moves: dict[str, bool] = {}

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()

    def at(self, marker: int, tables: Collection[str]) -> set[str]:
        """Return those of some tables whose rows move.

        Args:
            marker: Offset of a PROGRESS marker, not before that of an earlier call.
            tables: Names of tables, ``schema.table`` as in manifests.

        Raises:
            GatewayError: the markers cannot be read.
        """
        if not tables or marker < 0:
            return set()
        try:
            start = read_partition_bounds(self._consumer, self._topic, timeout_s=self._rest()).start
            begin, look = max(start, self._next), _FIRST_LOOK
            if not self._next:
                begin = max(start, marker + 1 - look)
            while True:
                for table, moves in self._read(begin, marker):
                    self._moves[table] = moves
                if self._next or begin == start or self._moves.keys() >= set(tables):
                    break
                look *= _FARTHER
                begin = max(start, marker + 1 - look)
        except KafkaException as raised:
            doing = f"reading topic {self._topic}"
            raise classify_kafka_error(raised.args[0], doing=doing) from None
        self._next = marker + 1
        return {table for table in tables if self._moves.get(table)}

    def _read(self, begin: int, last: int) -> Iterator[tuple[str, bool]]:
        """Yield the tables of MOVE and COPY markers in order, and whether their rows move."""
        if begin > last:
            return
        self._consumer.assign([TopicPartition(self._topic, 0, begin)])
        while True:
            message = self._consumer.poll(min(_POLL_S, self._rest()))
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() in (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN):
                    continue
                raise classify_kafka_error(error, doing=f"reading topic {self._topic}")
            offset = message.offset()
            assert offset is not None
            if offset <= last and (found := self._decoded(message.value())) is not None:
                yield found
            if offset >= last:
                return

    def _decoded(self, wire: bytes | str | None) -> tuple[str, bool] | None:
        try:
            marker: dict[str, Any] = self._schemas.decode(wire, "transaction")
        except ProtocolError:
            return None  # not the gateway's
        if (move := marker["move"]) is not None:
            return _name(move), move["state"] == "begun"
        copy = marker["copy"]
        # A copy that begins puts an end to what moves; what begins then outlasts it.
        return None if copy is None or copy["state"] != "copying" else (_name(copy), False)

    def _rest(self) -> float:
        rest = self._deadline - time.monotonic()
        if rest <= 0:
            raise TransientError(f"reading topic {self._topic}: no answer in time")
        return rest


def _name(about: Mapping[str, str]) -> str:
    return f"{topic_part(about['schema'])}.{topic_part(about['table'])}"
