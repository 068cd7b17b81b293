"""Topics: creation of missing ones and checks of existing ones."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from gateway.core.errors import FatalError, GatewayError, TransientError
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.properties import admin_properties, make_client
from gateway.sink.topics.topic_ids import read_topics
from schemas.kafka_errors import FIRST_ANSWER_S, PATIENCE_S

__all__ = [
    "TopicDescription",
    "TopicSpec",
    "creation_refused",
    "describe_topics",
    "ensure_topics",
    "misconfigured_topics",
    "progress_topic_spec",
]

_POLICY: Final = "cleanup.policy"
_CREATE_NOTHING: Final = {"allow.auto.create.topics": False}
"""A topic that is asked for by name would be created, if the user and the brokers allow it."""
_PROGRESS_SEGMENT_BYTES: Final = 16 << 20
_FEW_TOPICS: Final = 8
"""Number of topics up to which each is asked for by itself: 0.5 ms, against 20 ms for 2,500."""
_DESCRIBED_AT_ONCE: Final = 1_000
"""Number of topics whose settings, some thirty each, one answer has."""
_MOST_RECORDS: Final = 5_000
"""Number of records for topics, partitions and settings that a request may write; KRaft refuses
more than 10,000."""
_GRACE_S: Final = 1.0
_EACH_S: Final = 0.05
"""Time that a busy broker may take for each new topic before it shows the next one."""
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Required properties of a topic.

    Attributes:
        name: Name of the topic.
        partitions: Required number of partitions.
        config: Topic settings at creation; ``cleanup.policy`` is delete unless given.
        replication_factor: Replication factor at creation; -1 leaves it to the broker.
        forbid_compaction: Whether an existing topic must not be compacted, because it has records
            without a key.
        require_compaction: Whether an existing topic must be compacted only.
        partitions_at_creation_only: Whether to accept an existing topic with any number of
            partitions.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = -1
    forbid_compaction: bool = False
    require_compaction: bool = False
    partitions_at_creation_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Description of an existing topic.

    Attributes:
        config: All settings in force that have a value.
        replicas: Smallest number of replicas of a partition.
    """

    name: str
    partitions: int
    config: Mapping[str, str]
    replicas: int = 0

    @property
    def is_compacted(self) -> bool:
        """Whether ``cleanup.policy`` includes compact."""
        return "compact" in self.config.get(_POLICY, "delete")


def progress_topic_spec(name: str, *, replication_factor: int = -1) -> TopicSpec:
    """Return the specification of the watermark's topic: compacted, one partition."""
    return TopicSpec(
        name,
        partitions=1,
        # Only closed segments are compacted, and every start reads the rest: with default segments
        # of 1 GiB that would be millions of records.
        config={_POLICY: "compact", "segment.bytes": str(_PROGRESS_SEGMENT_BYTES)},
        replication_factor=replication_factor,
        require_compaction=True,
    )


def ensure_topics(
    kafka: Mapping[str, str | int | bool],
    topics: Sequence[TopicSpec],
    *,
    timeout_s: float = 30.0,
    refused: dict[str, FatalError] | None = None,
) -> dict[str, TopicDescription]:
    """Create missing topics and check existing ones; return all that exist then.

    Args:
        kafka: librdkafka properties of the user.
        topics: Required topics; names are unique.
        timeout_s: Timeout of each of the few requests, in seconds.
        refused: Receives the errors of single topics, by name, instead of raising them. An existing
            topic with a fault is returned nevertheless.

    Raises:
        TransientError: Kafka does not answer in time.
        FatalError: not authorised; wrong number of partitions; wrongly compacted or not compacted.
            All topics are checked before the first one is created.
    """
    wanted = {spec.name: spec for spec in topics}
    problems: dict[str, FatalError] = {}
    found = describe_topics(
        kafka, list(wanted), timeout_s=timeout_s, refused=None if refused is None else problems
    )
    _check(wanted, found, problems, refused)
    missing = [spec for spec in topics if spec.name not in found and spec.name not in problems]
    if not missing:
        return found
    problems |= _create(kafka, missing, timeout_s, validate_only=False)
    _refuse(problems, refused)
    made = _wait_until_visible(kafka, [s for s in missing if s.name not in problems], timeout_s)
    # Somebody else may have created it first, with other settings.
    _check(wanted, made, problems, refused)
    return {**found, **made}


