"""Topics that cannot be used, with one fault of each. Nothing is created or changed.

A topic can have several faults at once. The same one is reported everywhere: at a start, at a
reload, by `pgsluice check` and by `pgsluice status`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gateway.core.errors import FatalError
from gateway.sink.topics.topic_ids import KnownTopic, read_denied, read_topics, write_denied
from gateway.sink.topics.topics import (
    TopicDescription,
    TopicSpec,
    creation_refused,
    describe_topics,
    misconfigured_topics,
)

__all__ = ["Examination", "examine_topics", "unusable_topics"]


@dataclass(frozen=True, slots=True)
class Examination:
    """Result of `examine_topics`, by name of a topic.

    Attributes:
        found: Existing topics that may be described.
        known: IDs of these, and permissions of this user.
        unusable: One fault of each topic that cannot be used, as returned by `unusable_topics`.
    """

    found: Mapping[str, TopicDescription]
    known: Mapping[str, KnownTopic]
    unusable: Mapping[str, FatalError]


def examine_topics(
    kafka: Mapping[str, str | int | bool],
    specs: Sequence[TopicSpec],
    *,
    read: Collection[str],
    failed_reads: Mapping[str, FatalError] = MappingProxyType({}),
) -> Examination:
    """Find topics that cannot be used or, if missing, cannot be created.

    Args:
        kafka: librdkafka properties of the user.
        specs: Required topics; names are unique.
        read: Names of the topics that are read as well as written.
        failed_reads: Errors already met in reading some of them, by name.

    Raises:
        TransientError: Kafka does not answer in time.
        FatalError: Kafka refuses the user.
    """
    refused: dict[str, FatalError] = {}
    found = describe_topics(kafka, [spec.name for spec in specs], refused=refused)
    known = read_topics(kafka, found, refused=refused)
    missing = [s for s in specs if s.name not in found and s.name not in refused]
    refused |= creation_refused(kafka, missing)
    unusable = unusable_topics(
        specs, found, known, refused=refused, read=read, failed_reads=failed_reads
    )
    return Examination(found, known, unusable)


def unusable_topics(
    specs: Sequence[TopicSpec],
    found: Mapping[str, TopicDescription],
    known: Mapping[str, KnownTopic],
    *,
    refused: Mapping[str, FatalError],
    read: Collection[str],
    failed_reads: Mapping[str, FatalError] = MappingProxyType({}),
) -> dict[str, FatalError]:
    """Return one fault of each topic that cannot be used, by name. Pure.

    Missing rights precede wrong settings, in the order in which the gateway needs them: to describe
    or create the topic, to read it, to write it. The result is in that order, too.

    Args:
        specs: Required topics; names are unique.
        found: Existing topics.
        known: IDs of these, and permissions of this user.
        refused: Errors of topics that can be neither described nor created.
        read: Names of the topics that are read as well as written.
        failed_reads: Errors already met in reading some of them.
    """
    denied = {name: error for name, error in read_denied(known).items() if name in read}
    misconfigured = misconfigured_topics(specs, found)
    faults: dict[str, FatalError] = {}
    for kind in (refused, denied, failed_reads, write_denied(known), misconfigured):
        for name, error in kind.items():
            faults.setdefault(name, error)
    return faults
