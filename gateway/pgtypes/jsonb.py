"""jsonb: documents with PostgreSQL's equality and order, and their text form.

Inside a document null is None, a boolean is a bool, a number a `Decimal` that keeps its scale, a
string a str, an array a list and an object a dict whose keys stand in the order in which the
server stores them: by length in bytes, then by bytes. `Jsonb` holds a whole document, so that
JSON's null is not SQL's NULL. Documents are never changed in place: parts of them are shared.

Source: src/backend/utils/adt/jsonb.c, jsonb_util.c.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn, TypeAlias, final

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "MAX_DEPTH",
    "Json",
    "Jsonb",
    "as_text",
    "cast",
    "compare",
    "exceeds_depth",
    "is_scalar",
    "pretty",
    "print_jsonb",
    "read_jsonb",
    "send",
    "to_number",
    "type_of",
    "with_order",
]

Json: TypeAlias = Any
"""A value inside a document: None, bool, Decimal, str, list or dict."""

MAX_DEPTH: Final = 200
"""Documents nested more deeply are refused when they are read: Python's stack ends before long."""

_quoted: Final[Callable[[str], str]] = encode_basestring


@final
class Jsonb:
    """A jsonb document; compares and hashes as jsonb_eq and jsonb_cmp do.

    The order is that of a database whose default collation sorts by bytes: strings and keys are
    compared under it. Equality holds under every default collation.
    """

    __slots__ = ("value",)

    def __init__(self, value: Json) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Jsonb):
            return NotImplemented
        # Python's equality is right but for True and 1: few pairs have to be looked at twice.
        return bool(self.value == other.value) and _same_types(self.value, other.value)

    def __hash__(self) -> int:
        return hash(_frozen(self.value))

    def __lt__(self, other: Jsonb) -> bool:
        return compare(self, other) < 0

    def __le__(self, other: Jsonb) -> bool:
        return compare(self, other) <= 0

    def __gt__(self, other: Jsonb) -> bool:
        return compare(self, other) > 0

    def __ge__(self, other: Jsonb) -> bool:
        return compare(self, other) >= 0

    def __repr__(self) -> str:
        return f"Jsonb({self.value!r})"


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


_decode: Final = json.JSONDecoder(
    parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse_constant
).decode


@lru_cache(maxsize=8)
def read_jsonb(text: bytes) -> Jsonb:
    """Read a jsonb as its output function prints it.

    The last few are kept: the filters of many subscriptions read the same value of the same row.

    Raises:
        ValueFormatError: not JSON, or nested more than `MAX_DEPTH` levels deep.
    """
    try:
        value = _decode(text.decode())
    except (ValueError, RecursionError):
        value, readable = None, False
    else:
        readable = len(text) <= 2 * MAX_DEPTH or not exceeds_depth(text)
    if not readable:
        if exceeds_depth(text):
            raise ValueFormatError(f"a jsonb value is nested more than {MAX_DEPTH} levels deep")
        raise ValueFormatError("a value does not read as jsonb")
    return Jsonb(value)


def exceeds_depth(text: bytes) -> bool:
    """Whether the JSON `text` is nested more than `MAX_DEPTH` levels deep."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    in_string = escaped = False
    for c in text:
        if escaped:
            escaped = False
        elif in_string:
            escaped = c == 0x5C
            in_string = c != 0x22
        elif c == 0x22:
            in_string = True
        elif c in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif c in b"]}":
            depth -= 1
    return False


def is_scalar(value: Json) -> bool:
    """Neither an array nor an object."""
    return not isinstance(value, list | dict)


def type_of(value: Json) -> str:
    """What jsonb_typeof() says."""
    return _NAMES[_rank(value)]


_RANKS: Final = {type(None): 0, str: 1, Decimal: 2, bool: 3, list: 4, dict: 5}
_NAMES: Final = ("null", "string", "number", "boolean", "array", "object")
_CAST_NAMES: Final = ("null", "string", "numeric", "boolean", "array", "object")


def _rank(value: Json) -> int:
    """The place of a value's type in the order of jsonb values (enum jbvType)."""
    return _RANKS[type(value)]


def with_order(pairs: dict[str, Json]) -> dict[str, Json]:
    """An object whose keys stand as the server stores them (lengthCompareJsonbString)."""
    return {key: pairs[key] for key in sorted(pairs, key=_storage_order)}


