"""Look at topics before their records are trusted: their partitions, their first records."""

from __future__ import annotations

import re
from collections.abc import Collection

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from spark_consumer.config import ConsumerSettings, admin_properties
from spark_consumer.errors import ContractError, TransientConsumerError
from spark_consumer.names import topic_pattern

__all__ = ["Topics"]

_TIMEOUT_S = 30.0


class Topics:
    """Checks topics of a subscription, each once."""

    def __init__(self, settings: ConsumerSettings, subscription: str) -> None:
        self._client = AdminClient(dict(admin_properties(settings)))
        self._pattern = re.compile(topic_pattern(settings, subscription))
        self._checked: set[str] = set()

    def check_all(self, known: Collection[tuple[str, int]]) -> None:
        """Check all topics that are there now; see `check`."""
        try:
            listed = self._client.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            raise _unreachable(error) from error
        self.check([name for name in listed if self._pattern.fullmatch(name)], known)

    def check(self, names: Collection[str], known: Collection[tuple[str, int]]) -> None:
        """Check that each topic has one partition and, unless it is known, its first record.

        Args:
            names: the topics.
            known: topic partitions whose first records were read before.

        Raises:
            ContractError: a topic with several partitions, or one whose first records are gone.
            TransientConsumerError: the broker does not answer.
        """
        fresh = [name for name in names if name not in self._checked]
        try:
            for name in fresh:
                partitions = (
                    self._client.list_topics(name, timeout=_TIMEOUT_S).topics[name].partitions
                )
                if len(partitions) > 1:
                    raise ContractError(
                        f"topic {name} has {len(partitions)} partitions, and the Spark job takes"
                        " one",
                        hint="let the gateway create it with one partition, its default",
                    )
            begin = [TopicPartition(n, 0) for n in fresh if (n, 0) not in known]
            self._check_beginnings(begin)
        except KafkaException as error:
            raise _unreachable(error) from error
        self._checked.update(fresh)

    def _check_beginnings(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        asked = self._client.list_offsets(
            {
                partition: OffsetSpec.earliest()  # type: ignore[no-untyped-call]
                for partition in partitions
            },
            request_timeout=_TIMEOUT_S,
        )
        for partition, answer in asked.items():
            if (offset := answer.result().offset) > 0:
                raise ContractError(
                    f"topic {partition.topic} begins at offset {offset}: its first records are"
                    " gone, and without them the table cannot be rebuilt",
                    hint="let the topic keep its records (retention.ms = -1), copy the table anew",
                )


def _unreachable(error: KafkaException) -> TransientConsumerError:
    return TransientConsumerError(
        f"the Kafka broker does not answer: {error.args[0].str()}",
        hint='check "bootstrap.servers" and whether the broker is up',
    )
