"""Description of how a table is published, as text that outlasts the table in the catalog. Pure.

It is stored with the state of each copy, which also has the OID. If the table no longer exists at a
start, it describes the rows that may still be in the stream.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from functools import lru_cache
from typing import Any, Final

from gateway.core.watermark import CopyState
from gateway.definitions.model import (
    Collation,
    Column,
    Element,
    FilterClause,
    MaskedBefore,
    Operation,
    Plan,
    Publish,
    Table,
    TableCopy,
)
from gateway.definitions.sql.expression import refuse_nodes
from gateway.definitions.tables.keys import key_of
from gateway.definitions.tables.shape import write_shape
from gateway.definitions.tables.signatures import chosen_signature, key_signature
from gateway.definitions.tables.unread import unread_relations
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.masks import Mask, read_mask
from schemas.settings.tables import Envelope, TypesTable
from schemas.types import NESTED, of_column

__all__ = [
    "describe",
    "describe_masks",
    "description_fault",
    "masked_columns",
    "masks_of",
    "oversized",
    "read_column",
    "read_description",
    "relations_of",
    "stored_columns",
    "texts_of",
]

_STORED: Final = [field.name for field in fields(Column)].index("labels")
"""Number of a column's values that are stored: without labels, which a mask may have to hide."""


def describe(plan: Plan, copy: TableCopy, before: str = "") -> str:
    """Return how `plan` publishes the table of `copy`, as JSON.

    `before` is its description until now, if it is not to be copied.
    """
    table = plan.tables[copy.target_oid]
    key, chosen = key_of(table, copy.columns), plan.topics.chosen(str(table))
    masks = dict(copy.masks)
    hashed = [name for name, mask in copy.masks if mask.kind == "hash"]
    hidden = {c.name for c in table.columns if c.name in masks or c.name not in copy.columns}
    hidden = hidden if copy.masked_as else set()
    publishes = plan.publishes_of(copy.subscription, table.oid)
    envelope = plan.envelope.of(copy.subscription)
    description: dict[str, object] = {
        "key": key_signature(table.columns, key),
        # A hash is text, whatever the type.
        "native": _native(
            table,
            {*(copy.columns if key == () else key or ()), *chosen.key}.difference(hashed),
            plan.types,
            envelope,
        ),
        "kind": table.kind,
        # The value that older rows have in a masked column, published or not, is a true one.
        "columns": [
            astuple(replace(column, missing=None) if column.name in hidden else column)[:_STORED]
            for column in table.columns
        ],
        "replica_identity": table.replica_identity.value,
        "identity": table.identity,
        "primary_key": table.primary_key,
        "shape": write_shape(table.shape),
        "publishes": _alike(publishes),
    }
    if any(clause.formula for clause in copy.filters):
        description["moving"] = True
    if unread := unread_relations(plan, table, publishes, before):
        description["unread"] = unread
    if envelope.format != "pgsluice":
        description["format"] = str(envelope)
    if (signature := chosen_signature(table.columns, chosen)) is not None:
        description["chosen"] = signature
    if copy.masked_as:
        description["masked_as"] = copy.masked_as
        description["masked"] = [
            (c.attnum, c.name, str(masks[c.name]), masks[c.name].key_id)
            for c in table.columns
            if c.name in masks
        ]
    return _written(description)


def describe_masks(names: Sequence[str], before: str) -> str:
    """Return a description of no more than the masks of a table that is not published now.

    Args:
        names: Names of the tables whose masks it has; without any, there is no description.
        before: Description of the table until now, or empty.
    """
    if not names:
        return ""
    relations = sorted(relations_of(before)) if before else []
    masked = json.loads(before).get("masked", []) if before else []
    nothing: dict[str, object] = {
        "operations": [],
        "filters": {},
        "columns": None,
        "generated": False,
    }
    return _written(
        {
            "key": None,
            "kind": "r",
            "columns": [],
            "replica_identity": ReplicaIdentity.NOTHING.value,
            "identity": [],
            "primary_key": [],
            "publishes": [{**nothing, "relations": relations}],
            "masked_as": names,
            "masked": masked,
        }
    )


