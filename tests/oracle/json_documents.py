"""Documents, keys and paths for which functions of json and jsonb might differ."""

from __future__ import annotations

import json
from random import Random

__all__ = ["DOCUMENTS", "JSON_TEXTS", "KEYS", "PATHS", "random_document"]

DOCUMENTS = (
    *(
        "null",
        "true",
        "false",
        "0",
        "1",
        "1.0",
        "1.00",
        "-1",
        "-0.0",
        "1e2",
        "1.5e-3",
        "100",
        "1e40",
    ),
    *("2147483647", "2147483648", "-9223372036854775808", "9223372036854775808", "0.5", "1.5"),
    *("1e308", "1e309", "1e-400", "3.4028236e38", "32768", "16777217", "99999999999999999999.5"),
    *('""', '"a"', '"b"', '"1"', '"é"', '"𝄞"', '"a\\nb\\u0001\\\\\\"/\\u007f\\u00ff"', '"null"'),
    *("[]", "{}", "[[]]", "[{}]", "[null]", "[1]", "[1.0]", "[true]", "[1, 2, 3]", "[[1, 2], [3]]"),
    *('["a", "b", "a"]', '["a", null, 1, true, [], {}]', "[[1], 1]", '[{"a": 1}, {"a": 2}, "a"]'),
    *('{"a": null}', '{"a": 1}', '{"a": 1.0}', '{"a": true}', '{"b": 1}', '{"a": 1, "b": 2}'),
    *('{"b": 1, "a": 2, "aa": 3, "": 4}', '{"a": {"b": {"c": [1, {"d": null}]}}}', '{"a": []}'),
    *('{"a": [1, 2, {"b": "c"}], "c": {}}', '{"é": 1, "aa": 2, "z": 3, "日本": 4}', '{"": ""}'),
    *('{"a": {"a": {"a": "a"}}}', '{"1": "one", "0": "nil", "-1": [0]}', '{"a": "b", "b": "a"}'),
    *('[{"a": null, "b": [null, {"c": null}]}, null]', '{"a": {}, "b": [{}, []], "c": null}'),
)
"""Texts of jsonb."""

JSON_TEXTS = (
    *DOCUMENTS,
    *(" 5 ", '\t"a" ', " null ", "  [ 1 ,2 ]  ", ' { "a" : 1 , "a" : 2 } ', "-0", "1E5", "1e+5"),
    *('{"a":{"b":1},"a":{"c":2}}', '{"a":{"b":1},"a":{"b":null}}', '{"a":{"b":1},"a":3}'),
    *(
        "[[1,2,3],[4,5]]",
        "[[],[1,2,3],[4,5]]",
        '{"x":[1,2,3],"a":[4,5]}',
        '{"a":[4,5],"x":[1,2,3]}',
    ),
    *(r'"\u0041\u00e9\ud834\udd1e\/\b\f"', r'"\u0000"', r'{"a":"\u0000","b":1}', r'"\\u0000"'),
    *(
        r'"\ud834"',
        r'"\udd1e"',
        r'"\ud834x"',
        r'"\ud834\n"',
        r'"\ud834\ud834"',
        r'["\ud834","\udd1e"]',
    ),
    *(r'{"\u0061":1}', r'{"\u0000":1}', r'["\ud834\u0000"]', r'["\u0000\ud834"]', r'"a\u000ab"'),
    *(
        '[1, null ,[null], {"a" : null, "b":[null ]} ]',
        '{"a" :null,"b": null , "c":"["}',
        '["[", "{", 1]',
    ),
    *(
        '{"a":null,"a":1}',
        '{ "a" : [ null , null ] }',
        '"\\""',
        '["a" , {"b" : "c\\"}"} ]',
        "[null]",
    ),
)
"""Texts of json: as jsonb has them, and as only json keeps them."""

KEYS = ("a", "b", "", "aa", "é", "日本", "1", "null", "z", "𝄞")

PATHS = (
    *("{}", "{a}", "{b}", "{a,b}", "{a,b,c}", "{a,b,c,1,d}", "{a,1}", "{a,-1}", "{0}", "{-1}"),
    *("{1}", "{5}", "{-5}", "{0,a}", "{1,-1}", "{0,-1}", "{2,-1}", "{a,a,a}", "{NULL}", "{a,NULL}"),
    *("{0,NULL}", "{b,NULL}", '{""}', '{" 1"}', '{"1 "}', "{+1}", "{01}", "{1a}", "{-0}", "{z,z}"),
    *("{2147483647}", "{-2147483648}", "{2147483648}", "{99999999999999999999}", "{é}", "{a,2,b}"),
    *(
        "{{a},{b}}",
        "{{a,b}}",
        "{000000000000001}",
        '{"\t\n1"}',
        "{-}",
        "{NULL,a}",
        "{a,b,0}",
        "{x,-1}",
    ),
)
"""Texts of text[]."""


def random_document(random: Random, depth: int = 3) -> str:
    """A random document, not always as jsonb prints it."""
    choice = random.random()
    if depth > 0 and choice < 0.3:
        items = [random_document(random, depth - 1) for _ in range(random.randint(0, 3))]
        return f"[{', '.join(items)}]"
    if depth > 0 and choice < 0.7:
        pairs = [
            f"{json.dumps(random.choice(KEYS))}: {random_document(random, depth - 1)}"
            for _ in range(random.randint(0, 4))
        ]
        return f"{{{', '.join(pairs)}}}"
    return random.choice(
        ("null", "true", "false", "1", "1.0", "-1", "0", "2.50", "1e3", '"a"', '"b"', '""', '"é"')
    )
