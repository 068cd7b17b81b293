"""What the job's own commits say of themselves, in their userMetadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark_consumer.formats.schema_evolution import Known
from spark_consumer.kafka.position import Position

__all__ = ["Commit", "Found"]


@dataclass(frozen=True, slots=True)
class Commit:
    """What a write says of itself in the same Delta commit.

    Attributes:
        position: Where the table is after it.
        columns: By name, the table's published columns after it.
    """

    position: Position
    columns: Mapping[str, Known]

    @property
    def transaction(self) -> tuple[str, int]:
        """Delta's transaction identifier: application and version."""
        position = self.position
        return f"pgsluice:{position.journal}:{position.generation}", position.version

    def text(self) -> str:
        """The commit's userMetadata."""
        columns = {name: [known.pg_type, known.number] for name, known in self.columns.items()}
        return json.dumps({**self.position.to_json(), "columns": columns}, separators=(",", ":"))

    @classmethod
    def from_text(cls, metadata: object) -> Commit | None:
        """Read it back; None when it is something else."""
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
            return cls(position, columns)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Found:
    """A table as its log has it.

    Attributes:
        version: Of the Delta table.
        commit: The last one of this job.
    """

    version: int
    commit: Commit
