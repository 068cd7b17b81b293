"""text, varchar, bpchar and name: functions independent of collation, and order by bytes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from gateway.pgtypes.text import parts, strings
from gateway.rowfilter.builtins.common import COMPARISONS, Family, comparisons, same
from gateway.rowfilter.expr import CollationUse, Operation, Value

__all__ = ["FAMILY"]

_EQUALITY: Final = CollationUse.EQUALITY
_TRIM: Final = Operation("(trailing blanks)", strings.trim_blanks)


def _as_is(text: bytes) -> bytes:
    return text


def _comparisons() -> Iterator[Operation]:
    order = CollationUse.ORDER
    yield from comparisons("bpchar{}", equality=_EQUALITY, order=order, adapters=(_TRIM, _TRIM))
    for pattern in ("name{}", "name{}text", "text{}name"):
        yield from comparisons(pattern, equality=_EQUALITY, order=order)
    for suffix, (infix, function) in COMPARISONS.items():
        is_equality = suffix in ("eq", "ne")
        name = f"text{suffix}" if is_equality else f"text_{suffix}"
        yield Operation(name, function, infix, collation=_EQUALITY if is_equality else order)


def _not_like(text: bytes, pattern: bytes) -> bool:
    return not strings.match_like(text, pattern)


def _prepare_like(
    constants: Mapping[int, Value], *, positive: bool
) -> Callable[[bytes], bool] | None:
    pattern = constants.get(1)
    if not isinstance(pattern, bytes):
        return None
    matches = strings.compile_like(pattern)
    return matches if positive else lambda text: not matches(text)


def _likes() -> Iterator[Operation]:
    for name, function, positive in (
        ("textlike", strings.match_like, True),
        ("textnlike", _not_like, False),
        ("namelike", strings.match_like, True),
        ("namenlike", _not_like, False),
    ):
        prepare = partial(_prepare_like, positive=positive)
        yield Operation(name, function, can_raise=True, collation=_EQUALITY, prepare=prepare)


def _bpchar_length(value: bytes) -> int:
    return parts.length(value.rstrip(b" "))


_FUNCTIONS: Final = (
    Operation("textcat", operator.add, "+"),
    Operation("textlen", parts.length),
    Operation("textoctetlen", len),
    Operation("bpcharlen", _bpchar_length),
    Operation("bpcharoctetlen", len),
    Operation("text_substr", parts.substring, can_raise=True),
    Operation("text_substr_no_len", parts.substring),
    Operation("text_left", parts.left),
    Operation("text_right", parts.right),
    Operation("btrim", parts.trim_both),
    Operation("ltrim", parts.trim_left),
    Operation("rtrim", parts.trim_right),
    Operation("btrim1", parts.trim_both),
    Operation("ltrim1", parts.trim_left),
    Operation("rtrim1", strings.trim_blanks),
    Operation("text_starts_with", bytes.startswith, collation=_EQUALITY),
    Operation("textpos", parts.position, collation=_EQUALITY),
    Operation("replace_text", parts.replace, collation=_EQUALITY),
    Operation("name_text", same),
    Operation("name_bpchar", same),
)


def _varchar(typmod: int) -> Operation:
    return Operation(f"varchar({typmod})", partial(strings.to_varchar, typmod=typmod))


def _bpchar(typmod: int) -> Operation:
    return Operation(f"bpchar({typmod})", partial(strings.to_bpchar, typmod=typmod))


FAMILY: Final = Family(
    parsers={"text": _as_is, "varchar": _as_is, "bpchar": _as_is, "name": _as_is},
    operations=(*_comparisons(), *_likes(), *_FUNCTIONS),
    lengths={"varchar": _varchar, "bpchar": _bpchar},
)
