"""Comparison of the masks with which a table was published, column by column. Pure.

Columns are compared by number: one that is renamed under the same mask is published as before.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.definitions.model import Plan, Table, TableCopy, TableId
from schemas.settings.masks import Mask

__all__ = ["changed_masks", "masks_by_number", "with_other_masks"]


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


def with_other_masks(
    plan: Plan, before: Mapping[TableId, TableCopy], tables: Mapping[int, Table]
) -> dict[TableId, str]:
    """Return the tables whose rows consumers have under other masks than those of `plan`.

    Args:
        plan: The new plan.
        before: Copies that consumers have.
        tables: Tables as they were then.

    Returns:
        Reasons for holding them.
    """
    found = {}
    for copy in plan.copies:
        table_id = (copy.subscription, copy.target_oid)
        was = before.get(table_id)
        if was is None or not (was.masks or copy.masks):
            continue
        masks = masks_by_number(tables[copy.target_oid], was)
        if changed_masks(masks, masks_by_number(plan.tables[copy.target_oid], copy)):
            found[table_id] = "a column has another mask: the table has another name or parent"
    return found