def _written(description: Mapping[str, object]) -> str:
    return json.dumps(description, ensure_ascii=False, separators=(",", ":"))


def _alike(publishes: Iterable[Publish]) -> list[dict[str, Any]]:
    """Return how relations are published; those of a tree published alike share an item."""
    items: dict[str, dict[str, Any]] = {}
    for publish in publishes:
        item: dict[str, Any] = {
            "operations": sorted(operation.value for operation in publish.operations),
            "filters": {
                operation.value: [(clause.publication, _stored(clause)) for clause in clauses]
                for operation, clauses in publish.filters.items()
            },
            "columns": publish.columns,
            "generated": publish.generated,
        }
        if publish.masks:
            item["masks"] = [(name, str(mask), mask.key_id) for name, mask in publish.masks]
        if publish.omitted:
            item["omitted"] = sorted(operation.value for operation in publish.omitted)
        same = items.setdefault(json.dumps(item), item | {"relations": []})
        same["relations"].append(publish.relation_oid)
    return list(items.values())


def _stored(clause: FilterClause) -> str:
    """Return the text of a clause; none that reads other tables comes back, see `recall`."""
    return clause.text if clause.formula is None else "false"


def _relations(item: Mapping[str, Any]) -> list[int]:
    """Return the OIDs of one item of `_alike`; older texts have one item per relation."""
    oids: list[int] = item["relations"] if "relations" in item else [item["relation"]]
    return oids


def oversized(plan: Plan, most_bytes: int) -> dict[tuple[str, int], int]:
    """Return the sizes of descriptions that are larger than `most_bytes`.

    Keys are subscription and OID. The size depends on texts that owners write: filters, defaults,
    labels.
    """
    texts: dict[tuple[str, int], int] = defaultdict(int)
    for publish in plan.publishes:
        clauses = {clause.text for found in publish.filters.values() for clause in found}
        texts[publish.subscription, publish.target_oid] += 64 + sum(map(len, clauses))
    found = {}
    for copy in plan.copies:
        table, key = plan.tables[copy.target_oid], (copy.subscription, copy.target_oid)
        guess = texts[key] + sum(400 + len(column.missing or "") for column in table.columns)
        if table.shape is not None:
            parts = (part for types in table.shape.types.values() for part in types.values())
            guess += 16 * (len(table.shape.files) + sum(map(len, parts)))
        if 16 * guess <= most_bytes:  # the usual case; encoding everything costs more
            continue
        if (size := len(describe(plan, copy).encode())) > most_bytes:
            found[key] = size
    return found


@lru_cache(4096)
def description_fault(text: str) -> str | None:
    """Return why `text` cannot be a result of `describe`, or None.

    Others may be able to write to the topic that stores it, and its filters become part of
    statements; each of them must therefore be a valid row filter.
    """
    state = CopyState("", "", "", "ready", oid=1, taken=text)
    try:
        table, publishes = read_description(state)
        description = json.loads(text)
        key_of_text, native = description["key"], {**description.get("native", {})}
        masked = masks_of(state, description)
        unread = [*description.get("unread", ())]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    numbers = [*(publish.relation_oid for publish in publishes), *masked.columns, *unread]
    names = [*table.identity, *table.primary_key, *(key_of_text or ()), *native]
    names.append(description.get("format", ""))
    names += [*masked.names, *masked.columns.values()]
    for column in table.columns:
        numbers += [column.attnum, column.type_oid, column.type_modifier]
        numbers += [column.base_type_oid, column.base_type_modifier]
        names += [column.name, column.type_name, column.base_type_name]
        if column.element is not None:
            numbers += [column.element.type_oid, column.element.type_modifier]
            names.append(column.element.type_name)
    if not all(type(number) is int for number in numbers):
        return "an OID that is no number"
    if not all(type(name) is str for name in names):
        return "a name that is no text"
    for publish in publishes:
        for clauses in publish.filters.values():
            for clause in clauses:
                if (why := refuse_nodes(clause.text)) is not None:
                    return f"a filter: {why}"
    return None


