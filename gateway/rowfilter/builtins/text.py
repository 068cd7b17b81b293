"""text, varchar, bpchar, name and "char"."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.errors import ValueFormatError
from gateway.pgtypes import bytea, strings, strings_codes, strings_parts
from gateway.pgtypes.arrays import Array, one_dimension
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter.builtins.common import COMPARISONS, comparisons, same
from gateway.rowfilter.expr import CollationUse, Operation, Value

__all__ = ["LENGTHS", "OPERATIONS", "PARSERS", "operations"]


def _as_is(text: bytes) -> bytes:
    return text


def _char(text: bytes) -> bytes:
    """Read ``"char"``, which is one byte: a zero prints as nothing, others in octal or as such."""
    if len(text) == 4 and text[:1] == b"\\":
        return bytes((int(text[1:], 8),))
    if len(text) > 1:
        raise ValueFormatError('a value does not read as "char"')
    return text or b"\0"


PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        "text": _as_is,
        "varchar": _as_is,
        "bpchar": _as_is,
        "name": _as_is,
        "char": _char,
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
        *comparisons("char{}"),
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


def _pattern_order() -> list[Operation]:
    """The order of the pattern operator classes, which is that of the bytes."""
    return [
        Operation(f"{kind}_pattern_{suffix}", COMPARISONS[suffix][1], COMPARISONS[suffix][0],
                  adapters=adapters)
        for kind, adapters in (("text", ()), ("bpchar", (_TRIM, _TRIM)))
        for suffix in ("lt", "le", "gt", "ge")
    ]  # fmt: skip


def _larger(left: bytes, right: bytes) -> bytes:
    return max(left, right)


def _smaller(left: bytes, right: bytes) -> bytes:
    return min(left, right)


def _larger_bpchar(left: bytes, right: bytes) -> bytes:
    return left if left.rstrip(b" ") >= right.rstrip(b" ") else right


def _smaller_bpchar(left: bytes, right: bytes) -> bytes:
    return left if left.rstrip(b" ") <= right.rstrip(b" ") else right


def _bpchar_length(value: bytes) -> int:
    return strings_parts.length(value.rstrip(b" "))


def _bit_length(value: bytes) -> int:
    return 8 * len(value)


def _bpchar_name(value: bytes) -> bytes:
    return strings_codes.to_name(value).rstrip(b" ")


def _integer_of_char(value: bytes) -> int:
    return value[0] - 256 if value[0] > 127 else value[0]


def _char_of_integer(value: int) -> bytes:
    if not -128 <= value <= 127:
        raise EvaluationError('"char" out of range')
    return bytes((value & 0xFF,))


def _functions() -> list[Operation]:
    parts, codes = strings_parts, strings_codes
    free: dict[str, Callable[..., Value]] = {
        "textlen": parts.length,
        "textoctetlen": len,
        "bpcharlen": _bpchar_length,
        "bpcharoctetlen": len,
        "bit_length(text)": _bit_length,
        "text_substr_no_len": parts.substring,
        "text_left": parts.left,
        "text_right": parts.right,
        "btrim": parts.trim_both,
        "ltrim": parts.trim_left,
        "rtrim": parts.trim_right,
        "btrim1": parts.trim_both,
        "ltrim1": parts.trim_left,
        "rtrim1": strings.trim_blanks,
        "translate": parts.translate,
        "text_reverse": parts.reverse,
        "ascii": codes.code_point,
        "md5_text": bytea.md5,
        "quote_literal": codes.quote_literal,
        "text_name": codes.to_name,
        "bpchar_name": _bpchar_name,
        "name_text": same,
        "name_bpchar": same,
        "chartoi4": _integer_of_char,
    }
    raising: dict[str, Callable[..., Value]] = {
        "text_substr": parts.substring,
        "textoverlay": parts.overlay,
        "textoverlay_no_len": parts.overlay,
        "lpad": parts.pad_left,
        "rpad": parts.pad_right,
        "lpad(text,int4)": parts.pad_left,
        "rpad(text,int4)": parts.pad_right,
        "repeat": parts.repeat,
        "unistr": codes.unistr,
        "i4tochar": _char_of_integer,
        "like_escape": strings.like_escape,
    }
    return [
        *(Operation(name, function) for name, function in free.items()),
        *(Operation(name, function, can_raise=True) for name, function in raising.items()),
        *(
            Operation(f"to_{name}{bits}", partial(codes.digits, bits=bits, base=base))
            for name, base in (("bin", "b"), ("hex", "x"), ("oct", "o"))
            for bits in (32, 64)
        ),
        Operation("quote_nullable", codes.quote_nullable, strict=False),
        Operation("textcat", operator.add, "+"),
    ]


def _split(value: bytes | None, separator: bytes | None, null: bytes | None = None) -> Array | None:
    found = strings_parts.split(value, separator, null)
    return None if found is None else one_dimension(found)


def _collated_functions() -> list[Operation]:
    equality, order, ctype = CollationUse.EQUALITY, CollationUse.ORDER, CollationUse.CTYPE
    parts = strings_parts
    return [
        Operation("text_starts_with", bytes.startswith, collation=equality),
        Operation("textpos", parts.position, collation=equality),
        Operation("replace_text", parts.replace, collation=equality),
        Operation("split_part", parts.split_part, can_raise=True, collation=equality),
        *(
            Operation(name, _split, strict=False, nullable=True, collation=equality)
            for name in ("text_to_array", "text_to_array_null")
        ),
        Operation("text_larger", _larger, collation=order),
        Operation("text_smaller", _smaller, collation=order),
        Operation("bpchar_larger", _larger_bpchar, collation=order),
        Operation("bpchar_smaller", _smaller_bpchar, collation=order),
        # The methods of bytes know ASCII only, as these functions do under the C collation.
        Operation("lower", bytes.lower, collation=ctype),
        Operation("upper", bytes.upper, collation=ctype),
        Operation("casefold", bytes.lower, collation=ctype),
        Operation("initcap", strings_codes.initial_capitals, collation=ctype),
    ]


_SAME_EVERYWHERE: Final = (
    *_comparisons(),
    *_pattern_order(),
    *_likes(),
    *_functions(),
    *_collated_functions(),
)


def _depending(major: int | None) -> list[Operation]:
    found = [Operation("chr", partial(strings_codes.character, major=major), can_raise=True)]
    if major is not None and major >= 16:
        found += [
            Operation("char_text", strings_codes.char_to_text),
            Operation("text_char", strings_codes.text_to_char),
        ]
    return found


def operations(major: int | None) -> Sequence[Operation]:
    """The operations on a server of this major version; None: of any."""
    return (*_SAME_EVERYWHERE, *_depending(major))


OPERATIONS: Final[Sequence[Operation]] = operations(None)


def _varchar(typmod: int) -> Operation:
    return Operation(f"varchar({typmod})", partial(strings.to_varchar, typmod=typmod))


def _bpchar(typmod: int) -> Operation:
    return Operation(f"bpchar({typmod})", partial(strings.to_bpchar, typmod=typmod))


LENGTHS: Final[Mapping[str, Callable[[int], Operation | None]]] = MappingProxyType(
    {"varchar": _varchar, "bpchar": _bpchar}
)
