"""Paths that might be evaluated differently, and documents for them."""

from __future__ import annotations

from random import Random

__all__ = ["CONVERSIONS", "CONVERTED", "DOCUMENTS", "PATHS", "UNSUPPORTED", "random_path"]

DOCUMENTS = (
    *("null", "1", "-1.50", '"a"', '"1.5"', "true", "[]", "{}", "[1, 2, 3]", "[[1, 2], [3, [4]]]"),
    *('{"a": 1, "b": 2}', '{"a": [1, 2, {"b": 3}], "b": null}', '{"a": {"b": {"c": [5, "x"]}}}'),
    *(
        '[{"a": 1}, {"a": "x"}, {"b": 1}, 5]',
        '{"a": "abc", "b": ["abd", "b", 1]}',
        '[1, "1", null]',
    ),
    *('{"a": [], "b": {}}', '{"a": [null, true, 0, "", [], {}]}', '{"a": 0, "b": 0.0, "c": 1e30}'),
    *(
        '{"a": [{"b": [1, 2]}, {"b": [3]}], "é": "日本"}',
        "[1.5, -2.5, 0.5, 2147483648]",
        "[[[[1]]]]",
    ),
    *('["1e400", "inf", " 12 ", "0x1F", "1_0", "", "1e-400", "-.5"]', '{"a": "A\\nb", "b": "a.b"}'),
)

PATHS = (
    *("$", "$.a", "$.b", "$.a.b", "$.a.b.c", "$.*", "$[*]", "$.a[*]", "$.*[*]", "$[0]", "$[last]"),
    *("$[1 to last]", "$[0, 2]", "$[last - 1]", "$[-1]", "$[1 to 0]", "$[5]", "$[0.9]", "$[1e10]"),
    *("$.**", "$.**{1}", "$.**{2 to last}", "$.**{last}", "$.**.b", "$.**{0 to 1}", "$.**{1}.a"),
    *("strict $.a", "strict $.a.b", "strict $[*]", "strict $.*", "strict $[0]", "strict $[5]"),
    *(
        "strict $.**.b",
        "strict $.a[*].b",
        "strict $.**{1 to 2}",
        "strict $[*].a",
        "strict $[1 to 0]",
    ),
    *(
        "$ ? (@ > 1)",
        "$.a ? (@ == 1)",
        "$[*] ? (@ >= 2)",
        "$.a ? (@ != null)",
        "$[*] ? (@ == null)",
    ),
    *("$ ? (@.a == 1)", "$[*] ? (@.a == 1).a", "$ ? (exists (@.a))", "$ ? (!exists (@.a[*].b))"),
    *("$ ? (@.a == 1 && @.b == 2)", "$ ? (@.a == 1 || @.b == 2)", "$ ? ((@.a == 1) is unknown)"),
    *(
        "strict $ ? (@.a == 1 || @.c == 2)",
        "strict $ ? ((@.c == 1) is unknown)",
        "$ ? (!(@.a < 2))",
    ),
    *("strict $ ? (exists (@.c))", "strict $.a[*] ? (@ > 1)", "strict $[*] ? (@.a == 1)"),
    *(
        '$.a ? (@ starts with "a")',
        '$.** ? (@ starts with "ab")',
        'strict $.b ? (@ starts with "a")',
    ),
    *('$ ? (@.a like_regex "^a")', '$.** ? (@ like_regex "b")', '$.a like_regex "a.b"'),
    *('$.** ? (@ like_regex "a.b" flag "q")', '$.** ? (@ like_regex "a.b" flag "qms")'),
    *('$.a like_regex "a.b" flag "s"', '$.a like_regex "^b" flag "m"', '$.b like_regex "a[.]b"'),
    *("$.a > 0", "$.a == $.b", "$.a < $.b", "$.a <> 1", "$.a == null", "null == null", "$ == $"),
    *("$.a <= null", "1 < 2", '"a" < "b"', "true > false", '1 == "1"', "$.a[*] >= 2", "$ != null"),
    *("strict $.a[*] > 1", "strict $ == 1", "strict $.a[*] == 1 && $.b == null", "!($.a == 1)"),
    *("($.a == 1) is unknown", "exists ($.a)", "strict exists ($.a)", "$.a == 1 || exists ($.c)"),
    *("$.a + 1", "$.a - $.b", "$.a * 2.50", "$.a / $.b", "$.a % 2", "1 / 0", "$[*] + 1", "-$.a"),
    *(
        "+$[*]",
        "-$[*]",
        "-$.a[*]",
        "strict -$.a",
        "1 + 2 * 3",
        "(1 + 2) * 3",
        "1 - 2 - 3",
        "10 / 4",
    ),
    *("1 / 3", "-1", "- -1", "-0", "1.00", "$.c * $.c", "-1 % 7", "7 % -3", "1 + $.a", "2 - -1"),
    *("$.type()", "$.size()", "$[*].type()", "$.*.type()", "$.a.size()", "strict $.size()"),
    *("$[*].abs()", "$.abs()", "$[*].floor()", "$[*].ceiling()", "strict $.a.abs()", "(-1).abs()"),
    *(
        "(-1.5).floor()",
        "(-0.5).ceiling()",
        "$.a.floor()",
        "strict $[*].abs()",
        "$.a.b.c[1].type()",
    ),
    *(
        "$.double()",
        "$[*].double()",
        "$.a.double()",
        "strict $[*].double()",
        "$.** ? (@.double() > 1)",
    ),
    *("$.keyvalue().key", "$.keyvalue().value", "$[*].keyvalue().key", "strict $.a.keyvalue().key"),
    *("$.keyvalue().key.size()", "$[last].type()", "$[$[0]]", "$.a[$.b]", "$[last / 2]", "$[*][*]"),
    *('"x"', "null", "true", "1.5", '"x".type()', "(1).type()", "null.type()", "$[0 to 1, 1]"),
    *("($.a == 1).type()", "($.a > 1 && $.b > 1)", "$ ? (@.a[*] > 1 && @.a[*] < 3)", "$.a[last].b"),
    *("$.a ? (@ > 0) ? (@ < 2)", "$.a ? (1 == 1)", "$[*] ? (@ == $[0])", "$ ? (@.a == @.b)"),
    *("$[*] ? (@ > 1).abs()", '$.** ? (@.type() == "number")', "$.**{1} ? (@ == 1)", '$."é"'),
    *("$.a ? (@.size() > 2)", "$.**{3}", "strict $.**{3}.a", "strict $.** ? (@.a == 1)", "$.**{0}"),
    *("$[0 to last] ? (@ != 1)", "strict $[last]", "strict $[0 to 5]", "strict $.a[0, 5]"),
    *(
        "strict $ ? (exists ($[5]))",
        "exists ($[*] ? (@ == 2))",
        "$ ? (@ == -1.5)",
        "$.a[0].b[last]",
    ),
)

