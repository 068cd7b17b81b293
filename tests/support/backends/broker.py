"""Changes of topics and rights that the broker knows when a call returns, and ends of topics.

The controller answers before the broker that clients ask has applied the change. What comes next
would find a topic that is not there yet, or still there, the old settings, or the old rights.
A broker ends a Kafka transaction, too, after it has answered the commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.run.waiting import PATIENCE, wait_until

__all__ = [
    "SETTLING",
    "add_partitions",
    "await_visible",
    "create_acls",
    "create_topics",
    "delete_acls",
    "delete_topics",
    "ends",
    "producer_in_transaction",
    "set_config",
]

SETTLING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
"""Errors of a partition that is new, or whose broker is back: a client knows another leader."""
_TIMEOUT_S = 60.0
_ANSWER_S = _TIMEOUT_S * PATIENCE


def create_topics(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create topics; each has its partitions then."""
    for future in admin.create_topics(list(topics)).values():
        future.result(_ANSWER_S)
    for topic in topics:
        _await_partitions(admin, topic.topic, topic.num_partitions)


def delete_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Delete topics; none of them is there then, though a gateway may have made another."""
    before = {name: _topic_id(admin, name) for name in names}
    for future in admin.delete_topics(list(names)).values():
        future.result(_ANSWER_S)

    def is_gone() -> bool:
        return all(_topic_id(admin, name) != topic_id for name, topic_id in before.items())

    wait_until(is_gone, _TIMEOUT_S, f"{names} to be gone", poll_s=0.01)


def add_partitions(admin: AdminClient, topic: str, total: int) -> None:
    """Let a topic have that many partitions."""
    for future in admin.create_partitions([NewPartitions(topic, total)]).values():
        future.result(_ANSWER_S)
    _await_partitions(admin, topic, total)


def set_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Set a property of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([change]).values():
        future.result(_ANSWER_S)

    def is_set() -> bool:
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return bool(described.result(_ANSWER_S)[name].value == value)

    wait_until(is_set, _TIMEOUT_S, f"{name} of {topic} to be {value}", poll_s=0.01)


def create_acls(admin: AdminClient, acls: Sequence[AclBinding]) -> None:
    """Add entries to the access control list; they are in force then."""
    for future in admin.create_acls(list(acls)).values():
        future.result(_ANSWER_S)

    def are_there() -> bool:
        return all(_has_acl(admin, acl) for acl in acls)

    wait_until(are_there, _TIMEOUT_S, f"{acls} to be in force", poll_s=0.01)


def delete_acls(admin: AdminClient, acls: Sequence[AclBinding]) -> None:
    """Take entries from the access control list; they are no longer in force then."""
    for future in admin.delete_acls([_only(acl) for acl in acls]).values():
        future.result(_ANSWER_S)

    def are_gone() -> bool:
        return not any(_has_acl(admin, acl) for acl in acls)

    wait_until(are_gone, _TIMEOUT_S, f"{acls} to be gone", poll_s=0.01)


def ends(
    admin: AdminClient, places: Collection[TopicPartition], isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    """The end offsets of partitions: of all records, or of those that are committed."""
    latest = {place: OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
    found: dict[TopicPartition, int] = {}

    def all_found() -> bool:
        try:
            for place, end in admin.list_offsets(latest, isolation_level=isolation).items():
                found[place] = int(end.result(_ANSWER_S).offset)
        except KafkaException as error:
            assert error.args[0].code() in SETTLING, error
            return False
        return True

    wait_until(all_found, _TIMEOUT_S, "the leaders of partitions", poll_s=0.01)
    return found


def producer_in_transaction(bootstrap: str) -> Producer:
    """A producer whose Kafka transaction has begun, and stays open until the test ends it.

    By default the broker would abort it after a minute, which a busy machine may need to see it.
    """
    properties: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": uuid.uuid4().hex,
        "transaction.timeout.ms": 900_000,
    }
    producer = Producer(properties)
    producer.init_transactions(_ANSWER_S)
    producer.begin_transaction()
    return producer


def await_visible(admin: AdminClient, places: Collection[TopicPartition]) -> None:
    """Wait until readers of committed records see all that is in these partitions now."""
    written = ends(admin, places, IsolationLevel.READ_UNCOMMITTED)

    def are_visible() -> bool:
        visible = ends(admin, places, IsolationLevel.READ_COMMITTED)
        return all(visible[place] >= end for place, end in written.items())

    wait_until(are_visible, _TIMEOUT_S, "the end of what is committed in Kafka", poll_s=0.01)


def _await_partitions(admin: AdminClient, topic: str, number: int) -> None:
    def are_known() -> bool:
        answer = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        return answer.error is None and len(answer.partitions) == number

    wait_until(are_known, _TIMEOUT_S, f"{topic} to have {number} partitions", poll_s=0.01)


def _topic_id(admin: AdminClient, name: str) -> str | None:
    (described,) = admin.describe_topics(TopicCollection([name])).values()
    try:
        return str(described.result(_ANSWER_S).topic_id)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
        return None


def _has_acl(admin: AdminClient, acl: AclBinding) -> bool:
    return bool(admin.describe_acls(_only(acl)).result(_ANSWER_S))


def _only(acl: AclBinding) -> AclBindingFilter:
    """The filter that one entry passes, and no other."""
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
