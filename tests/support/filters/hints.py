"""Arguments without which a function would only ever raise, and the syntax that SQL has for some.

Everything is SQL text; the keys are names of functions and operators as SQL calls them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from tests.support.filters.literals import quote

__all__ = ["HINTS", "MODIFIERS", "PATTERNS", "REGEXES", "SIMILAR", "syntax"]


def _texts(*texts: str) -> tuple[str, ...]:
    return tuple(f"{quote(text)}::text" for text in texts)


def _arrays(*texts: str) -> tuple[str, ...]:
    return tuple(f"{quote(text)}::text[]" for text in texts)


PATTERNS: Final = ("", "%", "_", "a%", "%a", "%a%", "a_", "_a", "__", "%_b", "a%b", "%é%", "\\%",
                   "a\\\\b", "_%_", "%b%a%", "é_", "a\\", "%\\", "日%", "A%", "a !%b", "%%", "_%b",
                   "%\\a", "ab_", "%B")  # fmt: skip
REGEXES: Final = (
    "a", "^a", "b$", "^$", "", "a|b", "[ab]+", "[^a]", "a.*b", "a.*?b", "(a)(b)?", "(b+)|(a+)",
    "a{2}", "a{1,}", "\\d", "\\d+", "\\s", "\\w+", "\\mab", "b\\M", "\\ya", "\\A.", ".\\Z", "é",
    "[[:alpha:]]", "[[:digit:]]+", "[[:space:]]", "(?i)AB", "(?:ab)", "(a)\\1", "x(?=y)", "b(?!c)",
    "(?<=a)b", "(?<!a)b", "[a-c]", "[\\]]", "a\\.b", "\\x61", "\\u00e9", "\\n", "(", "[", "a**",
    "***:a", "***=a.b", "(?n)^.", "(?q)a.b", "[[:<:]]a", "日本", ".", "..", "(?x)a b", "[[.a.]]",
    "[[=a=]]", "a+?", "(|a)+", "((a)|(b))*", "\\S", "\\W", "(?s).", "(?w)^b", "^b", "[^\\n]+",
)  # fmt: skip
SIMILAR: Final = ("%", "_", "a%", "(a|b)%", "[ab]+", "%b", "a{2,}", "a?b*c", "_%_", "é%", "a\\%b",
                  "%(b|d)%", "[^a]%", "", "a.c", "ab+", "abc|xyzzy", "^a$", "a+",
                  "#\"%#\"b")  # fmt: skip
_FLAGS: Final = _texts("", "i", "n", "g", "gi", "x", "q", "s", "z", "c", "m", "w", "p", "t", "b")
_FIELDS: Final = (
    "hour", "month", "minute", "year", "day", "second", "milliseconds", "microseconds", "epoch",
    "century", "millennium", "decade", "quarter", "week", "dow", "doy", "isodow", "isoyear",
    "julian", "timezone", "timezone_hour", "timezone_minute",
)  # fmt: skip
_FIELD_TEXTS: Final = _texts(*_FIELDS, "YEAR", "mons", "nosuch", "yrs", "d", "h", "us", "ms", "m")
_ZONES: Final = _texts("UTC", "+05:30", "-8", "EST5EDT", "Europe/Paris", "nosuch", "utc", "GMT")
_PATHS: Final = _arrays("{}", "{a}", "{b,0}", "{b,2,c}", "{0}", "{-1}", "{a,b,c,1}", "{é}", "{5}",
                        "{NULL}", "{a,NULL}", "{b,-1}", "{x,y}", "{0,a}", "{1,1,0}",
                        '{""}')  # fmt: skip
_KEYS: Final = _texts("a", "b", "d", "aa", "é", "", "nosuch", "0", "abc", "k")
_SMALL: Final = ("1", "2", "0", "3", "5", "10", "-1", "-3", '"int4 1"')
_INCLUSION: Final = _texts("[)", "[]", "(]", "()", "[)", "x", "")
_REGEX_TEXTS: Final = _texts(*REGEXES)
_LIKE_TEXTS: Final = _texts(*PATTERNS)
_ESCAPES: Final = _texts("\\", "!", "", "a", "ab", "é", "#")
_BYTEA_PATTERNS: Final = tuple(
    f"{quote(text)}::bytea" for text in ("%", "_", "a%", "%c", "\\\\000%", "%\\\\303%", "a_c", "")
)

HINTS: Final[Mapping[str, Mapping[int, Sequence[str]]]] = {
    "extract": {0: _FIELD_TEXTS},
    "date_part": {0: _FIELD_TEXTS},
    "date_trunc": {0: _FIELD_TEXTS, 2: _ZONES},
    "timezone": {0: _ZONES},
    "date_add": {2: _ZONES},
    "date_subtract": {2: _ZONES},
    "encode": {1: _texts("hex", "base64", "escape", "HEX", "nosuch")},
    "decode": {
        0: _texts("616263", "YWJj", "YWI=", "", "a\\\\b", "\\303\\251", "YW Jj\n", "zz", "6 1",
                  "Y", "61 62", "éa", "\\"),
        1: _texts("hex", "base64", "escape", "nosuch"),
    },
    "normalize": {1: _texts("NFC", "NFD", "NFKC", "NFKD", "nfc", "X")},
    "is_normalized": {1: _texts("NFC", "NFD", "NFKC", "NFKD", "nfc", "X")},
    **{op: {1: _REGEX_TEXTS} for op in ("~", "~*", "!~", "!~*")},
    "substring": {1: (*_texts(*SIMILAR), *_REGEX_TEXTS), 2: _texts("#", "#", "\\", "", "ab")},
    "regexp_like": {1: _REGEX_TEXTS, 2: _FLAGS},
    "regexp_match": {1: _REGEX_TEXTS, 2: _FLAGS},
    "regexp_count": {1: _REGEX_TEXTS, 2: _SMALL, 3: _FLAGS},
    "regexp_instr": {1: _REGEX_TEXTS, 2: _SMALL, 3: _SMALL, 4: ("0", "1", "2"), 5: _FLAGS,
                     6: _SMALL},
    "regexp_substr": {1: _REGEX_TEXTS, 2: _SMALL, 3: _SMALL, 4: _FLAGS, 5: _SMALL},
    "regexp_replace": {
        1: _REGEX_TEXTS,
        2: _texts("", "x", "\\1", "\\&", "<\\2\\1>", "\\\\", "é", "\\"),
        3: _FLAGS,
        5: _FLAGS,
    },
    "regexp_split_to_array": {1: _REGEX_TEXTS, 2: _FLAGS},
    **{
        name: {1: (*_LIKE_TEXTS, '"text 1"', '"text 2"')}
        for name in ("~~", "!~~", "~~*", "!~~*", "like", "notlike")
    },
    "like_escape": {0: _LIKE_TEXTS, 1: _ESCAPES},
    "similar_escape": {0: _texts(*SIMILAR), 1: _ESCAPES},
    "similar_to_escape": {0: _texts(*SIMILAR), 1: _ESCAPES},
    "jsonb_set": {1: _PATHS},
    "jsonb_insert": {1: _PATHS},
    "jsonb_set_lax": {
        1: _PATHS,
        4: _texts("raise_exception", "use_json_null", "delete_key", "return_target", "nosuch"),
    },
    "#>": {1: _PATHS},
    "#>>": {1: _PATHS},
    "#-": {1: _PATHS},
    **{name: {1: _KEYS} for name in ("->", "->>", "json_object_field", "jsonb_object_field")},
    "?": {1: _KEYS},
    "?|": {1: _arrays("{}", "{a}", "{a,zz}", "{é,NULL}", "{nosuch}")},
    "?&": {1: _arrays("{}", "{a}", "{a,b}", "{é,NULL}", "{nosuch}")},
    **{
        name: {
            1: tuple(
                f"{quote(text)}::jsonpath" for text in ("$.a == 1", "exists($.b)", "$[*] > 1")
            )
        }
        for name in ("@@", "@?", "jsonb_path_match_opr", "jsonb_path_exists_opr")
    },
    "jsonb_path_exists": {2: ("'{\"x\": 1}'::jsonb", "'{}'::jsonb", "'[]'::jsonb")},
    "jsonb_path_match": {
        1: tuple(f"{quote(text)}::jsonpath" for text in (
            "$.a == 1", "exists($.a)", "$.a > $x", "strict $.nosuch == 1", "$.a", "$[*] == 1")),
        2: ("'{\"x\": 1}'::jsonb", "'{}'::jsonb"),
    },
    "jsonb_path_query_array": {2: ("'{\"x\": 1}'::jsonb", "'{}'::jsonb")},
    "jsonb_path_query_first": {2: ("'{\"x\": 1}'::jsonb", "'{}'::jsonb")},
    **{
        name: {2: _INCLUSION}
        for name in ("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange")
    },
    "split_part": {1: _texts(",", "a", "", "b", "zz", "é"), 2: _SMALL},
    "string_to_array": {1: _texts(",", "a", "", "b", "zz"), 2: _texts("", "b", "x")},
    "make_date": {0: ("2024", "-44", "1999", "0", '"int4 1"'), 1: ("1", "2", "12", "13"),
                  2: ("1", "29", "31", "0")},
    "make_time": {0: ("0", "12", "23", "24"), 1: ("0", "59", "60"),
                  2: ("0", "59.999", "60", "1e-7", '"float8 1"')},
    "make_timestamp": {0: ("2024", "-44", "294276", "0"), 1: ("1", "2", "12"), 2: ("1", "29"),
                       3: ("0", "12", "24"), 4: ("0", "59"), 5: ("0", "59.9999999", "60", "12.5")},
    "make_interval": dict.fromkeys(range(6), _SMALL),
    "width_bucket": {3: ("1", "5", "10", "0", "2147483647")},
    "set_masklen": {1: ("0", "8", "24", "32", "33", "64", "128", "129", "-1")},
    "chr": {0: ("97", "233", "26085", "119070", "0", "55296", "1114111", "1114112", "-1")},
    "pg_size_bytes": {0: _texts("1", "1 kB", "1.5MB", "-2 GB", "1e3 bytes", "3 TB", "7 XB", "1PB",
                                " 12 ", "1 kb x", "")},
    "unistr": {0: _texts("\\0061", "d\\u0061t\\+000061", "\\U0001D11E", "\\", "a\\\\b", "abc",
                         "\\d83d\\de00", "\\d83d")},
    "parse_ident": {0: _texts("a.b", '"A b".c', "a", "", "a..b", "1a", "A.B.C", "a.b()",
                              " a . b ")},
    "get_bit": {1: ("0", "1", "2", "7", "20", "-1")},
    "set_bit": {1: ("0", "1", "2", "7", "20", "-1"), 2: ("0", "1", "2")},
    "get_byte": {1: ("0", "1", "2", "-1")},
    "set_byte": {1: ("0", "1", "2", "-1"), 2: ("0", "255", "256", "-1")},
    "repeat": {1: ("0", "1", "2", "3", "-1", "2147483647")},
    "lpad": {1: ("0", "1", "3", "5", "10", "-1", "2147483647")},
    "rpad": {1: ("0", "1", "3", "5", "10", "-1", "2147483647")},
    "factorial": {0: ("0", "1", "5", "20", "-1", "100", '"int2 1"::int8 % 30')},
    "date_bin": {0: tuple(f"{quote(text)}::interval" for text in (
        "15 minutes", "1 day", "1 mon", "0", "-1 hour", "00:00:00.000007", "7 days"))},
    "to_ascii": {1: _texts("LATIN1")},
    "round": {1: ("0", "1", "2", "-1", "-3", "10", '"int4 1"', "2147483647")},
    "trunc": {1: ("0", "1", "2", "-1", "-3", "10", '"int4 1"', "2147483647")},
    "array_fill": {1: ("'{2}'::int4[]", "'{1,2}'::int4[]", "'{}'::int4[]", "'{0}'::int4[]",
                       "'{-1}'::int4[]", "'{NULL}'::int4[]"),
                   2: ("'{0}'::int4[]", "'{1,1}'::int4[]", "'{-5}'::int4[]")},
    **{
        name: {1: ("1", "3", "10", "0", "-1", "32")}
        for name in ("bit", "varbit", "bpchar", "varchar", "time", "timetz", "timestamp")
    },
    "array_length": {1: ("1", "2", "0", "3", "-1")},
    "array_lower": {1: ("1", "2", "0", "3", "-1")},
    "array_upper": {1: ("1", "2", "0", "3", "-1")},
    "trim_array": {1: ("0", "1", "2", "3", "-1")},
    "<<": {1: ("1", "0", "3", "5", "31", "33", "64", "-1")},
    ">>": {1: ("1", "0", "3", "5", "31", "33", "64", "-1")},
}  # fmt: skip

MODIFIERS: Final[Mapping[str, Sequence[str]]] = {
    "varchar": ("varchar(1)", "varchar(3)", "varchar(10)"),
    "bpchar": ("char(1)", "char(3)", "char(10)"),
    "numeric": ("numeric(5,1)", "numeric(10,2)", "numeric(20)", "numeric(3,3)", "numeric(4,-2)",
                "numeric(2,5)"),
    "bit": ("bit(1)", "bit(3)", "bit(10)"),
    "varbit": ("varbit(1)", "varbit(3)", "varbit(10)"),
    "time": tuple(f"time({digits})" for digits in range(7)),
    "timetz": tuple(f"timetz({digits})" for digits in range(7)),
    "timestamp": tuple(f"timestamp({digits})" for digits in range(7)),
    "timestamptz": tuple(f"timestamptz({digits})" for digits in range(7)),
    "interval": (*(f"interval({digits})" for digits in range(7)), "interval year",
                 "interval month", "interval day", "interval hour", "interval minute",
                 "interval second", "interval year to month", "interval day to hour",
                 "interval day to minute", "interval day to second", "interval hour to minute",
                 "interval hour to second(2)", "interval minute to second", "interval second(0)"),
}  # fmt: skip
"""Type names with a modifier, for those that `LENGTHS` of the gateway may know."""


def syntax(name: str, arguments: Sequence[str], random: Random) -> str | None:
    """The call in the syntax that SQL has for it, or None when it has none."""
    match name, list(arguments):
        case "extract", [_, value]:
            return f"EXTRACT({random.choice(_FIELDS)} FROM {value})"
        case "position", [text, part]:
            return f"POSITION({part} IN {text})"
        case "substring", [text, start, count]:
            return f"SUBSTRING({text} FROM {start} FOR {count})"
        case "substring", [text, start]:
            return f"SUBSTRING({text} FROM {start})"
        case "overlay", [text, part, start]:
            return f"OVERLAY({text} PLACING {part} FROM {start})"
        case "overlay", [text, part, start, count]:
            return f"OVERLAY({text} PLACING {part} FROM {start} FOR {count})"
        case (("btrim" | "ltrim" | "rtrim"), [text, characters]):
            side = {"b": "BOTH", "l": "LEADING", "r": "TRAILING"}[name[0]]
            return f"TRIM({side} {characters} FROM {text})"
        case "normalize", [text, _]:
            return f"NORMALIZE({text}, {random.choice(('NFC', 'NFD', 'NFKC', 'NFKD'))})"
        case "is_normalized", [text, _]:
            return f"({text} IS {random.choice(('NFC', 'NFD', 'NFKC', 'NFKD'))} NORMALIZED)"
        case "timezone", [zone, time]:
            return f"({time} AT TIME ZONE {zone})"
        case "overlaps", [first, second, third, fourth]:
            return f"(({first}, {second}) OVERLAPS ({third}, {fourth}))"
    return None
