"""Values that are interesting for each type, as input text; keyed by ``typname``.

The first ones are harmless, so that a function of several arguments has a chance of a result; the
boundaries follow.
"""

from __future__ import annotations

from typing import Final

WORDS: Final = (
    "abc", "ab", "a b", "a", "A", "", " ", "ab ", " ba", "é", "éa", "日本", "%", "_", "a%b", "a\\b",
    "'", "NSW", "\n", "aé", "𝄞", "z", "~", "aXbXc", "a,b,,c", "12", "xyzzy", "Hello World", '"q"',
    "aaa", "ẞß", "a.b", "\t x", "1.5e3", "e\u0301", "ﬁ", "AbC",
)  # fmt: skip

RANGE_FORMS: Final = ("[{0},{1})", "({0},{1}]", "[{0},{1}]", "({0},{1})", "[{0},)", "(,{1})",
                      "empty", "(,)", "[{0},{0}]")  # fmt: skip


def _ranges(*pairs: tuple[str, str]) -> tuple[str, ...]:
    """Ranges over pairs of bounds, in every form, without repeating those that have no bounds."""
    texts = [form.format(*pair) for pair in pairs for form in RANGE_FORMS]
    return tuple(dict.fromkeys(texts))


def _multiranges(ranges: tuple[str, ...]) -> tuple[str, ...]:
    """Multiranges of none, one, two and three of `ranges`."""
    singles = ["{" + text + "}" for text in ranges[:9]]
    pairs = [f"{{{a},{b}}}" for a, b in zip(ranges, reversed(ranges), strict=True)][:8]
    triples = [f"{{{a},{b},{c}}}" for a, b, c in zip(ranges, ranges[5:], ranges[9:], strict=False)]
    return ("{}", *singles, *pairs, *triples[:6])


_INT_RANGES: Final = _ranges(("1", "5"), ("3", "10"), ("-4", "2"), ("5", "8"))
_NUM_RANGES: Final = _ranges(("1.0", "5.5"), ("3", "10"), ("-Infinity", "1.00"), ("5.50", "NaN"))
_DATE_RANGES: Final = _ranges(
    ("2024-01-01", "2024-02-29"), ("2024-02-01", "infinity"), ("0044-03-15 BC", "2024-01-02")
)
_TS_RANGES: Final = _ranges(
    ('"2024-01-01 00:00:00"', '"2024-02-29 12:00:00"'), ('"2024-01-15 01:02:03.5"', "infinity"),
    ("-infinity", '"2024-01-01 00:00:00"'),
)  # fmt: skip
_TSTZ_RANGES: Final = _ranges(
    ('"2024-01-01 00:00:00+00"', '"2024-02-29 12:00:00+02"'),
    ('"2024-01-15 01:02:03.5-08"', "infinity"), ("-infinity", '"2024-01-01 00:00:00+00"'),
)  # fmt: skip

JSON: Final = (
    '{"a": 1, "b": [1, 2, {"c": "x"}], "d": null}', "[1, 2, 3]", "{}", "[]", "null", "true",
    "false", "1", "1.0", "-0", '"abc"', '""', '"é𝄞"', '{"a": {"b": {"c": [true, false, null]}}}',
    '[{"a": 1}, {"a": 2.50}, {"b": "z"}]', '{"b": 1, "a": 2, "aa": 3, "": 4}', '["a", "b", "a"]',
    '{"a": [1, "two", [3]], "é": "\\u00e9\\n\\t\\"\\\\"}', "[[1, 2], [3, [4]]]", "1e2", "0.00",
    "123456789012345678901234567890", '[1, "a", null, true, {}, []]', '{"a": "12", "k": [0]}',
)  # fmt: skip

