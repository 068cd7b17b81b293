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
from gateway.definitions.sql.expression import column_names, refuse_nodes
from gateway.definitions.tables.keys import KeyColumns, key_of
from gateway.definitions.tables.mask_changes import changed_masks, masks_by_number
from gateway.definitions.tables.retired import with_retired
from gateway.definitions.tables.shape import read_shape, unseen_change, write_shape
from gateway.definitions.tables.unread import unread_relations
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.masks import Mask, read_mask
from schemas.settings.tables import ChosenColumns, Envelope, TypesTable
from schemas.types import NESTED, of_column

__all__ = [
    "chosen_signature",
    "describe",
    "describe_masks",
    "description_fault",
    "has_same_key",
    "has_same_masks",
    "key_signature",
    "known_tables",
    "masked_before",
    "oids_of",
    "oversized",
    "read_column",
    "recall",
    "relations_of",
    "stored_columns",
    "texts_of",
    "unseen_since",
]

_STORED: Final = [field.name for field in fields(Column)].index("labels")
"""Number of a column's values that are stored: without labels, which a mask may have to hide."""

# int2, int4, int8; float4, float8; varchar, text
_SAME_KEYS: Final = {21: 20, 23: 20, 20: 20, 700: 701, 701: 701, 1043: 25, 25: 25}


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
        table, publishes = _read(state)
        description = json.loads(text)
        key_of_text, native = description["key"], {**description.get("native", {})}
        masked = _masked(state, description)
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


def key_signature(columns: Iterable[Column], key: KeyColumns) -> list[str] | None:
    """Return a signature that changes whenever the record keys of rows change.

    A type that only becomes wider leaves the keys unchanged.

    Args:
        columns: Columns, including those of the key.
        key: Key as returned by `gateway.definitions.tables.keys.key_of`.
    """
    if key is None:
        return None
    types = {column.name: column.base_type_oid for column in columns}
    return [f"{name} {_SAME_KEYS.get(types[name], types[name])}" for name in key]


def chosen_signature(
    columns: Iterable[Column], chosen: ChosenColumns
) -> list[list[str] | None] | None:
    """Return the signatures of the columns that are chosen, None if none are.

    Args:
        columns: Columns of the table.
        chosen: Columns chosen for the record key and the partition.
    """
    known = {column.name: column for column in columns}
    signatures = [
        # A table that lacks one of them is held.
        key_signature(known.values(), tuple(name for name in names if name in known))
        for names in (chosen.key, chosen.partition)
    ]
    return signatures if any(signatures) else None


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
    return of_column(column.base_type_oid, native=native, modifier=modifier).choice != ""


def has_same_key(before: str, after: str) -> bool:
    """Whether two texts of `describe` have the same key, in the same Avro types and format.

    Columns that only one of them has in a whole-row key leave the key the same, and so do all in
    older texts, which do not say how keys were carried.
    """
    was, now = json.loads(before), json.loads(after)
    if any(was.get(name) != now.get(name) for name in ("format", "chosen")):
        return False
    types = was.get("native", {})
    same = all(types.get(name, native) == native for name, native in now["native"].items())
    return bool(was["key"] == now["key"] and same)


def has_same_masks(taken: str, plan: Plan, copy: TableCopy) -> bool:
    """Whether the columns published at the time of `taken` have the masks that they had then.

    Args:
        taken: Description of the table of `copy`, from `describe`.
        plan: Current plan.
        copy: Copy of the plan.
    """
    description = json.loads(taken)
    if not copy.masks and not description.get("masked"):
        return True
    lists = [item["columns"] for item in description["publishes"]]
    masks = {number: mask for number, _, mask in _masked_columns(description)}
    before = {
        column.attnum: masks.get(column.attnum)
        for column in map(read_column, description["columns"])
        if not lists or any(names is None or column.name in names for names in lists)
    }
    return not changed_masks(before, masks_by_number(plan.tables[copy.target_oid], copy))


def unseen_since(taken: str, plan: Plan, copy: TableCopy) -> str | None:
    """Return why rows may have other values than at the time of `taken`, or None.

    Args:
        taken: Description of the table of `copy`, from `describe`.
        plan: Current plan.
        copy: Copy of the plan.
    """
    description, table = json.loads(taken), plan.tables[copy.target_oid]
    before = [read_column(values) for values in description["columns"]]
    shape = read_shape(description.get("shape"))
    return unseen_change(before, shape, table.columns, table.shape, copy.columns)


def relations_of(taken: str) -> frozenset[int]:
    """Return the OIDs of the relations in a text of `describe`."""
    return frozenset(oid for item in json.loads(taken)["publishes"] for oid in _relations(item))


def known_tables(states: Iterable[CopyState]) -> dict[tuple[str, str], int]:
    """Return the OID under which each table was published, by schema and name."""
    return {(state.schema, state.table): state.oid for state in states if state.oid}


def masked_before(states: Iterable[CopyState]) -> list[MaskedBefore]:
    """Return the masks of the tables that had some, those of held tables among them."""
    described = ((state, json.loads(state.taken)) for state in states if state.taken)
    return [_masked(state, found) for state, found in described if "masked_as" in found]


