"""Filters on numbers, bit strings, addresses and identifiers, in the server's rendering."""

from __future__ import annotations

import pytest

from gateway.errors import FilterError
from gateway.rowfilter import compile_filter
from tests.unit.rowfilter.columns import column

KINDS = {
    "a": "int4", "b": "int8", "n": "numeric", "f": "float8", "bits": "bit", "more": "varbit",
    "i": "inet", "c": "cidr", "m": "macaddr", "m8": "macaddr8", "l": "pg_lsn", "x": "xid",
    "x8": "xid8", "t": "tid", "o": "oid", "u": "uuid", "z": "bool",
}  # fmt: skip
ROW = {
    "a": b"7", "b": b"4294967303", "n": b"2.50", "f": b"-2.5", "bits": b"0110", "more": b"01101",
    "i": b"10.1.2.3/24", "c": b"10.1.0.0/16", "m": b"08:00:2b:01:02:03",
    "m8": b"08:00:2b:ff:fe:01:02:03", "l": b"16/B374D848", "x": b"4294967295", "x8": b"5000000000",
    "t": b"(3,1)", "o": b"9", "u": b"5c146b14-3c52-4afd-938a-375d0df1fbf6", "z": b"t",
}  # fmt: skip


COLUMNS = [column(name, kind) for name, kind in KINDS.items()]


def passes(text: str) -> bool:
    names = list(KINDS)
    return compile_filter(text, COLUMNS, major=18).bind(names)(tuple(ROW[n] for n in names))


@pytest.mark.parametrize(
    "text",
    [
        "(a = gcd(14, 21))",
        "(mod(b, (7)::bigint) = 4)",
        "(round(n) = (3)::numeric)",
        "(round(n, 1) = 2.5)",
        "((n ^ (2)::numeric) = 6.25)",
        "(log(n) < (1)::numeric)",
        "(scale(n) = 2)",
        "(width_bucket(n, (0)::numeric, (10)::numeric, 4) = 2)",
        "(width_bucket(a, ARRAY[1, 7, 9]) = 2)",
        "(round(f) = ('-2'::integer)::double precision)",
        "((|/ (- f)) > (1.5)::double precision)",
        "(pi() > (3)::double precision)",
        "(abs(hashint8(b)) > 0)",
        "(int4larger(a, 9) = 9)",
        "(numeric_cmp(n, 2.5) = 0)",
        "((a)::bit(4) = '0111'::\"bit\")",
        "((b)::bit(40) <> (a)::bit(40))",
        "((bits)::bit(2) = '01'::\"bit\")",
        "((more)::bit varying(3) = '011'::bit varying)",
        "((bits & '0011'::\"bit\") = '0010'::\"bit\")",
        "((i << (c)::inet) AND (i >= '10.1.2.0/24'::inet))",
        "(i = ANY (ARRAY['10.1.2.3/24'::inet, '::1'::inet]))",
        "(host(i) = '10.1.2.3'::text)",
        "((i + (1)::bigint) = ((1)::bigint + i))",
        "((m)::macaddr8 = m8)",
        "(trunc(m) = '08:00:2b:00:00:00'::macaddr)",
        "((l - '16/0'::pg_lsn) = (3010779208)::numeric)",
        "(((1)::numeric + l) > l)",
        "(x = '-1'::integer)",
        "(x <> '7'::xid)",
        "(x = ANY (ARRAY['-1'::integer, 5]))",
        "((x8)::xid = '705032704'::xid)",
        "(t > '(2,9)'::tid)",
        "(oidsmaller(o, (3)::oid) = (3)::oid)",
        "(uuid_extract_version(u) = 4)",
        "(booland_statefunc(z, true) AND boolor_statefunc(z, false) AND (btboolcmp(z, false) = 1))",
    ],
)
def test_a_filter_that_the_row_passes(text: str) -> None:
    assert passes(text)
    assert not passes(f"(NOT {text})")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("(sin(f) > (0)::double precision)", 18),
        ("((f ^ (2)::double precision) > (1)::double precision)", 18),
        ("(exp(f) > (1)::double precision)", 18),
        ("(cbrt(f) > (1)::double precision)", 18),
        ("((n ^ (2)::numeric) > (1)::numeric)", None),
        ("(width_bucket(n, (0)::numeric, (10)::numeric, 4) = 2)", 15),
        ("(hashinet(i) > 0)", 18),
    ],
)
def test_what_cannot_be_shown_to_be_the_servers_is_refused(text: str, major: int | None) -> None:
    with pytest.raises(FilterError, match="is not supported"):
        compile_filter(text, COLUMNS, major=major)