LITERALS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("true", "false"),
    "char": ("a", "b", "A", "", "0", "~", "\\351"),
    "int2": ("1", "2", "3", "0", "-1", "7", "5", "32767", "-32768", "100"),
    "int4": ("1", "2", "3", "0", "-1", "7", "-2", "5", "16", "2147483647", "-2147483648", "100"),
    "int8": ("1", "2", "3", "0", "-1", "5", "-7", "9223372036854775807", "-9223372036854775808",
             "2147483648", "9007199254740993", "40"),
    "oid": ("0", "1", "4294967295", "2147483648", "7"),
    "xid": ("0", "1", "4294967295", "7"),
    "xid8": ("0", "1", "18446744073709551615", "7"),
    "cid": ("0", "1", "4294967295"),
    "tid": ("(0,1)", "(0,2)", "(1,1)", "(4294967295,65535)"),
    "float4": ("1", "0", "-0", "1.5", "0.1", "-1", "2", "2.5", "NaN", "Infinity", "-Infinity",
               "3.4028235e38", "1e-45", "16777216", "1e20", "-3.5", "1e-20"),
    "float8": ("1", "0", "-0", "1.5", "0.1", "-1", "2", "2.5", "0.5", "NaN", "Infinity",
               "-Infinity", "1.7976931348623157e308", "5e-324", "9007199254740992", "1e20", "-3.5",
               "1e-300", "59.5", "123456.789"),
    "numeric": ("1", "0", "1.0", "-1.50", "2.5", "3", "0.1", "-0.00", "7.125", "NaN", "Infinity",
                "-Infinity", "1e-20", "99999999999999999999.5", "10000", "123456789.123", "-2.5",
                "-3.5", "0.5", "2.000", "59.999999", "12", "-7", "1e5", "0.00010"),
    "money": ("1.00", "-2.50", "0", "92233720368547758.07"),
    "text": WORDS,
    "varchar": WORDS,
    "bpchar": tuple(word[:5] for word in WORDS),
    "name": WORDS,
    "bytea": ("\\x616263", "\\x", "\\x00", "\\xff", "\\xdead", "\\xde", "\\x5c27", "\\x00ff00",
              "\\xc3a9", "\\x6161", "\\x80000000", "\\x7fffffffffffffff", "\\x25", "\\x615f62"),
    "date": ("2024-01-01", "2024-02-29", "1999-12-31", "2000-01-01", "0044-03-15 BC", "infinity",
             "-infinity", "5874897-12-31", "10000-01-01", "4714-11-24 BC", "2023-12-31",
             "1970-01-01", "0001-01-01", "2024-12-30"),
    "time": ("00:00:00", "12:34:56.789", "24:00:00", "23:59:59.999999", "00:00:00.000001",
             "01:02:03", "23:59:59.9995"),
    "timetz": ("00:00:00+00", "12:34:56.789+05:30", "24:00:00-00", "23:59:59.999999-15:59",
               "12:34:56.789+00", "07:04:56.789-05:30", "01:02:03+15:59:59"),
    "timestamp": ("2024-01-01 00:00:00", "2024-02-29 12:34:56.789", "2000-01-01 00:00:00.000001",
                  "1999-12-31 23:59:59.9995", "infinity", "-infinity", "0044-03-15 01:02:03 BC",
                  "294276-12-31 23:59:59.999999", "1969-12-31 23:59:59.123456",
                  "4714-11-24 00:00:00 BC", "2024-03-31 02:30:00", "2024-12-30 23:59:59"),
    "timestamptz": ("2024-01-01 00:00:00+00", "2024-02-29 12:34:56.789+05:30",
                    "2000-01-01 00:00:00.000001-03", "infinity", "-infinity",
                    "0044-03-15 01:02:03+00 BC", "294276-12-31 23:59:59.999999+00",
                    "4714-11-24 00:00:00+00 BC", "2024-03-31 01:30:00+00"),
    "interval": ("1 day", "24:00:00", "1 mon", "30 days", "00:00:00", "-1 year 2 mons -3 days",
                 "1 year 2 mons 3 days 04:05:06.789", "-00:00:00.000001", "1 mon -1 day",
                 "35 days 100:00:00", "00:15:00", "-23:59:59.999999", "-1 mon 30 days",
                 "178000000 years", "-178000000 years", "2147483647 days", "-2147483648 days",
                 "2562047788:00:54.775807", "-13 mons", "1 mon -29 days -24:00:00", "02:30:00"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000",
             "ffffffff-ffff-ffff-ffff-ffffffffffff", "0a000000-0000-0000-0000-000000000000",
             "019535d9-3df7-79fb-b466-fa907fa17f9e", "c232ab00-9414-11ec-b3c8-9f6bdeced846"),
    "bit": ("101", "110", "000", "111", "001"),
    "varbit": ("101", "110", "", "0", "1", "10110011100011110000", "00000000", "1111111111111111",
               "100000000000000000000000000000001"),
    "inet": ("192.168.1.5", "192.168.1.5/24", "10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "::1",
             "2001:db8::1/64", "::/0", "255.255.255.255", "::ffff:1.2.3.4/120", "192.168.1.0/25",
             "10.0.0.1/8", "fe80::1:0:0:2", "128.0.0.0/1"),
    "cidr": ("192.168.1.0/24", "10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0",
             "::1/128", "192.168.0.0/16", "192.168.1.128/25", "128.0.0.0/1"),
    "macaddr": ("08:00:2b:01:02:03", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "7f:ff:ff:00:00:01",
                "08:00:2b:01:02:04"),
    "macaddr8": ("08:00:2b:ff:fe:01:02:03", "00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff",
                 "08:00:2b:01:02:03:04:05", "80:00:00:ff:fe:00:00:01"),
    "json": JSON,
    "jsonb": JSON,
    "jsonpath": ("$", "$.a", "$.b[*]", "strict $.a", "$[*]", "$.b[1 to last]", "$.a ? (@ > 0)",
                 "$[*] ? (@ == 1 || @ == \"a\")", "$.** ? (@ == 1)", "$.keyvalue()", "$.a.size()",
                 "$.a == 1", "exists($.a)", "$[*].a", "strict $[5]", "$.a + 1", "$[0] / 0",
                 "$.a.type()", "-$.a", "$.b[*] ? (exists(@.c))", "$.a.double()", "$[last]",
                 "$.a ? (@ starts with \"1\")", "$.* ? (@ like_regex \"^[a-x]\")", "$.a.abs()",
                 "($.a == 1) is unknown", "$.a ? (@ > $x)", "\"lit\"", "1", "null", "true",
                 "$.b[0].ceiling()", "$.a.floor()", "strict $.**{2}", "lax $.x", "$ > 2"),
    "pg_lsn": ("0/0", "0/1", "FFFFFFFF/FFFFFFFF", "16/B374D848", "1/0"),
    "int4range": _INT_RANGES,
    "int8range": _INT_RANGES,
    "numrange": _NUM_RANGES,
    "daterange": _DATE_RANGES,
    "tsrange": _TS_RANGES,
    "tstzrange": _TSTZ_RANGES,
    "int4multirange": _multiranges(_INT_RANGES),
    "int8multirange": _multiranges(_INT_RANGES),
    "nummultirange": _multiranges(_NUM_RANGES),
    "datemultirange": _multiranges(_DATE_RANGES),
    "tsmultirange": _multiranges(_TS_RANGES),
    "tstzmultirange": _multiranges(_TSTZ_RANGES),
    "point": ("(1,2)", "(0,0)", "(-1.5,3)"),
    "tsvector": ("'a' 'b':2", "", "'cat':3A 'fat':2B,4"),
    "tsquery": ("'a' & 'b'", "", "'cat' | !'fat'"),
}  # fmt: skip

