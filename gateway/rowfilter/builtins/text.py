"""text, varchar, bpchar, name and bytea."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import strings
from gateway.rowfilter.builtins.common import COMPARISONS, comparisons, same
from gateway.rowfilter.expr import CollationUse, Operation, Value

__all__ = ["LENGTHS", "OPERATIONS", "PARSERS"]


def _as_is(text: bytes) -> bytes:
    return text


PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        "text": _as_is,
        "varchar": _as_is,
        "bpchar": _as_is,
        "name": _as_is,
        "bytea": strings.parse_bytea,
    }
)

_TRIM: Final = Operation("(trailing blanks)", strings.trim_blanks)


def _comparisons() -> list[Operation]:
    equality, order = CollationUse.EQUALITY, CollationUse.ORDER
    found = [
        *comparisons("bpchar{}", equality=equality, order=order, adapters=(_TRIM, _TRIM)),
        *comparisons("name{}", equality=equality, order=order),
        *comparisons("name{}text", equality=equality, order=order),
        *comparisons("text{}name", equality=equality, order=order),
        *comparisons("bytea{}"),
    ]
    for suffix, (infix, function) in COMPARISONS.items():
        is_equality = suffix in ("eq", "ne")
        name = f"text{suffix}" if is_equality else f"text_{suffix}"
        use = equality if is_equality else order
        found.append(Operation(name, function, infix, collation=use))
    return found


def _not_like(text: bytes, pattern: bytes) -> bool:
    return not strings.match_like(text, pattern)


def _ilike(text: bytes, pattern: bytes) -> bool:
    # bytes.lower() folds ASCII only, which is what lower() does under the C collation.
    return strings.match_like(text.lower(), pattern.lower())


def _not_ilike(text: bytes, pattern: bytes) -> bool:
    return not _ilike(text, pattern)


def _prepare_like(
    constants: Mapping[int, Value], *, positive: bool, folds: bool
) -> Callable[[bytes], bool] | None:
    pattern = constants.get(1)
    if not isinstance(pattern, bytes):
        return None
    matches = strings.compile_like(pattern.lower() if folds else pattern)
    if folds:
        if positive:
            return lambda text: matches(text.lower())
        return lambda text: not matches(text.lower())
    return matches if positive else lambda text: not matches(text)


def _likes() -> list[Operation]:
    return [
        Operation(
            name,
            function,
            can_raise=True,
            collation=CollationUse.CTYPE if folds else CollationUse.EQUALITY,
            prepare=partial(_prepare_like, positive=positive, folds=folds),
        )
        for name, function, positive, folds in (
            ("textlike", strings.match_like, True, False),
            ("textnlike", _not_like, False, False),
            ("namelike", strings.match_like, True, False),
            ("namenlike", _not_like, False, False),
            ("texticlike", _ilike, True, True),
            ("texticnlike", _not_ilike, False, True),
            ("nameiclike", _ilike, True, True),
            ("nameicnlike", _not_ilike, False, True),
        )
    ]


OPERATIONS: Final[Sequence[Operation]] = (
    *_comparisons(),
    *_likes(),
    Operation("textcat", operator.add, "+"),
    Operation("byteacat", operator.add, "+"),
    Operation("text_starts_with", bytes.startswith, collation=CollationUse.EQUALITY),
    Operation("like_escape", strings.like_escape, can_raise=True),
    Operation("name_text", same),
    Operation("rtrim1", strings.trim_blanks),
)


def _varchar(typmod: int) -> Operation:
    return Operation(f"varchar({typmod})", partial(strings.to_varchar, typmod=typmod))


def _bpchar(typmod: int) -> Operation:
    return Operation(f"bpchar({typmod})", partial(strings.to_bpchar, typmod=typmod))


LENGTHS: Final[Mapping[str, Callable[[int], Operation | None]]] = MappingProxyType(
    {"varchar": _varchar, "bpchar": _bpchar}
)
