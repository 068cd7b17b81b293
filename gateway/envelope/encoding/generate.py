"""The source text of encoders: one block of statements per column or item, one join at the end.

Text in, text out: which Python stands for which conversion and Avro type. A conversion without
statements of its own is called by its name. `encoders` compiles it, with the names used here bound
to the tables and functions they mean. Names beginning with ``U_`` put the branch index of
``["null", T]`` in front; ``nested_p0`` encodes an array or a record of the first column, and
``nested_p`` an item of an array that is a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gateway.envelope.encoding.conversions import EPOCH_SHIFT_US
from gateway.envelope.schema import Field

__all__ = ["Step", "encoder_source", "items_source"]

Step: TypeAlias = tuple[Field, int | None]
"""A field, and the position of its column in the tuple; None: always null."""


def encoder_source(steps: Sequence[Step], *, union: bool, absent: str) -> str:
    """Write the function ``encode(row)``.

    Args:
        steps: The fields of the record, in its order.
        union: Fields are ``["null", T]``; otherwise plain.
        absent: Name of the function that stands for what is not bytes; it returns or raises.
    """
    lines: list[str] = []
    pieces: list[str] = []
    for number, (field, index) in enumerate(steps):
        if index is None:
            pieces.append("NULL")
            continue
        block, made = _column(field, number, index, "U_" if union else "", absent)
        lines += block
        pieces += made
    body = "\n".join(f"        {line}" for line in lines)
    joined = "".join(f"{piece}, " for piece in pieces)
    return (
        "def encode(row):\n"
        "    try:\n"
        f"{body}\n"
        f"        return join(({joined}))\n"
        "    except (ValueError, KeyError, OverflowError, ValueFormatError) as error:\n"
        "        raise explain(row, error) from error\n"
    )


def items_source(item: Field) -> str:
    """Write the function ``encode_items(items)``, of which each is bytes, or None for NULL."""
    if item.type.conversion == "boolean":
        return "def encode_items(items):\n    return join([U_BOOLEANS[v] for v in items])\n"
    add = "add(p)" + ("; add(v)" if _has_body(item) else "")
    conversion = "\n".join(f"            {line}" for line in _conversion(item, "p", "v", "U_"))
    return (
        "def encode_items(items):\n"
        "    made = []\n"
        "    add = made.append\n"
        "    for v in items:\n"
        "        if v is None:\n"
        "            add(NULL)\n"
        "        else:\n"
        f"{conversion}\n"
        f"            {add}\n"
        "    return join(made)\n"
    )


def _has_body(field: Field) -> bool:
    """Whether a value consists of a length and what is written as it is."""
    return field.type.avro in ("string", "bytes")


def _column(
    field: Field, number: int, index: int, prefix: str, absent: str
) -> tuple[list[str], list[str]]:
    """Return the statements for one column, and the names of the pieces that they make."""
    head, text = f"p{number}", f"v{number}"
    if field.type.conversion == "boolean":
        return [f"{head} = {prefix}BOOLEANS[row[{index}]]"], [head]
    # A value that is written as it is stays in its variable, which is the piece then.
    empty = [f"    {text} = EMPTY"] if _has_body(field) else []
    lines = [
        f"{text} = row[{index}]",
        f"if type({text}) is bytes:",
        *(f"    {line}" for line in _conversion(field, head, text, prefix)),
        "else:",
        f"    {head} = {absent}({text})",
        *empty,
    ]
    return lines, [head, text] if _has_body(field) else [head]


def _conversion(field: Field, head: str, text: str, prefix: str) -> list[str]:
    conversion = field.type.conversion
    if field.type.nested:
        return [f"{head} = {'U + ' if prefix else ''}nested_{head}({text})"]
    match conversion:
        case "text":
            return _length(head, text, prefix)
        case "bytea":
            return [
                f'if {text}[:2] != b"\\\\x":',
                '    raise ValueError("not in hex format")',
                f"{text} = unhexlify({text}[2:])",
                *_length(head, text, prefix),
            ]
        case "timestamp" | "timestamptz":
            return _timestamp(conversion, head, text, prefix)
        case "decimal":
            return _decimal(field, head, text, prefix)
        case "zoned_timestamp":
            read = f"{text} = zoned_timestamp({text}, {field.scale})"
            return [read, *_length(head, text, prefix)]
    read = f"read_{conversion}({text})"
    match field.type.avro:
        case "int" | "long":
            return [f"n = {read}", *_zigzag(head, prefix)]
        case "float":
            return [_struct("float4", head, read, prefix)]
        case "double":
            return [_struct("float8", head, read, prefix)]
        case _:
            return [f"{text} = {read}", *_length(head, text, prefix)]


def _length(head: str, text: str, prefix: str) -> list[str]:
    return [
        f"n = len({text})",
        f"{head} = {prefix}LENGTHS[n] if n < 8192 else {prefix}far_length(n)",
    ]


def _zigzag(head: str, prefix: str) -> list[str]:
    return [
        "n = n << 1 if n >= 0 else ~(n << 1)",
        f"if n < 16384: {head} = {prefix}TAILS[n]",
        f"elif n < 268435456: {head} = {prefix}PIECES[n & 16383] + TAILS[n >> 14]",
        f"elif n < {1 << 42}:",
        f"    {head} = {prefix}PIECES[n & 16383] + PIECES[n >> 14 & 16383] + TAILS[n >> 28]",
        f"else: {head} = {prefix}far(n)",
    ]


def _timestamp(name: str, head: str, text: str, prefix: str) -> list[str]:
    """Write microseconds since 1970, doubled (zigzag).

    The usual form, six digits after the point and the zone UTC, is read by its whole second,
    which neighbouring rows share. The number is cut in two before it is used: Python computes
    with integers below 2**30 much faster. Years 1970 to 2540 have eight bytes; the rest, and the
    infinities, go the long way.
    """
    zone = f' and {text}[26:] == b"+00"' if name == "timestamptz" else ""
    size = 29 if zone else 26
    return [
        f"if len({text}) == {size} and {text}[19] == 46{zone}:",
        f"    n = SECONDS[{text}[:19]] + int({text}[20:26]) * 2",
        "else:",
        f"    n = (parse_{name}({text}) + {EPOCH_SHIFT_US}) << 1",
        "high = n >> 28",
        f"if {1 << 14} <= high < {1 << 28}:",
        f"    low = n & {(1 << 28) - 1}",
        f"    {head} = {prefix}PIECES[low & 16383] + PIECES[low >> 14]"
        " + PIECES[high & 16383] + TAILS[high >> 14]",
        "else:",
        f"    n = read_{name}({text})",
        f"    {head} = {prefix}far(n << 1 if n >= 0 else ~(n << 1))",
    ]


def _struct(name: str, head: str, read: str, prefix: str) -> str:
    branch = "U, " if prefix else ""
    return f"{head} = {prefix}{name}({branch}{read})"


def _decimal(field: Field, head: str, text: str, prefix: str) -> list[str]:
    """A column numeric(p, s) prints exactly s digits after its point; NaN has none."""
    precision, scale = field.precision, field.scale
    if scale == 0:
        read = [f"n = int({text})"]
    else:
        read = [
            f'if {text}[-{scale + 1}:-{scale}] == b".":',
            f'    n = int({text}.replace(b".", b""))',
            "else:",
            f"    n = unscaled_decimal({text}, {precision}, {scale})",
        ]
    return [
        *read,
        "size = (n if n >= 0 else ~n).bit_length() // 8 + 1",
        f"{head} = {prefix}SIZES[size]",
        f'{text} = n.to_bytes(size, "big", signed=True)',
    ]