CONVERSIONS = tuple(
    f"{mode}$[*]{path}.{method}(){rest}"
    for method in ("double", "integer", "bigint", "number", "decimal", "boolean", "string")
    for mode, path, rest in (("", "", ""), ("strict ", "", ""), ("", ".a", ".type()"))
)
"""Methods that read texts; all but the first came with PostgreSQL 17."""

CONVERTED = (
    *("1", "1.5", "-0.4", "2147483647.5", "2147483648", "9223372036854775807", "1e19", "1e40"),
    *(
        "true",
        "false",
        "null",
        "{}",
        "[1]",
        '{"a": "1"}',
        '{"a": [1, "x"]}',
        '["2", "y"]',
        "0",
        "-7",
    ),
    *(
        f'"{text}"'
        for text in (
            *("1", "1_0", "0x1F", "0x_1F", "0X1f", "0b101", "0o17", "0b12", "1.5", "1.", ".5", "."),
            *("1e3", "1.50e1", "1E-3", "1e", "1e+", "1e1_0", "1_e1", "1e-16383", "1e-16384"),
            *("0e-16384", "0e200000", "0e1073741823", "0e1073741824", "1e131071", "1e131072"),
            *(
                "0.1e131072",
                "0.1e131073",
                "1e99999999999999999999",
                "0e-99999",
                "00.10",
                "+1",
                "--1",
            ),
            *(
                "1__0",
                "_1",
                "1_",
                "1.5_5",
                "1._5",
                "1_.5",
                "NaN",
                "inf",
                "Infinity",
                "",
                " ",
                " 1 ",
            ),
            *("\\t1\\n", "1 2", "0x", "00012", "-0", "-0.00", "-0x10", "2147483648", "-2147483648"),
            *("9223372036854775808", "-9223372036854775808", "t", "TR", "tru", "trues", "o", "on"),
            *(
                "ON",
                "of",
                "off ",
                " off",
                "y",
                "yeS",
                "n",
                "no",
                "nope",
                "10",
                "é",
                "ü",
                "f",
                "false",
            ),
            *(
                "1e400",
                "1e-400",
                "0x1p3",
                "0x.8p1",
                "0x1p99999",
                "1d",
                "\\uff14",
                "1e5 x",
                "-",
                "+",
            ),
        )
    ),
)
"""Elements of arrays for them."""

