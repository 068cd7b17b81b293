"""A random call of one signature: its types, its arguments and its SQL text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.support.filters.hints import HINTS, syntax
from tests.support.filters.invented import invented
from tests.support.filters.literals import quote, values_of
from tests.support.filters.server import Table
from tests.support.filters.signatures import Signature, Type, Types

__all__ = ["Arguments", "Call", "call", "literal", "resolve"]

_ELEMENTS: Final = frozenset(
    {"anyelement", "anynonarray", "anycompatible", "anycompatiblenonarray"}
)
_ARRAYS: Final = frozenset({"anyarray", "anycompatiblearray"})
_RANGES: Final = frozenset({"anyrange", "anycompatiblerange"})
_MULTIRANGES: Final = frozenset({"anymultirange", "anycompatiblemultirange"})
_SAMPLE: Final = ("int4", "text", "numeric", "float8", "date", "timestamp", "bool", "uuid", "int8",
                  "interval", "bytea", "varchar", "bpchar", "inet", "timestamptz", "jsonb",
                  "bit")  # fmt: skip

_NOT_NULL: Final = {"varchar": 2}
"""The place of an argument, by key, with which the server gives no NULL where it is NULL: it leaves
the call out where the length cannot matter."""

Arguments = Callable[[int], str]
"""Makes the SQL text of an argument of a type."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call, and the type of what it results in."""

    signature: Signature
    sql: str
    result: int


def resolve(
    signature: Signature, types: Types, random: Random, wanted: int | None = None
) -> tuple[tuple[int, ...], int] | None:
    """Types of arguments and result, polymorphic ones chosen; None if a type is not known.

    With `wanted` the result is of that type, or None is returned.
    """
    of_result = _name(signature.result, types)
    names = {of_result, *(_name(oid, types) for oid in signature.arguments)}
    by_name = {kind.name: kind for kind in types.values()}
    ranges = [kind for kind in types.values() if kind.kind == "r"]
    chosen: dict[str, int] = {}
    if names & (_RANGES | _MULTIRANGES):
        if wanted is not None:
            ranges = [kind for kind in ranges if _chosen(kind, types).get(of_result) == wanted]
        chosen = _chosen(random.choice(ranges), types) if ranges else {}
    elif names & (_ELEMENTS | _ARRAYS):
        kind = by_name[random.choice(_SAMPLE)]
        if wanted is not None and of_result in _ELEMENTS | _ARRAYS:
            oid = wanted if of_result in _ELEMENTS else types[wanted].element
            kind = types.get(oid, kind)
        chosen = dict.fromkeys(_ELEMENTS, kind.oid) | dict.fromkeys(_ARRAYS, kind.array)

    def of(oid: int) -> int:
        name = _name(oid, types)
        return by_name[random.choice(_SAMPLE)].oid if name == "any" else chosen.get(name, oid)

    arguments, result = tuple(map(of, signature.arguments)), of(signature.result)
    known = all(oid in types and types[oid].kind != "p" for oid in (*arguments, result))
    return (arguments, result) if known and wanted in (None, result) else None


def _name(oid: int, types: Types) -> str:
    return types[oid].name if oid in types else ""


def _chosen(kind: Type, types: Types) -> dict[str, int]:
    """Return the polymorphic types when the range is `kind`."""
    return {
        **dict.fromkeys(_RANGES, kind.oid),
        **dict.fromkeys(_MULTIRANGES, kind.multirange),
        **dict.fromkeys(_ELEMENTS, kind.subtype),
        **dict.fromkeys(_ARRAYS, types[kind.subtype].array),
    }


def literal(oid: int, types: Types, random: Random) -> str:
    """A literal of a type, or a NULL of it."""
    kind = types[oid]
    element = types[kind.element].name if kind.element else None
    pool = values_of(kind.name, element)
    if not pool or random.random() < 0.04:
        return f"NULL::{kind.sql}"
    if kind.name == "bool":
        return random.choice(pool)
    text = invented(kind.name, random) if random.random() < 0.25 else None
    text = text or random.choice(pool)
    if kind.name in ("int2", "int4", "int8", "float8", "numeric") and random.random() < 0.3:
        return f"({text if text[-1].isdigit() else quote(text)})::{kind.sql}"
    return f"{quote(text)}::{_sized(kind.name, kind.sql)}"


def _sized(name: str, sql: str) -> str:
    return "bit(3)" if name == "bit" else sql


def plain_argument(table: Table, random: Random, *, easy: bool) -> Arguments:
    """Columns mostly, and literals; when `easy`, only columns that sort by bytes."""
    columns: dict[int, list[str]] = {}
    for slot in table.slots:
        if not easy or slot.name.endswith(" 1"):
            columns.setdefault(slot.type_oid, []).append(f'"{slot.name}"')

    def make(oid: int) -> str:
        if oid in columns and random.random() < 0.6:
            return random.choice(columns[oid])
        return literal(oid, table.types, random)

    return make


def call(
    signature: Signature,
    table: Table,
    random: Random,
    argument: Arguments,
    wanted: int | None = None,
    *,
    easy: bool = False,
) -> Call | None:
    """A random call, with a result of type `wanted`; None when that cannot be.

    Where there are hints for an argument, one is taken mostly; always, and one of the first, when
    the call is to be `easy`.
    """
    resolved = resolve(signature, table.types, random, wanted)
    if resolved is None:
        return None
    kinds, result = resolved
    hints = HINTS.get(signature.name, {})
    texts = []
    for index, kind in enumerate(kinds):
        hint = hints.get(index, ())
        if hint and _suits(hint, kind, table.types) and (easy or random.random() < 0.85):
            texts.append(random.choice(hint[:3] if easy else hint))
        else:
            texts.append(argument(kind))
        if _NOT_NULL.get(signature.key) == index:
            texts[-1] = f"COALESCE({texts[-1]}, true)"
    return Call(signature, _written(signature, texts, kinds, table, random), result)


def _suits(hint: Sequence[str], oid: int, types: Types) -> bool:
    """The hint is for arguments of this type: a name is shared by functions on many types."""
    sql = types[oid].sql
    if "::" in hint[0]:
        return hint[0].endswith(f"::{sql}") or hint[0].endswith(f"::{types[oid].name}")
    return types[oid].name in ("int2", "int4", "int8", "numeric", "float8")


def _written(
    signature: Signature,
    texts: list[str],
    kinds: Sequence[int],
    table: Table,
    random: Random,
) -> str:
    types = table.types
    if signature.form == "cast":
        return f"({texts[0]})::{types[signature.result].sql}"
    if signature.form == "operator":
        return f"({' '.join([*texts[:-1], signature.name, texts[-1]])})"
    special = syntax(signature.name, texts, random) if random.random() < 0.4 else None
    if special is not None:
        return special
    name = f'pg_catalog."{signature.name}"'
    if signature.variadic:
        return f"{name}({_variadic(signature, texts, kinds, types, random)})"
    if signature.defaults:
        texts = texts[: len(texts) - random.randint(0, signature.defaults)]
    return f"{name}({', '.join(texts)})"


def _variadic(
    signature: Signature, texts: list[str], kinds: Sequence[int], types: Types, random: Random
) -> str:
    kind = types[kinds[-1]]
    if not kind.element:  # VARIADIC "any"
        return ", ".join(texts * random.randint(1, 2))
    if random.random() < 0.3:
        return ", ".join([*texts[:-1], f"VARIADIC {texts[-1]}"])
    more = [literal(kind.element, types, random) for _ in range(random.randint(1, 3))]
    return ", ".join([*texts[:-1], *more])
