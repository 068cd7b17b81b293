"""Tables to compare, and the rows of the source that they should hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.definitions.model import FilterClause, Masks, Operation, Plan, Publish, Table
from gateway.definitions.tables.keys import key_of
from gateway.envelope.masking import RowMask, row_mask
from schemas.topic_names import topic_part

__all__ = ["ComparedTable", "compared_tables"]

_ROW_OPERATIONS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A subscriber table.

    Attributes:
        name: ``schema.table``, as manifests call it.
        table: The table of the source.
        columns: Published columns.
        key: Columns that identify a row; empty if the whole row does.
        filters: Filters, one of which must be true; if empty, all rows pass.
        masks: Masks of some of the columns.
        hash_key: Key of the masks that hash.
        reason: Reason it cannot be compared with the source, or None.
    """

    name: str
    table: Table
    columns: tuple[str, ...]
    key: tuple[str, ...]
    filters: tuple[FilterClause, ...]
    reason: str | None
    masks: Masks = ()
    hash_key: bytes = field(default=b"", repr=False)

    @property
    def has_masked_key(self) -> bool:
        """Whether the rebuilt table does not show which row of the source is meant."""
        return any(name in self.key for name, _ in self.masks)

    @property
    def moves(self) -> bool:
        """Whether other tables select its rows, which enter and leave a little later."""
        return any(clause.formula is not None for clause in self.filters)

    def mask(self, names: Sequence[str]) -> RowMask | None:
        """Return the mask of the source's rows with the columns `names`, or None."""
        if not self.masks:
            return None
        by_name = {column.name: column for column in self.table.columns}
        columns = [by_name[name] for name in names]
        return row_mask(columns, range(len(columns)), self.masks, self.hash_key)


def compared_tables(plan: Plan, subscription: str, hash_key: bytes) -> list[ComparedTable]:
    """Return the tables of a subscription, by name; `hash_key` as in `ComparedTable`."""
    by_oid: dict[int, list[Publish]] = {}
    for publish in plan.publishes:
        if publish.subscription == subscription:
            by_oid.setdefault(publish.target_oid, []).append(publish)
    copy_data = {one.name: one.copy_data for one in plan.subscriptions}[subscription]
    found = [
        _compared_table(plan.tables[oid], publishes, copy_data, hash_key)
        for oid, publishes in by_oid.items()
    ]
    return sorted(found, key=lambda each: each.name)


def _compared_table(
    table: Table, publishes: Sequence[Publish], copy_data: bool, hash_key: bytes
) -> ComparedTable:
    columns = tuple(c.name for c in table.columns if publishes[0].publishes(c))
    filters = {frozenset(p.filters.get(o, ())) for p in publishes for o in _ROW_OPERATIONS}
    missing = sorted(
        o.value for o in _ROW_OPERATIONS if any(o not in p.operations for p in publishes)
    )
    reason = None
    if not copy_data:
        reason = "the subscription has copy_data = false"
    elif missing:
        reason = f"its publications do not publish {_listed(missing)}"
    elif len(filters) > 1:
        reason = "its publications filter INSERT, UPDATE and DELETE differently"
    return ComparedTable(
        name=f"{topic_part(table.schema)}.{topic_part(table.name)}",
        table=table,
        columns=columns,
        key=tuple(key_of(table, columns) or ()),
        filters=tuple(sorted(next(iter(filters)), key=lambda one: one.text)),
        reason=reason,
        masks=publishes[0].masks,
        hash_key=hash_key,
    )


def _listed(words: Iterable[str]) -> str:
    return " and ".join(words)
