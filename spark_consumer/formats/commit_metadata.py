"""Metadata of the job's commits, and the versions that commits give a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NewType

from spark_consumer.formats.schema_evolution import Known
from spark_consumer.kafka.position import Position

__all__ = ["NO_VERSION", "Commit", "Found", "Version"]

Version = NewType("Version", int)
"""Identifies a state of one table: a number that grows with each commit.

Versions of a table are compared, stored, and given back to its format, and nothing else: they need
not follow one another. A format whose own identifiers have no order uses what orders them (in
Iceberg the sequence number of the snapshot).
"""

NO_VERSION: Final = Version(-1)
"""Less than every version: there is no table."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Metadata of a commit, which a format stores in the commit itself.

    Attributes:
        position: The table's position after it.
        columns: By name, the table's published columns after it.
        serial: One more than that of the commit before. Two processes that write on top of the
            same one have the same, which identifies the second one.
    """

    position: Position
    columns: Mapping[str, Known]
    serial: int = 0

    def text(self) -> str:
        """Return the metadata as JSON, for a format to store."""
        columns = {name: [known.pg_type, known.number] for name, known in self.columns.items()}
        said = {**self.position.to_json(), "columns": columns, "serial": self.serial}
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def from_text(cls, metadata: object) -> Commit | None:
        """Return the metadata in a text of `text`; None for anything else."""
        if not isinstance(metadata, str):
            return None
        try:
            found = json.loads(metadata)
            position = Position.from_json(found)
            if position is None:
                return None
            columns = {
                name: Known(kind, number) for name, (kind, number) in found["columns"].items()
            }
            return cls(position, columns, int(found.get("serial", 0)))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Found:
    """A table in its history.

    Attributes:
        version: The newest version.
        commit: Metadata of the job's last commit.
    """

    version: Version
    commit: Commit