def _storage_order(key: str) -> tuple[int, str]:
    return len(key.encode()), key


# Equality, hash and order


def _same_types(left: Json, right: Json) -> bool:
    """Of two values that Python calls equal: no boolean stands where a number does."""
    if isinstance(left, list):
        return all(map(_same_types, left, right))
    if isinstance(left, dict):
        return all(_same_types(value, right[key]) for key, value in left.items())
    return isinstance(left, bool) is isinstance(right, bool)


def _frozen(value: Json) -> object:
    if isinstance(value, list):
        return (4, *map(_frozen, value))
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    return (3, value) if isinstance(value, bool) else value


def compare(left: Jsonb, right: Jsonb) -> int:
    """-1, 0 or 1 as jsonb_cmp(), where the database's default collation sorts by bytes.

    Source: compareJsonbContainers(). A scalar at the top is an array of one element to it, which
    is why an empty array is less than any scalar, at the top only.
    """
    a, b = left.value, right.value
    if isinstance(a, list) and is_scalar(b):
        return 1 if a else -1
    if isinstance(b, list) and is_scalar(a):
        return -1 if b else 1
    return _compare(a, b)


def _compare(left: Json, right: Json) -> int:
    rank = _rank(left)
    if rank != _rank(right):
        return 1 if rank > _rank(right) else -1
    if rank == 0:
        return 0
    if rank < 4:
        return int(left > right) - int(left < right)
    if len(left) != len(right):
        return 1 if len(left) > len(right) else -1
    if rank == 4:
        pairs = zip(left, right, strict=True)
        return next((found for a, b in pairs if (found := _compare(a, b))), 0)
    for (left_key, a), (right_key, b) in zip(left.items(), right.items(), strict=True):
        if left_key != right_key:
            return 1 if left_key > right_key else -1
        if found := _compare(a, b):
            return found
    return 0


# Text


def print_jsonb(value: Json) -> str:
    """The text form of a value (jsonb_out)."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(print_jsonb, value))}]"
    if isinstance(value, dict):
        pairs = [f"{_quoted(key)}: {print_jsonb(item)}" for key, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return "null" if value is None else "true" if value else "false"


def as_text(value: Json) -> bytes | None:
    """A value as ``->>`` gives it: a string without quotes, None for null."""
    if isinstance(value, str):
        return value.encode()
    return None if value is None else print_jsonb(value).encode()


def pretty(document: Jsonb) -> bytes:
    """The text of jsonb_pretty()."""
    return _pretty(document.value, 0).encode()


def _pretty(value: Json, level: int) -> str:
    if is_scalar(value):
        return print_jsonb(value)
    inner = "    " * (level + 1)
    if isinstance(value, list):
        first, last = "[", "]"
        items = [inner + _pretty(item, level + 1) for item in value]
    else:
        first, last = "{", "}"
        items = [
            f"{inner}{_quoted(key)}: {_pretty(item, level + 1)}" for key, item in value.items()
        ]
    lines = "".join(
        "\n" + item + ("," if n < len(items) else "") for n, item in enumerate(items, 1)
    )
    return f"{first}{lines}\n{'    ' * level}{last}"


def send(document: Jsonb) -> bytes:
    """The binary form: a version byte and the text (jsonb_send)."""
    return b"\x01" + print_jsonb(document.value).encode()


# Casts


def cast(document: Jsonb, kind: type[Any], name: str, *, null: bool = False) -> Any:
    """The bool or Decimal of a document that is one, for a cast to the type `name`.

    Args:
        document: What is cast.
        kind: bool or Decimal.
        name: PostgreSQL's name of the type, for the message.
        null: A null becomes None, as from PostgreSQL 18 on; otherwise it cannot be cast.

    Raises:
        EvaluationError: it is something else.
    """
    value = document.value
    if type(value) is kind or (null and value is None):
        return value
    raise EvaluationError(f"cannot cast jsonb {_CAST_NAMES[_rank(value)]} to type {name}")


def to_number(
    document: Jsonb, convert: Callable[[Decimal], object], name: str, *, null: bool = False
) -> object:
    """Cast to a numeric type, which `convert` makes of a numeric; `name` and `null` as `cast`."""
    number = cast(document, Decimal, name, null=null)
    return None if number is None else convert(number)
