"""Random filters and rows over one table with a column, or two, of each supported type."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gateway.definitions.model import Collation, Column
from gateway.pgtypes.catalog import TYPES

C = Collation('pg_catalog."C"', deterministic=True, c_order=True)
UNORDERED = Collation("default", deterministic=True, c_order=False)


@dataclass(frozen=True, slots=True)
class Spec:
    """A column of the table, and literals that are interesting for it."""

    name: str
    kind: str
    sql: str
    collation: Collation | None = None


SPECS = (
    Spec("s", "int2", "smallint"),
    Spec("a", "int4", "integer"),
    Spec("we ird", "int4", "integer"),
    Spec("b", "int8", "bigint"),
    Spec("o", "oid", "oid"),
    Spec("r", "float4", "real"),
    Spec("f", "float8", "double precision"),
    Spec("n", "numeric", "numeric"),
    Spec("m", "numeric", "numeric(10,2)"),
    Spec("t", "text", 'text COLLATE "C"', C),
    Spec("x", "text", "text", UNORDERED),
    Spec("v", "varchar", 'varchar(8) COLLATE "C"', C),
    Spec("p", "bpchar", 'char(5) COLLATE "C"', C),
    Spec("k", "name", "name", C),
    Spec("z", "bool", "boolean"),
    Spec("y", "bool", "boolean"),
    Spec("d", "date", "date"),
    Spec("ts", "timestamp", "timestamp"),
    Spec("t3", "timestamp", "timestamp(3)"),
    Spec("tz", "timestamptz", "timestamptz"),
    Spec("u", "uuid", "uuid"),
    Spec("h", "bytea", "bytea"),
)

WORDS = ("", " ", "a", "A", "ab", "a b", "ab ", "ba", "abc", "é", "éa", "日本", "%", "_", "a%b",
         "a\\b", "'", "NSW", "\n", "aé", "𝄞", "z", "~")  # fmt: skip
PATTERNS = ("", "%", "_", "a%", "%a", "%a%", "a_", "_a", "__", "%_b", "a%b", "%é%", "\\%", "a\\\\b",
            "_%_", "%b%a%", "é_", "a\\", "%\\", "日%", "A%", "a !%b", "%%", "_%b")  # fmt: skip
LITERALS: dict[str, tuple[str, ...]] = {
    "int2": ("0", "1", "-1", "7", "32767", "-32768", "100"),
    "int4": ("0", "1", "-1", "7", "2147483647", "-2147483648", "32767", "3", "10"),
    "int8": ("0", "1", "-1", "9223372036854775807", "-9223372036854775808", "2147483648",
             "9007199254740993", "5"),
    "oid": ("0", "1", "4294967295", "2147483648", "7"),
    "float4": ("0", "-0", "1.5", "0.1", "NaN", "Infinity", "-Infinity", "3.4028235e38", "1e-45",
               "-1", "16777216", "2", "1e20"),
    "float8": ("0", "-0", "1.5", "0.1", "NaN", "Infinity", "-Infinity", "1.7976931348623157e308",
               "5e-324", "-1", "9007199254740992", "2", "1e20", "2.5"),
    "numeric": ("0", "1", "1.0", "-1.50", "NaN", "Infinity", "-Infinity", "0.1", "3", "1e-20",
                "99999999999999999999.5", "2.5", "-0.00", "7.125", "10000", "123456789.123"),
    "text": WORDS,
    "varchar": WORDS,
    "bpchar": WORDS,
    "name": WORDS,
    "bool": ("true", "false"),
    "date": ("2024-01-01", "2024-02-29", "1999-12-31", "0044-03-15 BC", "infinity", "-infinity",
             "5874897-12-31", "10000-01-01", "2000-01-01", "4714-11-24 BC"),
    "timestamp": ("2024-01-01 00:00:00", "2024-02-29 12:34:56.789", "infinity", "-infinity",
                  "0044-03-15 01:02:03 BC", "294276-12-31 23:59:59.999999",
                  "1999-12-31 23:59:59.9995",
                  "2000-01-01 00:00:00.000001", "1969-12-31 23:59:59.123456"),
    "timestamptz": ("2024-01-01 00:00:00+00", "2024-02-29 12:34:56.789+05:30", "infinity",
                    "-infinity", "0044-03-15 01:02:03+00 BC", "2000-01-01 00:00:00.000001-03"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
             "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "0a000000-0000-0000-0000-000000000000"),
    "bytea": ("\\x", "\\x00", "\\xff", "\\xdead", "\\xde", "\\x5c27"),
}  # fmt: skip
SQL_NAMES = {
    "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real",
    "float8": "double precision", "bool": "boolean",
}  # fmt: skip
INTEGERS = ("int2", "int4", "int8")
NUMBERS = (*INTEGERS, "float4", "float8", "numeric")
TEXTS = ("text", "varchar", "bpchar", "name")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def columns() -> list[Column]:
    """The table's columns as the catalog reader gives them."""
    found = []
    for number, spec in enumerate(SPECS, 2):
        oid = TYPES[spec.kind][0]
        found.append(
            Column(
                name=spec.name, attnum=number, type_oid=oid, type_modifier=-1, type_name=spec.sql,
                base_type_oid=oid, base_type_modifier=-1, type_kind="b", not_null=False,
                generated="", collation=spec.collation,
            )
        )  # fmt: skip
    return found


