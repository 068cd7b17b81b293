"""Metadata of the job's commits, and the versions that commits give a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NewType

from spark_consumer.errors import TransientConsumerError
from spark_consumer.formats.schema_evolution import Known
from spark_consumer.kafka.position import Position

__all__ = ["NO_VERSION", "Commit", "Found", "Version", "Written", "outrun"]

Version = NewType("Version", int)
"""Identifies a state of one table: a number that grows with each commit.

Versions of a table are only compared, stored, and given back to its format: they need not be
consecutive. A format whose identifiers have no order uses what orders them (in Iceberg the sequence
number of the snapshot).
"""

NO_VERSION: Final = Version(-1)
"""Version of a table that does not exist; less than every other."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Metadata of a commit, which a format stores in the commit itself.

    Attributes:
        position: Position of the table after the commit.
        columns: Published columns of the table after the commit, by name.
        serial: Serial of the previous commit, plus one. Two processes that write on top of the
            same commit use the same serial, which reveals the second one.
        history: Whether the table is a history; see `spark_consumer.history`.
    """

    position: Position
    columns: Mapping[str, Known]
    serial: int = 0
    history: bool = False

    def text(self) -> str:
        """Return the metadata as JSON, for a format to store."""
        columns = {name: [known.pg_type, known.number] for name, known in self.columns.items()}
        content = {**self.position.to_json(), "columns": columns, "serial": self.serial}
        if self.history:
            content["history"] = True
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_text(cls, metadata: object) -> Commit | None:
        """Parse metadata written by `text`; return None for anything else."""
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
            return cls(position, columns, int(found.get("serial", 0)), bool(found.get("history")))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Found:
    """State of a table, as its history reports it.

    Attributes:
        version: Newest version.
        commit: Metadata of the job's last commit.
    """

    version: Version
    commit: Commit


@dataclass(frozen=True, slots=True)
class Written:
    """Outcome of a write.

    Attributes:
        version: Version of the table after it.
        skipped: Number of keys whose update or delete matched no row, where counted.
    """

    version: Version
    skipped: int


def outrun(label: str) -> TransientConsumerError:
    """Return the error for a table that has changed since it was found."""
    return TransientConsumerError(
        f"{label}: a commit was made by another writer meanwhile",
        hint="one job writes to a warehouse at a time",
    )
