"""Labels of enums, as far as the schema of a table shows them. Pure.

Consumers and registries bound schemas: all labels of a table are shown, or none where they are too
large together. A masked column shows none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from gateway.definitions.model import Plan, Table

__all__ = ["MOST_BYTES", "bounded", "has_new_labels", "shown_labels"]

MOST_BYTES: Final = 64 * 1024
"""Bytes of a table's labels in a schema, as a registry is sent it."""


class _Labelled(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...


def bounded(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of an enum; none if they are too many for a schema."""
    return tuple(labels) if len(json.dumps(labels)) <= MOST_BYTES else ()


def shown_labels(columns: Iterable[_Labelled]) -> dict[str, tuple[str, ...]]:
    """Return the labels that the schema of a table with these columns shows, by column."""
    found = {column.name: column.labels for column in columns if column.labels}
    size = sum(len(json.dumps(labels)) for labels in found.values())
    return found if size <= MOST_BYTES else {}


def has_new_labels(before: Mapping[int, Table], plan: Plan) -> bool:
    """Whether the schema of a table shows other labels than for the tables `before`, by OID."""
    for copy in plan.copies:
        was, now = before.get(copy.target_oid), plan.tables[copy.target_oid]
        if was is None:
            continue
        names = set(copy.columns).difference(name for name, _ in copy.masks)
        names &= {column.name for column in was.columns}
        of_now = [column for column in now.columns if column.name in names]
        names = {column.name for column in of_now}
        of_before = [column for column in was.columns if column.name in names]
        # A table of which the catalog knows nothing any more has no labels, and keeps its schema.
        is_known = any(column.labels for column in of_now)
        if is_known and shown_labels(of_now) != shown_labels(of_before):
            return True
    return False