def _masked(state: CopyState, description: Mapping[str, Any]) -> MaskedBefore:
    """Return the masks in the description of a state."""
    relations = {oid for item in description["publishes"] for oid in _relations(item)}
    masked = {number: name for number, name, _ in _masked_columns(description)}
    known = {column.attnum: column.name for column in map(read_column, description["columns"])}
    return MaskedBefore(
        state.subscription,
        state.oid,
        frozenset({state.oid, *relations}),
        tuple(description.get("masked_as", ())),
        masked,
        known or masked,
    )


def _masked_columns(description: Mapping[str, Any]) -> list[tuple[int, str, Mask]]:
    """Return number, name and mask of each masked column."""
    return [
        (number, name, replace(read_mask(text), key_id=str(key_id)))
        for number, name, text, key_id in description.get("masked", ())
    ]


def recall(
    plan: Plan,
    states: Iterable[CopyState],
    existing: Collection[int],
    *,
    same_definitions: bool = False,
    exactly: bool = False,
) -> Plan:
    """Return `plan` extended by relations that were published and no longer exist.

    A table that was created again under the same name is not recalled: its copy replaces every row
    of the previous one that could still arrive.

    Args:
        plan: Current plan.
        states: Copy states as committed with the watermark.
        existing: OIDs of existing relations among those of `oids_of`.
        same_definitions: Whether the definitions are unchanged. If they are, relations that are no
            longer published have left a publication or a tree, and are recalled as well, as are
            those now published as another table; otherwise the definitions dropped them.
        exactly: Whether, with `same_definitions`, everything is published as before, because DDL
            messages tell where in the stream that changes.
    """
    named = {
        (copy.subscription, plan.tables[copy.target_oid].schema, plan.tables[copy.target_oid].name)
        for copy in plan.copies
    }
    subscriptions = {subscription.name for subscription in plan.subscriptions}
    copied = {(copy.subscription, copy.target_oid) for copy in plan.copies}
    now = {(publish.subscription, publish.relation_oid): publish for publish in plan.publishes}
    held = {(table.subscription, table.oid) for table in plan.held}
    tables: dict[int, Table] = {}
    publishes: list[Publish] = []
    for state in states:
        replaced = (state.subscription, state.schema, state.table) in named and (
            state.subscription,
            state.oid,
        ) not in copied
        if not state.taken or replaced or state.subscription not in subscriptions:
            continue
        if state.state == "held" or _is_moving(state):
            continue  # its description has masks only, or lacks what its filters are
        table, found = _read(state)
        retired = [
            p
            for p in found
            if p.relation_oid not in existing
            or (
                same_definitions
                and (p.subscription, p.relation_oid) not in held
                and _differs(p, now.get((p.subscription, p.relation_oid)), plan, exactly)
            )
        ]
        if exactly and same_definitions and not found and table.kind == "r":
            plan = _without(plan, state.subscription, state.oid)
        if retired and (state.oid in plan.tables or state.oid not in existing or same_definitions):
            tables |= {p.relation_oid: replace(table, oid=p.relation_oid) for p in retired}
            tables[table.oid] = table
            publishes += retired
    before = Plan({**tables, **plan.tables}, (), tuple(publishes), (), ())
    found_oids = {publish.relation_oid for publish in publishes}
    recalled = with_retired(plan, before, found_oids, found_oids if same_definitions else ())
    return replace(recalled, earlier=recalled.earlier | plan.earlier)


def _differs(was: Publish, now: Publish | None, plan: Plan, exactly: bool) -> bool:
    """Whether a relation is now published differently in a way that matters."""
    if now is None or was.target_oid != now.target_oid:
        return True
    if not exactly or was == now:
        return False
    columns = {column.name for column in plan.tables[was.target_oid].columns}
    read = {
        name
        for clauses in was.filters.values()
        for clause in clauses
        for name in column_names(clause.text)
    }
    return columns.issuperset(read)  # otherwise their types would be unknown


def _without(plan: Plan, subscription: str, target_oid: int) -> Plan:
    """Return `plan` without the publishes of a table that was in no publication before."""
    left = plan.publishes_of(subscription, target_oid)
    earlier = plan.earlier | {(subscription, publish.relation_oid) for publish in left}
    kept = tuple(publish for publish in plan.publishes if publish not in left)
    return replace(plan, publishes=kept, earlier=earlier)


def oids_of(states: Iterable[CopyState]) -> set[int]:
    """Return the OIDs of all relations that were published."""
    oids: set[int] = set()
    for state in states:
        if state.taken:
            oids.add(state.oid)
            oids |= relations_of(state.taken)
    return oids


def texts_of(state: CopyState) -> tuple[list[str], list[str]]:
    """Return the row filters and the collation names in a state, as SQL.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it cannot be parsed.
    """
    if not state.taken:
        return [], []
    table, publishes = _read(state)
    filters = {
        str(clause.text)
        for publish in publishes
        for clauses in publish.filters.values()
        for clause in clauses
    }
    collations = {str(c.collation.name) for c in table.columns if c.collation is not None}
    return sorted(filters), sorted(collations)


def _is_moving(state: CopyState) -> bool:
    """Whether a table's filters read other tables: they are those of the plan, or none."""
    return bool(state.taken) and bool(json.loads(state.taken).get("moving"))


def _read(state: CopyState) -> tuple[Table, list[Publish]]:
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