def quote(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


class Generator:
    """Makes random SQL; the same seed makes the same."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def value(self, spec: Spec) -> str | None:
        """A value for a column, as input text."""
        if self.random.random() < 0.15:
            return None
        if spec.kind == "numeric" and "(" in spec.sql:
            return self.random.choice(("0", "1.00", "-1.5", "NaN", "99999999.99", "2.5", "0.01"))
        text = self.random.choice(LITERALS[spec.kind])
        if spec.kind in ("bpchar", "varchar"):
            text = text[:5]
        if spec.kind in INTEGERS and self.random.random() < 0.3:
            text = str(self.random.randint(-20, 20))
        return text

    def filter(self) -> str:
        """A boolean expression."""
        return self.boolean(self.random.choice((1, 2, 2, 3)))

    def boolean(self, depth: int) -> str:
        """A boolean expression of at most `depth` levels of AND, OR and NOT."""
        choose = self.random.random()
        if depth > 0 and choose < 0.55:
            word = self.random.choice(("AND", "OR"))
            parts = [self.boolean(depth - 1) for _ in range(self.random.choice((2, 2, 3)))]
            return "(" + f" {word} ".join(parts) + ")"
        if depth > 0 and choose < 0.7:
            return f"(NOT {self.boolean(depth - 1)})"
        if depth > 0 and choose < 0.8:
            test = self.random.choice(("TRUE", "FALSE", "UNKNOWN", "NULL"))
            word = self.random.choice(("IS", "IS NOT"))
            return f"({self.boolean(depth - 1)} {word} {test})"
        return self.predicate()

    def predicate(self) -> str:
        """A comparison, or one of its kin."""
        random = self.random
        choose = random.random()
        if choose < 0.08:
            return random.choice(("z", "y", "true", "false", "NULL::boolean", "(z = y)", "(z < y)"))
        if choose < 0.16:
            spec = random.choice(SPECS)
            return f'("{spec.name}" IS {random.choice(("", "NOT "))}NULL)'
        if choose < 0.3:
            return self.like()
        if choose < 0.36:
            return self.others()
        kind = random.choice((*NUMBERS, *NUMBERS, *TEXTS, "date", "timestamp", "timestamptz",
                              "uuid", "bytea", "oid", "bool"))  # fmt: skip
        left = self.expression(kind, random.choice((0, 0, 1, 2)))
        if kind in TEXTS and left[0] == "'":
            left = self.column(kind).replace('"x"', '"t"')  # literals alone have no order here
        right = self.expression(kind, 0, prefer_literal=True)
        choose = random.random()
        if choose < 0.15:
            word = random.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return f"({left} {word} {right})"
        if choose < 0.3:
            low, high = self.expression(kind, 0), self.expression(kind, 0)
            word = random.choice(("BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC"))
            return f"({left} {word} {low} AND {high})"
        if choose < 0.5:
            items = [self.literal(kind) for _ in range(random.choice((1, 2, 3, 10)))]
            items += ["NULL"] if random.random() < 0.2 else []
            return f"({left} {random.choice(('IN', 'NOT IN'))} ({', '.join(items)}))"
        if choose < 0.6:
            return self.quantified(kind, left)
        if kind in NUMBERS and random.random() < 0.4:
            right = self.expression(random.choice(NUMBERS), random.choice((0, 1)))
        return f"({left} {random.choice(COMPARISONS)} {right})"

    def quantified(self, kind: str, left: str) -> str:
        operator = self.random.choice(COMPARISONS)
        word = self.random.choice(("ANY", "ALL"))
        if self.random.random() < 0.5:
            items = ", ".join(
                self.random.choice((self.literal(kind), self.expression(kind, 0))) for _ in "12"
            )
            return f"({left} {operator} {word} (ARRAY[{items}]))"
        texts = [self.random.choice(LITERALS[kind]) for _ in range(self.random.randint(0, 3))]
        items = ",".join('"' + t.replace("\\", "\\\\").replace('"', '\\"') + '"' for t in texts)
        items += (",NULL" if items else "NULL") if self.random.random() < 0.2 else ""
        array = quote("{" + items + "}")
        return f"({left} {operator} {word} ({array}::{SQL_NAMES.get(kind, kind)}[]))"

    def like(self) -> str:
        random = self.random
        left = random.choice(("t", "x", "v", "p", "k", "t", "(t || v)"))
        pattern = random.choice((quote(random.choice(PATTERNS)),) * 6 + ("t", "v::text"))
        word = random.choice(("LIKE", "NOT LIKE", "LIKE", "ILIKE", "NOT ILIKE"))
        if "ILIKE" in word and left == "x":
            left = '(x COLLATE "C")'
        if pattern in ("t", "v::text") and left == "x":
            left = "t"
        escape = random.choice(("", "", "", " ESCAPE '!'", " ESCAPE ''"))
        return f"({left} {word} {pattern}{escape})"

    def others(self) -> str:
        """Operators and casts between types that `expression` does not reach."""
        random = self.random
        days = random.choice(("1", "-400", "a", "s"))
        stamp = f"{quote(random.choice(LITERALS['timestamp']))}::timestamp"
        return random.choice(
            (
                f"(d {random.choice(COMPARISONS)} ts)",
                f"(t3 {random.choice(COMPARISONS)} d)",
                f"((d {random.choice('+-')} {days}) > '2024-01-01')",
                f"((d - '2024-01-01'::date) > {random.choice(LITERALS['int4'])})",
                f"(ts::date {random.choice(COMPARISONS)} d)",
                f"(d::timestamp {random.choice(COMPARISONS)} {stamp})",
                f"(ts::timestamp({random.randint(0, 6)}) = t3)",
                f"(d {random.choice(COMPARISONS)} {stamp})",
                f"(t ^@ {quote(random.choice(WORDS))})",
                "a::boolean",
                f"(z::integer {random.choice(COMPARISONS)} 1)",
                f"(b::oid {random.choice(COMPARISONS)} o)",
                f"(a::oid {random.choice(COMPARISONS)} s::oid)",
                f"(o::bigint {random.choice(COMPARISONS)} a)",
                f"(o::integer {random.choice(COMPARISONS)} a)",
                "((h || '\\x00') > h)",
                f"(k {random.choice(COMPARISONS)} t)",
                f"(t {random.choice(COMPARISONS)} k)",
                f"(v::char(3) {random.choice(COMPARISONS)} p)",
                f"((~ a) {random.choice(COMPARISONS)} b)",
            )
        )

    def column(self, kind: str) -> str:
        return f'"{self.random.choice([s.name for s in SPECS if s.kind == kind])}"'

    def literal(self, kind: str) -> str:
        text = self.random.choice(LITERALS[kind])
        if kind == "bool":
            return text
        plain = text.lstrip("-").replace(".", "", 1).isdigit() and kind in NUMBERS
        if plain and self.random.random() < 0.5:
            return text if text[0] != "-" else f"({text})"
        return f"{quote(text)}::{SQL_NAMES.get(kind, kind)}"

    def expression(self, kind: str, depth: int, *, prefer_literal: bool = False) -> str:
        """An expression of type `kind`, or of one that PostgreSQL compares with it."""
        random = self.random
        if depth > 0 and kind in NUMBERS:
            return self.number(kind, depth)
        if depth > 0 and kind in ("text", "varchar") and random.random() < 0.5:
            return random.choice(
                (
                    f"({self.column('text')} || {self.literal('text')})",
                    f"v::varchar({random.randint(1, 4)})",
                    "p::text",
                    f"t::char({random.randint(1, 4)})",
                    '(z::text COLLATE "C")',
                    "k::text",
                )
            ).replace('"x"', '"t"')
        if random.random() < (0.75 if prefer_literal else 0.1):
            return self.literal(kind)
        found = self.column(kind)
        return '("x" COLLATE "C")' if found == '"x"' else found

    def number(self, kind: str, depth: int) -> str:
        random = self.random
        choose = random.random()
        inner = self.expression(kind, depth - 1)
        if choose < 0.15:
            return f"({random.choice(('-', '+', '@'))} {inner})"
        if choose < 0.3:
            other = self.expression(random.choice(NUMBERS), depth - 1)
            return f"({other})::{SQL_NAMES.get(kind, kind)}"
        if choose < 0.36 and kind in INTEGERS:
            if random.random() < 0.5:
                operator, right = random.choice(("<<", ">>")), str(random.choice((0, 1, 5, 31, 33)))
            else:
                operator, right = random.choice("&|#"), self.expression(kind, 0)
            return f"({inner} {operator} {right})"
        if choose < 0.4 and kind == "numeric":
            return f"({inner})::numeric({random.choice(('5,1', '10,2', '20', '3,3'))})"
        operator = random.choice("+-*/%" if kind in (*INTEGERS, "numeric") else "+-*/")
        right = self.expression(kind, depth - 1, prefer_literal=random.random() < 0.5)
        return f"({inner} {operator} {right})"
