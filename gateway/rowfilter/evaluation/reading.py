"""Reading of the columns of a tuple by a generated function.

`INLINE` are types whose text becomes a value by a Python expression; the text of `AS_TEXT` is the
value itself; `CHEAP` are cheap enough to be read before the expression when they are read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, NoReturn

from gateway.core.errors import ValueFormatError
from gateway.pgoutput.messages import UNCHANGED
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.datetimes import iso
from gateway.rowfilter.types import PARSERS

__all__ = ["AS_TEXT", "CHEAP", "FORMATS", "INLINE", "not_sent", "once", "parser", "sent", "unsent"]

INLINE: Final = MappingProxyType(
    {
        TYPES[name][0]: template
        for name, template in {
            "int2": "int({})",
            "int4": "int({})",
            "int8": "int({})",
            "bool": "({} == b't')",
            "uuid": "{}",
            "name": "{}",
        }.items()
    }
)
AS_TEXT: Final = frozenset(TYPES[name][0] for name in ("text", "varchar", "bpchar"))
"""Types read unchanged, for which an unsent value needs a check of its own."""
CHEAP: Final = (
    INLINE.keys()
    | AS_TEXT
    | {TYPES[name][0] for name in ("float4", "float8", "numeric")}
)  # fmt: skip
FORMATS: Final[Mapping[int, Callable[[int], bytes]]] = MappingProxyType(
    {
        TYPES["date"][0]: iso.format_date,
        TYPES["timestamp"][0]: partial(iso.format_timestamp, zone=""),
        TYPES["timestamptz"][0]: partial(iso.format_timestamp, zone="+00"),
    }
)
"""Types whose texts sort as the values do, between the years 1 and 9999, under the walsender's
settings: the end of the whole seconds, nothing or ``+``, sorts before the point of a fraction."""


def parser(type_oid: int) -> Callable[[Any], Any]:
    """Return a function that reads a value, and raises for one that was not sent."""
    parse = PARSERS[type_oid]
    return parse if not _accepts_unchanged(parse) else lambda raw: parse(sent(raw))


def once(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `parse` with a cache of the last text, for values that repeat in succession."""
    last: tuple[Any, Any] = (None, None)

    def read(raw: Any) -> Any:
        nonlocal last
        known, value = last  # one object, so that another thread never sees half of it
        if known is raw:
            return value
        value = parse(raw)
        last = (raw, value)
        return value

    return read


@cache
def _accepts_unchanged(parse: Callable[[Any], Any]) -> bool:
    """Whether a parser does not detect unsent values, since it reads nothing."""
    try:
        parse(UNCHANGED)
    except Exception:
        return False
    return True


def sent(value: Any) -> Any:
    """Return `value`; raise `ValueFormatError` if it is an unchanged TOAST value."""
    return not_sent() if value is UNCHANGED else value


def not_sent() -> NoReturn:
    """Raise for an unchanged TOAST value that is needed."""
    raise unsent()


def unsent() -> ValueFormatError:
    """Return the error for an unchanged TOAST value that is needed."""
    return ValueFormatError(
        "an unchanged TOAST value that was not sent is needed by a row filter",
        hint="every column of a filter must be part of the replica identity",
    )