UNSUPPORTED = (
    '$ like_regex "B" flag "i"',
    '$ like_regex "a" flag "qi"',
    "$.datetime()",
    '$.a ? (@.datetime() < "2024-01-01".datetime())',
    "$.keyvalue()",
    "$.keyvalue().id",
    "$ ? ((@.a + @.b).abs() > 1)",
    "$ ? (@.a + @.b > 1)",
    "1 + (-$.a).abs()",
    "1 + (2 * $.a).abs()",
    '$ like_regex "\\\\w"',
    '$ like_regex "é" flag "i"',
    "$.a == $.b + $.c",
)


def random_path(random: Random) -> str:
    """A random path that the server accepts."""
    mode = random.choice(("", "", "strict "))
    if random.random() < 0.5:
        return mode + _expression(random, 2, inside=False)
    return mode + _predicate(random, 2, inside=False)


def _accessor(random: Random, depth: int, *, inside: bool) -> str:
    choices = [
        ".a", ".b", ".c", ".*", "[*]", "[0]", "[1]", "[last]", "[0 to 1]", "[1 to last]", "[-1]",
        ".**", ".**{1}", ".**{last}", ".**{1 to 2}", ".type()", ".size()", ".abs()", ".floor()",
        ".ceiling()", ".double()", ".keyvalue().value", "[0, last]",
    ]  # fmt: skip
    if depth > 0:
        choices += [f" ? ({_predicate(random, depth - 1, inside=True)})"] * 6
        choices.append(f"[{_expression(random, 0, inside=inside)}]")
    return random.choice(choices)


def _expression(random: Random, depth: int, *, inside: bool) -> str:
    choice = random.random()
    if choice < 0.15:
        return random.choice(("1", "0", "2.50", "-1", '"a"', '"abc"', "true", "null", "1e3"))
    if depth > 0 and choice < 0.3:
        left, right = (_expression(random, depth - 1, inside=inside) for _ in range(2))
        return f"({left} {random.choice('+-*/%')} {right})"
    if depth > 0 and choice < 0.35:
        return f"({random.choice('+-')}{_expression(random, depth - 1, inside=inside)})"
    path = random.choice("@@$") if inside else "$"
    count = random.choice((0, 1, 1, 2, 3))
    return path + "".join(_accessor(random, depth, inside=inside) for _ in range(count))


def _predicate(random: Random, depth: int, *, inside: bool) -> str:
    choice = random.random()
    if depth > 0 and choice < 0.2:
        left, right = (_predicate(random, depth - 1, inside=inside) for _ in range(2))
        return f"(({left}) {random.choice(('&&', '||'))} ({right}))"
    if depth > 0 and choice < 0.3:
        return f"!({_predicate(random, depth - 1, inside=inside)})"
    if depth > 0 and choice < 0.4:
        return f"(({_predicate(random, depth - 1, inside=inside)}) is unknown)"
    left = _expression(random, depth - 1, inside=inside)
    if choice < 0.5:
        return f"exists ({left})"
    if choice < 0.55:
        return f'({left} starts with "a")'
    if choice < 0.6:
        return f'({left} like_regex "{random.choice(("a", "^a", "b$", "[0-9]+"))}")'
    right = _expression(random, depth - 1, inside=inside)
    return f"({left} {random.choice(('==', '!=', '<', '<=', '>', '>='))} {right})"
