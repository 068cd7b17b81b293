"""VARIANT: Spark's type of a json column, and the text of it by which values are compared.

Spark keeps an integer of 64 bits and a number of at most 38 digits as they are, any other number as
a double, and the last of several equal keys, as jsonb does. A text that it cannot parse, and a
number beyond the doubles, which it would make texts, fail here and never become NULL.

Source: VariantBuilder.java and Variant.java in Spark 4.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from spark_consumer.errors import NO_VARIANT

__all__ = ["VARIANT_SETTINGS", "variant_sql", "variant_text", "variant_text_sql"]

VARIANT_SETTINGS: Final = {
    # The last of equal keys counts, as in jsonb; otherwise such a json fails.
    "spark.sql.variant.allowDuplicateKeys": "true",
}

_LARGE: Final = "(?<![0-9])[0-9]{100}|[eE][+]?0*[1-9][0-9]{2}"
"""Text of a number that may exceed a double, or of something that looks like one."""
_STRINGS: Final = r'"(?:[^"\\]++|\\.)*+"?'
"""Strings; one that never ends is matched, too, lest each mark in it begin another search for an
end: then a text would take time by the square of its length."""
_INFINITE: Final = (
    "[eE][+]?0*(?:30[89]|3[1-9][0-9]|[4-9][0-9]{2}|[1-9][0-9]{3})|(?<![0-9.])(?:[0-9]{309}"
    "|[0-9]{2,}(?:[.][0-9]*)?[eE][+]?0*[2-9][0-9]{2}|[0-9]{100,}(?:[.][0-9]*)?[eE][+]?0*[1-9])"
)
"""Outside of strings, a number that may exceed a double: with d digits before the point it takes an
exponent of 309 - d. Some numbers with an exponent of 200 or more are met that would fit."""

_MOST_DIGITS: Final = 38
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT: Final = {
    '"': r'\"', "\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t",
}  # fmt: skip
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[^\s\[\]{},:"]+|[\[\]{}]')
"""A value or a key without parts, or a bracket."""
_HALF: Final = re.compile("[\ud800-\udfff]")
"""Halves of pairs, which are no characters: a VARIANT has a question mark for one."""


def variant_sql(text: str, field: str) -> str:
    """Return Spark SQL of the VARIANT of a json text, which appears several times in it.

    Args:
        text: SQL of the text.
        field: Name of the column for the error, of `[A-Za-z0-9_-]` alone: its Avro field, or its
            name in the form of `schemas.topic_names.topic_part`.
    """
    refused = f"CAST(raise_error('{NO_VARIANT} {field}') AS VARIANT)"
    infinite = f"regexp_replace({text}, r'{_STRINGS}', '') RLIKE '{_INFINITE}'"
    return (
        f"CASE WHEN {text} IS NULL THEN NULL WHEN {text} RLIKE '{_LARGE}' AND {infinite}"
        f" THEN {refused} ELSE coalesce(try_parse_json({text}), {refused}) END"
    )


def variant_text_sql(value: str) -> str:
    """Return Spark SQL of the text of a VARIANT: the same for values that are equal."""
    return f"to_json({value})"


def variant_text(text: str, double: Callable[[float], str]) -> str:
    """Return what `variant_text_sql` gives for the VARIANT of a json text.

    Args:
        text: The json as PostgreSQL prints it; unchanged if no VARIANT can have it.
        double: Function that prints a double as Java does.
    """

    def number(digits: str) -> _Shown:
        return _Shown(_printed(digits, double))

    def loads(part: str) -> Any:
        return json.loads(part, parse_int=number, parse_float=number, object_pairs_hook=_Object)

    try:
        try:
            found = loads(text)
        except RecursionError:
            # Python's limit counts its callers, too, and is no more than Spark's.
            found = _nested(text, loads)
    except ValueError:
        return text
    return _joined(found)


class _Shown(str):
    """Text that is printed as it is: a number, or punctuation."""


class _Object(dict[str, Any]):
    """An object, with the last one of equal keys."""


_COMMA, _COLON = _Shown(","), _Shown(":")


def _nested(text: str, loads: Callable[[str], Any]) -> Any:
    """Return a valid json of any depth; `loads` reads its texts, numbers and words."""
    within: list[list[Any]] = [[]]
    for one in _PART.findall(text):
        if one in "[{":
            within.append([])
        elif one in "]}":
            inner = within.pop()
            pairs = zip(inner[::2], inner[1::2], strict=True)
            within[-1].append(inner if one == "]" else _Object(pairs))
        else:
            within[-1].append(loads(one))
    ((found,),) = within
    return found


def _printed(digits: str, double: Callable[[float], str]) -> str:
    if "e" not in digits and "E" not in digits:
        decimal = Decimal(digits)
        _, places, exponent = decimal.as_tuple()
        assert isinstance(exponent, int)
        if len(places) <= _MOST_DIGITS and -exponent <= _MOST_DIGITS:
            return _plain(decimal)
    return double(float(digits))


def _plain(decimal: Decimal) -> str:
    shown = format(decimal, "f")
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def _joined(value: Any) -> str:
    parts: list[str] = []
    left = [value]  # a stack: values can be nested deeper than calls
    while left:
        one = left.pop()
        if isinstance(one, _Shown):
            parts.append(one)
        elif isinstance(one, str):
            parts.append(_quoted(one))
        elif isinstance(one, _Object):
            # Java compares texts by UTF-16.
            keys = sorted(one, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
            inner = [part for key in keys for part in (_COMMA, key, _COLON, one[key])]
            left += [_Shown("}"), *reversed(inner[1:]), _Shown("{")]
        elif isinstance(one, list):
            inner = [part for item in one for part in (_COMMA, item)]
            left += [_Shown("]"), *reversed(inner[1:]), _Shown("[")]
        else:
            parts.append(json.dumps(one))
    return "".join(parts)


def _quoted(text: str) -> str:
    escaped = _ESCAPED.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04X}"), text)
    return f'"{_HALF.sub("?", escaped)}"'