def _create(
    kafka: Mapping[str, str | int | bool],
    topics: Sequence[TopicSpec],
    timeout_s: float,
    *,
    validate_only: bool,
) -> dict[str, FatalError]:
    admin = make_client(AdminClient, admin_properties(kafka))
    problems: dict[str, FatalError] = {}
    for some in _requests(topics):
        futures = admin.create_topics(
            [_new_topic(spec) for spec in some],
            request_timeout=timeout_s,
            validate_only=validate_only,
        )
        for name, future in futures.items():
            doing = f"creating topic {name}"
            try:
                _result(future, timeout_s, doing, ok=KafkaError.TOPIC_ALREADY_EXISTS)
            except FatalError as error:
                problems[name] = error
    return problems


def _requests(topics: Sequence[TopicSpec]) -> Iterator[list[TopicSpec]]:
    """Divide topics so that no request writes too many records of metadata."""
    some: list[TopicSpec] = []
    records = 0
    for spec in topics:
        own = 2 + spec.partitions + len(spec.config)  # with cleanup.policy
        if some and records + own > _MOST_RECORDS:
            yield some
            some, records = [], 0
        some.append(spec)
        records += own
    if some:
        yield some


def creation_refused(
    kafka: Mapping[str, str | int | bool], topics: Sequence[TopicSpec], *, timeout_s: float = 10.0
) -> dict[str, FatalError]:
    """Return why topics that are missing cannot be created, by name; creates none.

    Raises:
        TransientError: Kafka does not answer in time.
    """
    return _create(kafka, topics, timeout_s, validate_only=True) if topics else {}


def misconfigured_topics(
    topics: Sequence[TopicSpec], found: Mapping[str, TopicDescription]
) -> dict[str, FatalError]:
    """Return the faults of existing topics, by name."""
    problems: dict[str, FatalError] = {}
    for spec in topics:
        if spec.name in found and (error := _problem(spec, found[spec.name])) is not None:
            problems[spec.name] = error
    return problems


def describe_topics(
    kafka: Mapping[str, str | int | bool],
    names: Sequence[str],
    *,
    timeout_s: float = 10.0,
    refused: dict[str, FatalError] | None = None,
    await_restart: bool = True,
) -> dict[str, TopicDescription]:
    """Return existing topics, by name, once all their partitions have a leader.

    A topic that is left out does not exist: whoever asks may conclude that nothing was written.

    Args:
        kafka: librdkafka properties of the user.
        names: Names of the topics.
        timeout_s: Timeout of each of the few requests, in seconds, and of the wait for leaders.
        refused: Receives the errors of topics that may not be described, or whose settings may not
            be read, instead of raising them.
        await_restart: Whether brokers that cannot be reached, and partitions without a leader, are
            waited for until `timeout_s`.

    Raises:
        TransientError: Kafka does not answer in time, or a partition has no leader until then.
        FatalError: not authorised.
    """
    if not names:
        return {}
    connection_errors = ErrorCallback()
    properties = {**admin_properties(kafka), **_CREATE_NOTHING}
    admin = make_client(AdminClient, properties, connection_errors)
    ask = _Metadata(admin, connection_errors, timeout_s, await_restart)
    listed = ask.about(names)
    # One that may not be described is not listed, as if it did not exist: it is asked for by name.
    unlisted = [name for name in names if name not in listed]
    read_topics(kafka, unlisted, timeout_s=timeout_s, refused=refused, admin=admin)
    found = [name for name in names if name in listed]
    if not found:
        return {}
    listed |= ask.until_led([name for name in found if not _has_leaders(listed[name])])
    described: dict[str, TopicDescription] = {}
    for name, future in _asked_settings(admin, found, timeout_s):
        doing = f"describing topic {name}"
        try:
            entries = _result(future, timeout_s, doing, ok=KafkaError.UNKNOWN_TOPIC_OR_PART)
        except FatalError as error:
            if refused is None:
                raise
            refused[name] = error
            continue
        if entries is None:
            continue  # deleted between the two requests
        config = {key: entry.value for key, entry in entries.items() if entry.value is not None}
        parts = listed[name].partitions
        replicas = min(len(part.replicas) for part in parts.values())
        described[name] = TopicDescription(name, len(parts), config, replicas)
    return described


