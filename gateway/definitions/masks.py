"""Masks of columns: the tables that each is for, and the columns that cannot have it. Pure.

A mask must not be lost without notice: it is for the partitions and child tables of the table that
it names, stays with a table that is renamed and with a partition that is detached, and is refused
if it fits no table or column.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from gateway.core.errors import ConfigError, DefinitionError
from gateway.definitions.model import (
    Catalog,
    Column,
    Definitions,
    MaskedBefore,
    Masks,
    Publish,
    Table,
    TableId,
)
from gateway.definitions.tables.keys import key_of
from schemas.settings.masks import Mask, read_mask

__all__ = ["PlannedMasks", "have_same_masks", "reused_name", "with_masks", "without_masks"]

_TEXTS: Final = frozenset({19, 25, 1042, 1043})
"""OIDs of name, text, char(n) and varchar."""
_KEY_ID: Final = b"pgsluice: digest of the key of hash"
_KEY_ID_DIGITS: Final = 16


def with_masks(
    definitions: Definitions,
    masks: Mapping[str, str],
    hash_key: str | None,
    *,
    defined: Collection[str],
) -> Definitions:
    """Return `definitions` with the masks of its subscriptions.

    Args:
        definitions: Parsed definitions, those of one group where there are groups.
        masks: ``[columns] masks``.
        hash_key: ``[columns] hash_key``.
        defined: Names of all subscriptions of the file.

    Raises:
        ConfigError: a mask names no subscription, or one whose tables have no copy, with which
            their masks are remembered; or ``hash`` has no key.
    """
    for name in masks:
        if not any(name.startswith(f"{subscription}.") for subscription in defined):
            raise ConfigError(
                f"{name!r} names no subscription",
                key="columns.masks",
                hint=f"defined are {', '.join(sorted(defined))}",
            )
    chosen: dict[str, Mask] = {}
    for name, text in masks.items():
        owners = [s for s in definitions.subscriptions if name.startswith(f"{s.name}.")]
        if not all(subscription.copy_data for subscription in owners):
            raise ConfigError(
                f"{name!r} is for a subscription with copy_data = false",
                key="columns.masks",
                hint="without a copy a renamed table or column looks like a new one: set "
                "copy_data = true, or leave the column out with a column list",
            )
        if owners:
            chosen[name] = read_mask(text)
    if hashed := [name for name, mask in chosen.items() if mask.kind == "hash"]:
        if hash_key is None:
            raise ConfigError(
                f"is required by the mask of {hashed[0]}",
                key="columns.hash_key",
                hint="make one with `openssl rand -hex 32`, and name its file in "
                "PGSLUICE_COLUMNS__HASH_KEY_FILE",
            )
        key_id = hmac.digest(hash_key.encode(), _KEY_ID, "sha256").hex()[:_KEY_ID_DIGITS]
        chosen |= {name: replace(chosen[name], key_id=key_id) for name in hashed}
    if not chosen:
        return definitions
    written = json.dumps(sorted((name, str(mask), mask.key_id) for name, mask in chosen.items()))
    digest = hashlib.sha256(written.encode()).hexdigest()
    return replace(definitions, masks=chosen, fingerprint=f"{definitions.fingerprint}.{digest}")


def have_same_masks(fingerprint: str, other: str) -> bool:
    """Whether the definitions of two fingerprints have the same masks."""
    return fingerprint.partition(".")[2] == other.partition(".")[2]


def without_masks(fingerprint: str) -> str:
    """Return the fingerprint that the same definitions have without masks."""
    return fingerprint.partition(".")[0]


class PlannedMasks:
    """Masks of the definitions, by subscription and table.

    Args:
        definitions: Parsed definitions.
        catalog: Catalog as read for them.
        before: Masks of the tables that were published already.
    """

    def __init__(
        self, definitions: Definitions, catalog: Catalog, before: Collection[MaskedBefore]
    ) -> None:
        self._masks = definitions.masks
        self._by_table: dict[str, dict[str, Mask]] = defaultdict(dict)
        for name, mask in definitions.masks.items():
            for table_name, column in _splits(name):
                self._by_table[table_name][column] = mask
        self._catalog = catalog
        self._before = before
        self._own = {(table.subscription, table.oid): table for table in before}
        self._named: dict[TableId, dict[str, Mask]] = {}
        self._earlier: dict[TableId, dict[str, None]] = defaultdict(dict)
        for table in before:
            for oid in table.relations:
                self._earlier[table.subscription, oid] |= dict.fromkeys(table.names)

    def on(self, subscription: str, table: Table, columns: Collection[str]) -> Masks:
        """Return the masks of those of `columns` that have one."""
        named = self._of(subscription, table)
        return tuple(
            (column.name, named[column.name])
            for column in table.columns
            if column.name in named and column.name in columns
        )

    def masked(self, publish: Publish, table: Table) -> Publish:
        """Return `publish` with the masks of its columns; `table` is its target."""
        if not self._of(publish.subscription, table):
            return publish
        names = [column.name for column in table.columns if publish.publishes(column)]
        return replace(publish, masks=self.on(publish.subscription, table, names))

    def masked_as(self, subscription: str, table: Table) -> tuple[str, ...]:
        """Return the names of the tables whose masks `table` has, the nearest last."""
        return tuple(
            name
            for names in (self._names(subscription, table) if self._masks else ())
            for name in names
            if f"{subscription}.{name}" in self._by_table
        )

    def restored(self, publish: Publish, table: Table) -> Publish:
        """Return how a relation was published, with its present masks in addition to those.

        Those of columns that `table` does not have any more stay: rows can still have them.
        """
        masks = dict(publish.masks) | dict(self.masked(publish, table).masks)
        return replace(publish, masks=tuple(masks.items()))

    def unknown(self, targets: Mapping[str, Mapping[int, Table]]) -> Iterator[DefinitionError]:
        """Yield an error for each mask of a table that its subscription does not have.

        Args:
            targets: Tables of each subscription, by OID.
        """
        missing = [f"{schema}.{name}" for schema, name, _ in self._catalog.missing]
        named = {
            f"{subscription}.{name}"
            for subscription, tables in targets.items()
            for found in ((missing,), *(self._names(subscription, t) for t in tables.values()))
            for names in found
            for name in names
        }
        named |= {f"{table.subscription}.{name}" for table in self._before for name in table.names}
        for name in self._masks:
            if named.isdisjoint(table for table, _ in _splits(name)):
                yield DefinitionError(
                    f"the mask of {name} is for a table that its subscription does not have",
                    hint="it is named subscription.schema.table.column in [columns] masks, under "
                    "publish_via_partition_root with the root as the table; if the table was "
                    "renamed, rename it there as well, or its values are published",
                )

    def problems(
        self, subscription: str, table: Table, columns: Collection[str]
    ) -> Iterator[DefinitionError]:
        """Yield the faults of the masks of a table that is published with `columns`."""
        named = self._of(subscription, table)
        if not named:
            return
        by_name = {column.name: column for column in table.columns}
        key = key_of(table, columns) or ()
        for reused in self._reused(subscription, table, named):
            yield DefinitionError(
                f'column "{reused[0]}" of table "{table}" has no mask for subscription '
                f'"{subscription}": it was masked as "{reused[1]}", which is another column now',
                hint="mask it in [columns] masks under its new name as well",
            )
        present = self._of_names(subscription, self._names(subscription, table)[1])
        if not named.keys() <= present.keys() and not self._has_columns_of_root(
            subscription, table
        ):
            yield DefinitionError(
                f'it is not known which columns of table "{table}" subscription "{subscription}" '
                "masked when it published them as those of its tree: they have other names, or "
                "another order",
                hint="mask them in [columns] masks under the table's present name",
            )
        for name, mask in named.items():
            is_gone = name not in by_name and name not in present
            if is_gone and self._has_none(subscription, table, name, named):
                continue  # the table has left the tree that its mask is for
            fault = _fault_of(by_name.get(name), mask, is_key=name in key)
            if fault is not None:
                why, hint = fault
                yield DefinitionError(
                    f'cannot mask column "{name}" of table "{table}" by {mask} for subscription '
                    f'"{subscription}": {why}',
                    hint=hint,
                )

    def _reused(
        self, subscription: str, table: Table, masked: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """Yield `reused_name` of a table, and of the partitions that it has got since."""
        own = self._own.get((subscription, table.oid))
        for oid in (table.oid, *table.leaves):
            was, now = self._own.get((subscription, oid)), self._catalog.tables.get(oid)
            if oid == table.oid:
                now = table
            elif own is not None and oid in own.relations:
                continue
            if was is not None and now is not None:
                found = reused_name(was.columns, now.columns, masked)
                if found is not None:
                    yield found

    def _has_columns_of_root(self, subscription: str, table: Table) -> bool:
        """Whether the columns of a table that was published as its root are still those of it.

        No numbers are known of such a partition: names in the order of the root's show that none
        of them was renamed, and that no two were exchanged.
        """
        if (subscription, table.oid) in self._own:
            return True
        names = [column.name for column in table.columns]
        return all(
            names == [name for _, name in sorted(before.known.items())]
            for before in self._before
            if before.subscription == subscription and table.oid in before.relations
        )

    def _has_none(
        self, subscription: str, table: Table, name: str, masked: Collection[str]
    ) -> bool:
        """Whether it is known that no column without a mask is what column `name` was.

        That it is absent proves nothing: it may have been renamed, which numbers tell, and of a
        partition that was published as its root there are none.
        """
        own = self._own.get((subscription, table.oid))
        for oid in (table.oid, *table.leaves):
            names = self._earlier.get((subscription, oid), {})
            if oid != table.oid and (
                (own is not None and oid in own.relations)
                or not any(name in self._by_table.get(f"{subscription}.{n}", {}) for n in names)
            ):
                continue
            was = self._own.get((subscription, oid))
            now = table if oid == table.oid else self._catalog.tables.get(oid)
            if was is None or not was.known or now is None:
                return False
            unmasked = [column for column in now.columns if column.name not in masked]
            if any(was.known.get(column.attnum) == name for column in unmasked):
                return False
        return True

    def computed(self, publishes: Iterable[Publish]) -> Iterator[str]:
        """Yield a warning for each published column that may show a masked one's values."""
        seen: set[TableId] = set()
        for publish in publishes if self._masks else ():
            table_id = (publish.subscription, publish.target_oid)
            table = self._catalog.tables[publish.target_oid]
            if table_id in seen or not (named := self._of(publish.subscription, table)):
                continue
            seen.add(table_id)
            for column in table.columns:
                if column.generated and publish.publishes(column) and column.name not in named:
                    yield (
                        f'column "{column.name}" of table "{table}" has no mask for subscription '
                        f'"{publish.subscription}": PostgreSQL computes it from other columns, '
                        "perhaps from masked ones"
                    )

    def _of(self, subscription: str, table: Table) -> Mapping[str, Mask]:
        """Return the masks by column, also for absent columns; that of the nearest name counts."""
        if not self._masks:
            return {}
        found = self._named.get((subscription, table.oid))
        if found is None:
            earlier, present = self._names(subscription, table)
            found = self._of_names(subscription, [*earlier, *present])
            self._named[subscription, table.oid] = found
        return found

    def _of_names(self, subscription: str, names: Iterable[str]) -> dict[str, Mask]:
        found: dict[str, Mask] = {}
        for name in names:
            found |= self._by_table.get(f"{subscription}.{name}", {})
        return found

    def _names(self, subscription: str, table: Table) -> tuple[list[str], list[str]]:
        """Return the earlier and the present names of a table and of those above it, nearest last.

        Masks by earlier names are for columns that have none by a present name.
        """
        trees = (self._catalog.tables.get(oid) for oid in table.ancestors)
        family = {one.oid: str(one) for one in (table, *trees) if one is not None}
        above = list(family)
        while above:
            more = dict(p for oid in above for p in self._catalog.parents.get(oid, ()))
            above = [oid for oid in more if oid not in family]
            family |= {oid: more[oid] for oid in above}
        names: dict[str, None] = {}
        # A partition that was published by itself brings its masks to the root it is published as.
        for oid in (*table.leaves, *reversed(family)):
            names |= self._earlier.get((subscription, oid), {})
        present = dict.fromkeys(reversed(family.values()))
        return [name for name in names if name not in present], list(present)


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Yield ``subscription.schema.table`` and column as which a mask's name can be read.

    It is more than one way if one of the names has a point.
    """
    parts = name.split(".")
    for count in range(3, len(parts)):
        yield ".".join(parts[:count]), ".".join(parts[count:])


def reused_name(
    before: Mapping[int, str], columns: Collection[Column], masked: Collection[str]
) -> tuple[str, str] | None:
    """Return a column that has lost its mask since another one has its name, and that name.

    Args:
        before: Earlier names of columns, by ``attnum``.
        columns: Columns of the table now.
        masked: Names that have masks.
    """
    names = {column.name for column in columns}.intersection(masked)
    for column in columns:
        was = before.get(column.attnum)
        if was is not None and was in names and column.name not in masked:
            return column.name, was
    return None


def _fault_of(column: Column | None, mask: Mask, *, is_key: bool) -> tuple[str, str] | None:
    """Return why a column cannot have a mask, and a hint; None if it can."""
    if column is None:
        return (
            "there is no such column",
            "if it was renamed, rename it in [columns] masks as well, or its values are published",
        )
    if is_key and mask.kind != "hash":
        return (
            "it is part of the key, and rows with different keys would become one",
            "mask it by hash, or leave it out of the publication with a column list",
        )
    is_citext = column.base_name.rpartition(".")[2] == "citext"
    is_text = column.base_type_oid in _TEXTS or is_citext
    if mask.kind == "truncate" and not is_text:
        return f"its type is {column.type_name}, no text", "mask it by hash or null"
    return None
