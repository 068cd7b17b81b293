"""Topics as the broker describes them: their IDs and remaining records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from schemas.kafka_errors import LastError, is_refusal, wait_for_answer
from schemas.kafka_tokens import TokenError, with_tokens
from spark_consumer.errors import (
    AccessError,
    ConsumerError,
    FatalConsumerError,
    TransientConsumerError,
)
from spark_consumer.kafka.position import TopicState
from spark_consumer.settings import ConsumerSettings, admin_properties
from spark_consumer.spark.failures import TableTransientError

__all__ = ["TopicStates", "Topics", "topic_failure"]

_TIMEOUT_S: Final = 30.0
_GRACE_S: Final = 5.0
"""Seconds after `_TIMEOUT_S` until which the client itself must have ended a request."""
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NO_LEADER = (  # KafkaError.retriable() is false for them: it knows transactions only
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.REQUEST_TIMED_OUT,
    *_ABSENT,  # while its offsets are asked for: its leader does not serve it yet
)
_UNREACHABLE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)

_Answer = TypeVar("_Answer")


class TopicStates(Protocol):
    """Source of topic descriptions."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Describe topics; missing ones are left out.

        Raises:
            AccessError: the broker refuses the user.
            FatalConsumerError: the broker refuses one of them.
            TableTransientError: the broker cannot describe one of them now.
            TransientConsumerError: the broker does not answer.
        """


class Topics:
    """Source of topic descriptions: the broker.

    Raises:
        FatalConsumerError: the plugin for tokens cannot work.
        TransientConsumerError: it has no token now.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self._errors = LastError[KafkaError]()
        try:
            properties = with_tokens(admin_properties(settings))
        except TokenError as error:
            kind = TransientConsumerError if error.may_pass else FatalConsumerError
            raise kind(f"no token for Kafka: {error.message}", hint=error.hint) from None
        properties["error_cb"] = self._errors
        self._client = AdminClient(properties)

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """See `TopicStates.describe`."""
        try:
            found = self._topic_ids(sorted(set(names)))
            states = self._with_offsets(found)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        self._serve()
        self._errors.clear()  # they are not why a later request gets no answer
        return states

    def _answer(self, request: Future[_Answer]) -> _Answer:
        """Return the answer to a request, without waiting for brokers that refuse access.

        Raises:
            KafkaException: the request has failed.
            AccessError: a broker refuses the user.
            TransientConsumerError: none answers.
        """
        try:
            timeout_s = _TIMEOUT_S + _GRACE_S
            refused = wait_for_answer(request, self._client.poll, self._errors, timeout_s)
        except TimeoutError:
            raise self._failure(KafkaError(KafkaError._TIMED_OUT)) from None
        if refused is not None:
            raise self._failure(refused)
        return request.result()

    def _serve(self) -> None:
        while self._client.poll(0):  # calls back with errors
            pass

    def _failure(self, error: KafkaError) -> ConsumerError:
        self._serve()
        if error.code() in _UNREACHABLE and self._errors.last is not None:
            error = self._errors.last  # why the request only timed out
        if is_refusal(error):
            return AccessError(
                f"the Kafka broker refuses access: {error.str()}",
                hint="check the user, the password and the certificates in [kafka]",
            )
        return TransientConsumerError(
            f"the Kafka broker does not answer: {error.str()}",
            hint='check "bootstrap.servers" and "security.protocol", and whether the broker is up',
        )

    def _topic_ids(self, names: list[str]) -> dict[str, tuple[str, list[int]]]:
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT_S)
        found = {}
        for name, answer in futures.items():
            try:
                described = self._answer(answer)
            except KafkaException as error:
                if error.args[0].code() in _ABSENT:
                    continue
                raise topic_failure(name, error) from error
            numbers = [partition.id for partition in described.partitions]
            found[name] = (str(described.topic_id), numbers)
        return found

    def _with_offsets(self, found: Mapping[str, tuple[str, list[int]]]) -> dict[str, TopicState]:
        places = [
            TopicPartition(name, number)
            for name, (_, numbers) in found.items()
            for number in numbers
        ]
        if not places:
            return {}
        offsets: list[dict[tuple[str, int], int]] = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):  # type: ignore[no-untyped-call]
            futures = self._client.list_offsets(
                dict.fromkeys(places, spec), request_timeout=_TIMEOUT_S
            )
            found_offsets = {}
            for place, answer in futures.items():
                try:
                    found_offsets[place.topic, place.partition] = self._answer(answer).offset
                except KafkaException as error:
                    raise topic_failure(place.topic, error) from error
            offsets.append(found_offsets)
        earliest, latest = offsets
        return {
            name: TopicState(
                identity,
                {number: earliest[name, number] for number in numbers},
                {number: latest[name, number] for number in numbers},
            )
            for name, (identity, numbers) in found.items()
        }


def topic_failure(name: str, error: KafkaException) -> Exception:
    """Classify an error about one topic; return errors that are not the broker's unchanged."""
    kafka_error: KafkaError = error.args[0]
    # Codes below 0 are the client's own: there was no answer.
    if kafka_error.code() <= 0:
        return error
    text = f"the broker refuses topic {name}: {kafka_error.str()}"
    if kafka_error.code() in _NO_LEADER:
        return TableTransientError(text, hint="is the leader of each of its partitions up?")
    return FatalConsumerError(text, hint="see docs/operations.md, Rights in Kafka")