def _native(
    table: Table, names: Collection[str], types: TypesTable, envelope: Envelope
) -> dict[str, bool]:
    """Return whether the columns `names` are native where ``[types]`` has a choice."""
    return {
        column.name: _is_native(
            column, types.native_of(f"{table}.{column.name}", envelope.always) - NESTED
        )
        for column in table.columns
        if column.name in names
    }


def _is_native(column: Column, native: Collection[str]) -> bool:
    modifier = column.base_type_modifier if column.type_kind == "d" else column.type_modifier
    found = of_column(column.base_type_oid, column.base_name, native=native, modifier=modifier)
    return found.choice != ""


def relations_of(taken: str) -> frozenset[int]:
    """Return the OIDs of the relations in a text of `describe`."""
    return frozenset(oid for item in json.loads(taken)["publishes"] for oid in _relations(item))


def masks_of(state: CopyState, description: Mapping[str, Any]) -> MaskedBefore:
    """Return the masks in the description of a state."""
    relations = {oid for item in description["publishes"] for oid in _relations(item)}
    masked = {number: name for number, name, _ in masked_columns(description)}
    known = {column.attnum: column.name for column in map(read_column, description["columns"])}
    return MaskedBefore(
        state.subscription,
        state.oid,
        frozenset({state.oid, *relations}),
        tuple(description.get("masked_as", ())),
        masked,
        known or masked,
    )


def masked_columns(description: Mapping[str, Any]) -> list[tuple[int, str, Mask]]:
    """Return number, name and mask of each masked column."""
    return [
        (number, name, replace(read_mask(text), key_id=str(key_id)))
        for number, name, text, key_id in description.get("masked", ())
    ]


def texts_of(state: CopyState) -> tuple[list[str], list[str]]:
    """Return the row filters and the collation names in a state, as SQL.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it cannot be parsed.
    """
    if not state.taken:
        return [], []
    table, publishes = read_description(state)
    filters = {
        str(clause.text)
        for publish in publishes
        for clauses in publish.filters.values()
        for clause in clauses
    }
    collations = {str(c.collation.name) for c in table.columns if c.collation is not None}
    return sorted(filters), sorted(collations)


def read_description(state: CopyState) -> tuple[Table, list[Publish]]:
    """Return the table, and how its relations were published, from the description of a state."""
    description = json.loads(state.taken)
    publishes = [
        _publish(state, item, oid) for item in description["publishes"] for oid in _relations(item)
    ]
    leaves = [p.relation_oid for p in publishes if p.relation_oid != state.oid]
    table = Table(
        oid=state.oid,
        schema=state.schema,
        name=state.table,
        kind=description["kind"],
        columns=tuple(read_column(values) for values in description["columns"]),
        replica_identity=ReplicaIdentity(description["replica_identity"]),
        identity=tuple(description["identity"]),
        primary_key=tuple(description["primary_key"]),
        leaves=tuple(leaves),
    )
    return table, publishes


def _publish(state: CopyState, item: Mapping[str, Any], relation_oid: int) -> Publish:
    return Publish(
        state.subscription,
        relation_oid,
        state.oid,
        frozenset(map(Operation, item["operations"])),
        {
            Operation(operation): tuple(
                FilterClause(publication, state.oid, text) for publication, text in clauses
            )
            for operation, clauses in item["filters"].items()
        },
        None if item["columns"] is None else tuple(item["columns"]),
        item["generated"],
        tuple(
            (str(name), replace(read_mask(text), key_id=str(key_id)))
            for name, text, key_id in item.get("masks", ())
        ),
        frozenset(map(Operation, item.get("omitted", ()))),
    )


def stored_columns(columns: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the values of columns that are stored, for `read_column`."""
    return [values[:_STORED] for values in columns]


def read_column(values: Sequence[Any]) -> Column:
    """Return a column; older texts lack the last values, the element and the base type's name."""
    names = [field.name for field in fields(Column)][:_STORED]
    lacking = len(names) - len(values)
    if lacking in (1, 2):
        values = [*values, *(None, "")[-lacking:]]
    attributes = dict(zip(names, values, strict=True))
    for name, kind in (("collation", Collation), ("element", Element)):
        if attributes[name] is not None:
            attributes[name] = kind(*attributes[name])
    return Column(**attributes)