def _asked_settings(
    admin: AdminClient, names: Sequence[str], timeout_s: float
) -> Iterator[tuple[str, Future[Any]]]:
    """Ask for the settings of topics, some at a time: each request has its timeout."""
    for first in range(0, len(names), _DESCRIBED_AT_ONCE):
        some = names[first : first + _DESCRIBED_AT_ONCE]
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in some]
        futures = admin.describe_configs(resources, request_timeout=timeout_s)
        yield from ((str(resource.name), future) for resource, future in futures.items())


def list_topics(kafka: Mapping[str, str | int | bool], timeout_s: float = 15.0) -> list[str]:
    """Return the names of all topics.

    Raises:
        TransientError: Kafka does not answer in time, or cannot be reached.
        FatalError: not authorised.
    """
    connection_errors = ErrorCallback()
    admin = make_client(AdminClient, admin_properties(kafka), connection_errors)
    return sorted(_Metadata(admin, connection_errors, timeout_s, await_restart=False).all().topics)


class _Metadata:
    """Metadata of topics, perhaps on first contact with a cluster: refused access raises at once.

    Args:
        timeout_s: Timeout of all requests together, in seconds.
        await_restart: See `describe_topics`.
    """

    def __init__(
        self,
        admin: AdminClient,
        connection_errors: ErrorCallback,
        timeout_s: float,
        await_restart: bool,
    ) -> None:
        self._admin = admin
        self._connection_errors = connection_errors
        self._deadline = time.monotonic() + timeout_s
        self._await_restart = await_restart

    def all(self) -> ClusterMetadata:
        """Return all topics of the cluster."""
        return self._ask(None)

    def about(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Return topics that exist, a few of them without asking for all topics of the cluster."""
        asked = names if len(names) <= _FEW_TOPICS else [None]
        listed: dict[str, TopicMetadata] = {}
        for name in asked:
            listed |= self._ask(name).topics
        # Of one that was asked for by name and does not exist there is an error instead.
        return {name: topic for name, topic in listed.items() if topic.partitions}

    def until_led(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Ask again for topics of which a partition has no leader, until all have one.

        Returns:
            The topics; those that have been deleted meanwhile are left out.

        Raises:
            TransientError: one has none in time.
        """
        led: dict[str, TopicMetadata] = {}
        while names:
            if not self._await_restart or time.monotonic() >= self._deadline:
                raise TransientError(
                    f"topic {names[0]} has a partition without a leader",
                    hint="the broker that has its records is away, starting, or has lost a disk",
                )
            time.sleep(_POLL_S)
            found = self.about(names)
            found = {name: found[name] for name in names if name in found}
            led |= {name: topic for name, topic in found.items() if _has_leaders(topic)}
            names = [name for name in found if name not in led]
        return led

    def _ask(self, name: str | None) -> ClusterMetadata:
        began_at, timeout_s = time.monotonic(), FIRST_ANSWER_S
        while True:
            left_s = max(self._deadline - time.monotonic(), _POLL_S)
            try:
                found = self._admin.list_topics(name, timeout=min(left_s, timeout_s))
            except KafkaException as raised:
                error = raised.args[0]
            else:
                self._admin.poll(0)  # calls back with errors, which are from before the answer
                self._connection_errors.clear()
                return found
            self._admin.poll(0)
            timeout_s = PATIENCE_S
            now, reported = time.monotonic(), self._connection_errors.last
            is_time = now - began_at >= PATIENCE_S
            refusal = self._connection_errors.refusal() if is_time else None
            is_away = is_time and reported is not None and not self._await_restart
            if refusal is not None or is_away or now >= self._deadline:
                raise classify_kafka_error(
                    refusal or error, doing="listing topics", reported=reported
                )


def _wait_until_visible(
    kafka: Mapping[str, str | int | bool], specs: Sequence[TopicSpec], timeout_s: float
) -> dict[str, TopicDescription]:
    """Describe new topics: brokers learn of a topic some time after its creation.

    A broker makes thousands of logs one after the other, and may show none of them until it has
    made all of a request. `timeout_s` is the longest wait for one, if few are left.

    One broker is asked; another one may learn of a topic later, and answer the next caller that
    there is none. Offsets are then asked for again (`gateway.sink.topics.log_bounds`), the producer
    waits, a claim that is not found does not count (`gateway.sink.own_topics.claims`), and the
    table of a topic that seems to be deleted is copied, as one with a new topic is anyway. To ask
    all brokers would not do: one that is cut off from the controller answers as before.
    """
    connection_errors = ErrorCallback()
    properties = {**admin_properties(kafka), **_CREATE_NOTHING}
    admin = make_client(AdminClient, properties, connection_errors)
    names = waiting = [spec.name for spec in specs]
    deadline = time.monotonic() + max(timeout_s, _EACH_S * len(waiting))
    while waiting:
        asked_at = time.monotonic()
        listed = _Metadata(admin, connection_errors, timeout_s, await_restart=True).about(waiting)
        left = [name for name in waiting if name not in listed or not _has_leaders(listed[name])]
        now = time.monotonic()
        if len(left) < len(waiting):
            deadline = now + max(timeout_s, _EACH_S * len(left))
        elif now >= deadline:
            read_topics(kafka, left, timeout_s=timeout_s, admin=admin)  # not authorised, perhaps
            raise _not_there(left[0], timeout_s)
        waiting = left
        time.sleep(max(_POLL_S, now - asked_at) if left else 0.0)
    made = describe_topics(kafka, names, timeout_s=timeout_s)
    if gone := [name for name in names if name not in made]:
        raise _not_there(gone[0], timeout_s)
    return made


def _not_there(name: str, timeout_s: float) -> TransientError:
    return TransientError(f"created topic {name}, but it is not there after {timeout_s:.0f} s")


def _new_topic(spec: TopicSpec) -> NewTopic:
    return NewTopic(
        spec.name,
        num_partitions=spec.partitions,
        replication_factor=spec.replication_factor,
        config={_POLICY: "delete", **spec.config},
    )


def _has_leaders(topic: TopicMetadata) -> bool:
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def _check(
    wanted: Mapping[str, TopicSpec],
    found: Mapping[str, TopicDescription],
    problems: dict[str, FatalError],
    refused: dict[str, FatalError] | None,
) -> None:
    problems |= misconfigured_topics([wanted[name] for name in found], found)
    _refuse(problems, refused)


def _refuse(problems: Mapping[str, FatalError], refused: dict[str, FatalError] | None) -> None:
    if refused is not None:
        refused |= problems
    elif problems:
        raise next(iter(problems.values()))


def _problem(spec: TopicSpec, found: TopicDescription) -> FatalError | None:
    if found.partitions != spec.partitions and not spec.partitions_at_creation_only:
        return FatalError(
            f"topic {spec.name} has {found.partitions} partitions, {spec.partitions} expected",
            hint="records of one key would change their partition: restore the number, or let "
            "the gateway write to a new topic and repeat the initial copy",
        )
    policy = found.config.get(_POLICY, "delete")
    if spec.forbid_compaction and found.is_compacted:
        return FatalError(
            f"topic {spec.name} has cleanup.policy={policy}, but gets records that compaction "
            "would lose (without a key, or of TRUNCATE)",
            hint='set cleanup.policy=delete; for TRUNCATE alone, [topics] truncate = "skip" '
            "leaves it out",
            cause="compaction",
        )
    if spec.require_compaction and policy != "compact":
        return FatalError(
            f"topic {spec.name} has cleanup.policy={policy}, but must keep the last record of "
            "every key",
            hint="set cleanup.policy=compact before anything is deleted from it",
            cause="compaction",
        )
    return None


def _result(future: Future[Any], timeout_s: float, doing: str, *, ok: int) -> Any:
    """Return the future's result; None if it failed with the error code `ok`."""
    try:
        return future.result(timeout_s + _GRACE_S)
    except KafkaException as raised:
        error: KafkaError = raised.args[0]
        if error.code() == ok:
            return None
        failure: GatewayError = classify_kafka_error(error, doing=doing)
        raise failure from None
    except TimeoutError:
        raise TransientError(f"{doing}: no answer within {timeout_s:.0f} s") from None
