"""Comparison of the masks with which a table was published, column by column. Pure.

Columns are compared by number: one that is renamed under the same mask is published as before.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.definitions.model import Table, TableCopy
from schemas.settings.masks import Mask

__all__ = ["changed_masks", "masks_by_number"]


def masks_by_number(table: Table, copy: TableCopy) -> dict[int, Mask | None]:
    """Return the masks of the copied columns of `table` by ``attnum``; None where one has none."""
    masks = dict(copy.masks)
    return {
        column.attnum: masks.get(column.name)
        for column in table.columns
        if column.name in copy.columns
    }


def changed_masks(
    before: Mapping[int, Mask | None], after: Mapping[int, Mask | None]
) -> frozenset[int]:
    """Return the numbers of the columns in both that have another mask, or have one or none now."""
    return frozenset(n for n in before.keys() & after.keys() if before[n] != after[n])