ARRAYS: Final[dict[str, tuple[str, ...]]] = {
    "int2": ("{1,2,3}", "{}", "{1}", "{3,NULL,1}", "{{1,2},{3,7}}", "[0:1]={1,2}", "{NULL}"),
    "int4": ("{1,2,3}", "{}", "{1}", "{3,NULL,1}", "{{1,2},{3,7}}", "[0:1]={1,2}", "{NULL}",
             "{1,1,2,2,3}", "[-2:0]={5,6,7}", "{{{1},{2}},{{3},{4}}}", "{2147483647}",
             "{7,5,3,1}"),
    "text": ("{a,b,c}", "{}", "{a}", "{NULL,b,a}", "{{a,b},{c,d}}", '{"",NULL,"NULL"}',
             '{"a,b","{x}","q\\"q","b\\\\s"}', "{é,日本}", "[2:3]={x,abc}", "{b,0,c}", "{b,2,c}"),
    "numeric": ("{1,2.5,1.0}", "{}", "{NaN,Infinity}", "{0.1,NULL}", "{{1.50,-1.50}}", "{1,3,10}"),
    "float8": ("{1,2.5,-0}", "{}", "{NaN,Infinity}", "{0.1,NULL}", "{0,0.5,2}"),
    "date": ("{2024-01-01,2024-02-29}", "{}", "{infinity,NULL}"),
}  # fmt: skip
"""Values of arrays, by element; for others they are made of `LITERALS`."""


def quote(text: str) -> str:
    """A string literal."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def array_text(texts: tuple[str, ...]) -> str:
    """One array of all `texts`, as input."""
    items = ['"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts]
    return "{" + ",".join(items) + "}"


def values_of(name: str, element: str | None) -> tuple[str, ...]:
    """The values for a type, or for the arrays of `element`; none when nothing is known."""
    if element is None:
        return LITERALS.get(name, ())
    if element in ARRAYS:
        return ARRAYS[element]
    texts = LITERALS.get(element, ())
    if not texts:
        return ()
    first, second, last = texts[0], texts[1], texts[-1]
    some = [(), (first,), (first, second), (last, first, second), (second, second), texts[:5]]
    return (*map(array_text, some), array_text((first,))[:-1] + ",NULL}")
