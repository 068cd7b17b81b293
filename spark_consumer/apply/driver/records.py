"""Records of one topic with the driver: `spark_consumer.kafka.records.TopicRecords`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from spark_consumer.kafka.batch_profile import (
    Group,
    Piece,
    TopicProfile,
    begins_copy,
    lone_beginnings,
    malformed,
    surveyed,
)
from spark_consumer.kafka.layout import value_layout
from spark_consumer.kafka.position import STEPS
from spark_consumer.kafka.records import too_many_runs
from spark_consumer.kafka.registry import Schemas

__all__ = ["DriverRecords"]


class DriverRecords:
    """Records that the driver's JVM holds.

    Args:
        topic: Their topic.
        java: ``pgsluice.small.Records``.

    Attributes:
        java: The same.
    """

    def __init__(self, topic: str, java: Any) -> None:
        self._topic = topic
        self.java = java

    def survey(self) -> TopicProfile | None:
        """See `TopicRecords`."""
        groups = []
        for found in json.loads(self.java.survey()):
            if (fault := found.pop("fault", None)) is not None:
                number = found["partition"]
                raise malformed(self._topic, number, fault["offset"], fault["fault"])
            body = found.pop("body")
            groups.append(
                Group(
                    size=found.pop("bytes"),
                    body=None if body is None else base64.b64decode(body),
                    **found,
                )
            )
        return surveyed(self._topic, groups) if groups else None

    def table(self, schemas: Schemas) -> tuple[str, str] | None:
        """Return the schema and table that the first record with a value names in ``source``.

        Args:
            schemas: Writer schemas by ID.

        Returns:
            None if no record has a value.

        Raises:
            ContractError: its schema is not that of an envelope.
            Py4JJavaError: the record is not what its schema says.
        """
        value_id = self.java.firstSchema()
        if value_id is None:
            return None
        schema = schemas.schema(value_id)
        value_layout(schema)
        names = json.loads(self.java.table(json.dumps(schema)))
        return str(names[0]), str(names[1])

    def without_tombstones(self) -> DriverRecords:
        """See `TopicRecords`."""
        return DriverRecords(self._topic, self.java.withoutTombstones())

    def without_truncates(self) -> DriverRecords:
        """See `TopicRecords`."""
        return DriverRecords(self._topic, self.java.withoutTruncates())

    def beyond(self, first: Mapping[int, int]) -> DriverRecords:
        """See `TopicRecords`."""
        numbers = [number for one in first.items() for number in one]
        return DriverRecords(self._topic, self.java.beyond(numbers))

    def beginnings(self, found: TopicProfile, schemas: Schemas) -> dict[int, tuple[int, int]]:
        """See `TopicRecords`."""
        if (alone := lone_beginnings(found, schemas)) is not None:
            return alone
        begun: dict[int, tuple[int, int]] = {}
        for partition, offset, value_id, body in json.loads(self.java.truncates()):
            if begins_copy(base64.b64decode(body), schemas.schema(value_id)):
                begun[partition] = max((offset, value_id), begun.get(partition, (-1, -1)))
        return begun

    def runs(
        self, found: TopicProfile, kinds: Mapping[Piece, int]
    ) -> list[tuple[int, DriverRecords]]:
        """See `TopicRecords`."""
        number = {(piece.key_id, piece.value_id): kind for piece, kind in kinds.items()}
        runs: list[list[int]] = []
        end = 0
        for key_id, value_id, count in json.loads(self.java.runs()):
            kind = number[key_id, value_id]
            begin, end = end, end + count
            if runs and runs[-1][0] == kind:
                runs[-1][2] = end
            else:
                runs.append([kind, begin, end])
        if len(runs) >= STEPS:
            raise too_many_runs(found)
        return [
            (kind, DriverRecords(self._topic, self.java.slice(begin, end)))
            for kind, begin, end in runs
        ]
