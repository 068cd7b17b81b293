"""Position in the topics of a subscription: what to store beside what was made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pgsluice_client.errors import ReadError

__all__ = ["Owner", "Position"]

_FORMAT: Final = 1

Owner: TypeAlias = tuple[str, str, str]
"""Owner of topics: system identifier, database and slot."""


@dataclass(frozen=True, slots=True)
class Position:
    """End of a transaction in the topics. A reader that starts here continues exactly after it.

    Attributes:
        subscription: Name of the subscription.
        end_lsn: LSN until which everything has been read; None before the first marker.
        marker: Offset of the next marker to read.
        offsets: Offset of the next record by topic and partition.
        inside: Whether the rest of the Kafka transaction with the next markers is to come.
        waiting: Topics whose earlier records were gone: they begin with their next copy.
        owner: Owner of the topics; None if not known.
        handed_over: Partitions in which there is nothing yet of an owner that has taken them over.
    """

    subscription: str
    end_lsn: str | None = None
    marker: int = 0
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    inside: bool = False
    waiting: frozenset[str] = frozenset()
    owner: Owner | None = None
    handed_over: frozenset[tuple[str, int]] = frozenset()

    def to_json(self) -> str:
        """Return the position as JSON text."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        return json.dumps(
            {
                "pgsluice_position": _FORMAT,
                "subscription": self.subscription,
                "end_lsn": self.end_lsn,
                "marker": self.marker,
                "offsets": topics,
                "inside": self.inside,
                "waiting": sorted(self.waiting),
                "owner": self.owner,
                "handed_over": sorted(self.handed_over),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Position:
        """Read back the result of `to_json`.

        Raises:
            ReadError: it is something else.
        """
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("pgsluice_position") != _FORMAT:
            raise ReadError("this is not a position that Position.to_json has written")
        return cls(
            subscription=found["subscription"],
            end_lsn=found["end_lsn"],
            marker=found["marker"],
            offsets={
                (topic, int(partition)): offset
                for topic, partitions in found["offsets"].items()
                for partition, offset in partitions.items()
            },
            inside=found["inside"],
            waiting=frozenset(found["waiting"]),
            owner=None if found["owner"] is None else tuple(found["owner"]),
            handed_over=frozenset(
                (topic, number) for topic, number in found.get("handed_over", ())
            ),
        )
