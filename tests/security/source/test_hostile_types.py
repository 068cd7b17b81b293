"""Tables whose names, types and values somebody chose to be as odd as PostgreSQL lets them be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.settings.tables import TYPE_CHOICES
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR ALL TABLES;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_r CONNECTION '' PUBLICATION p;"
)
LONG = "x" * 63
ODD = ("a-b", "a_x002D_b", "1a", "_x0031_a", "é", "e\u0301", "\U0001f600", 'a"b', "a\nb", LONG)
LABELS = ("", "a,b", 'a"b', "{x}", "NULL", "a\nb", "é\U0001f600", LONG)
SETUP = f"""
CREATE EXTENSION hstore; CREATE SCHEMA evil;
CREATE TABLE good (id int PRIMARY KEY);
CREATE TABLE ops (id int PRIMARY KEY, __op text);
CREATE TABLE gone (id int PRIMARY KEY, __deleted bool, __lsn bigint, __unchanged text[]);
CREATE TABLE inner_names (id int PRIMARY KEY, before int, after text, source jsonb, op text,
    ts_ms bigint, transaction int, unchanged text, "Value" int, "Envelope" int, namespace int);
CREATE TABLE wide (id int PRIMARY KEY, {", ".join(f"c{n} int" for n in range(1599))});
CREATE TABLE odd (id int PRIMARY KEY,
    {", ".join('"' + name.replace('"', '""') + '" int' for name in ODD)});
CREATE TYPE evil.int4 AS ENUM ('one'); CREATE TYPE evil.interval AS (a int, b text);
CREATE TYPE evil.hstore AS (a int); CREATE DOMAIN evil.d AS evil.hstore;
CREATE TYPE evil."timestamp with time zone" AS ENUM ('x'); CREATE TYPE evil.uuid AS RANGE
    (subtype = float8); CREATE DOMAIN evil."numeric(10,2)" AS text;
CREATE TYPE evil.citext AS ENUM ('a', 'A'); CREATE DOMAIN evil.vector AS float4[];
CREATE TABLE named (id evil.int4, k evil.citext, i evil.interval, h evil.hstore, d evil.d,
    t evil."timestamp with time zone", n evil."numeric(10,2)", u evil.uuid, v evil.vector,
    a evil.interval[], PRIMARY KEY (id, k));
CREATE TYPE label AS ENUM ({", ".join(f"'{label}'" for label in LABELS)});
CREATE TYPE many AS ENUM ({", ".join(f"'l{n}'" for n in range(5000))});
CREATE TABLE labelled (id int PRIMARY KEY, v label, a label[], m many);
CREATE TABLE ranges (id int PRIMARY KEY, t tsrange, n numrange, i int4range, a int4range[]);
CREATE TABLE pairs (id int PRIMARY KEY, h hstore);
CREATE TABLE lists (id int PRIMARY KEY, a int[]);
CREATE TABLE spans (id int PRIMARY KEY, v interval);
"""
ARRAY_OF_LABELS = '{"","a,b",NULL,"NULL"}'


def bounds(lower: Any, upper: Any, *, closed: bool = False, empty: bool = False) -> dict[str, Any]:
    """A range whose lower bound is included where there is one."""
    return {
        "lower": lower,
        "upper": upper,
        "lower_inclusive": lower is not None,
        "upper_inclusive": closed,
        "empty": empty,
    }


NOTHING = bounds(None, None, empty=True)


@pytest.mark.parametrize("postgres_major", [17], indirect=True)
def test_odd_tables_are_carried_as_they_are_or_held_by_name_and_the_others_go_on(
    scene: Callable[..., Scene], database: Database
) -> None:
    slot = f"gw_{database.name}"
    with database.connect() as connection:
        connection.execute(SETUP.encode())
        s = scene(
            DEFINITIONS,
            types=dict.fromkeys(TYPE_CHOICES, "native"),
            on_error={"value": "quarantine"},
            **{"envelope.subscriptions": {slot: "debezium", f"{slot}_r": "row"}},
        )
        s.run_to("0/1")
        numbers = ", ".join(map(str, range(len(ODD))))
        connection.execute(
            f"""
            INSERT INTO ops VALUES (1, 'x'); INSERT INTO gone VALUES (1, true, 5, '{{a}}');
            INSERT INTO inner_names VALUES (1, 2, 'a', '{{}}', 'c', 3, 4, 'u', 5, 6, 7);
            INSERT INTO wide (id, c0, c1598) VALUES (1, 2, 3);
            INSERT INTO odd VALUES (1, {numbers});
            INSERT INTO named VALUES ('one', 'A', '(1,x)', '(2)', '(3)', 'x', 't', '[1,2)',
                '{{1,NULL}}', ARRAY['(1,x)'::evil.interval]);
            INSERT INTO labelled VALUES (1, '', '{ARRAY_OF_LABELS}', 'l4999');
            INSERT INTO ranges VALUES (1, '[-infinity,infinity]', '[NaN,NaN]', 'empty',
                '{{"[1,2)",empty,NULL,"(,)"}}'), (2, '(,2024-02-29)', 'empty', '(,)', '{{}}');
            INSERT INTO pairs VALUES (1, 'a=>1, a=>2, b=>NULL'), (2, '""=>"=>"'), (3, '');
            INSERT INTO lists VALUES (1, '{{1,NULL}}'), (2, '{{{{{{{{{{{{1}}}}}}}}}}}}');
            INSERT INTO spans VALUES (1, 'infinity'), (2, '-1 mon +1 day -00:00:00.000001');
            INSERT INTO good VALUES (1);
            """.encode()
        )
        s.run_to(current_lsn(connection))
        status = s.cli("status").out

    def row(table: str) -> dict[str, Any]:
        (value,) = (record.value for record in s.read(table) if record.op == "c")
        assert value is not None
        found: dict[str, Any] = value["after"]
        return found

    def rows(table: str) -> list[Any]:
        return [row[1:] for row in s.rebuilt(table)]

    held = [line for line in status.splitlines() if ": held, " in line]
    assert [line.split(": ")[1] for line in held] == ["public.gone", "public.ops"]
    assert all(line.startswith(f"copy of {slot}_r: ") for line in held), held
    assert row("ops") == {"id": 1, "__op": "x"}
    assert row("gone")["__unchanged"] == ["a"]
    assert [*row("inner_names").values()] == [1, 2, "a", "{}", "c", 3, 4, "u", 5, 6, 7]
    wide = row("wide")
    assert (len(wide), wide["c0"], wide["c1"], wide["c1598"]) == (1600, 2, None, 3)
    assert [*row("odd").values()] == [1, *range(len(ODD))]
    composite, inner = "(1,x)", [1.0, None]
    assert [*row("named").values()] == [
        *("one", "A", composite, "(2)", "(3)", "x", "t", "[1,2)", inner, [composite]),
    ]
    assert rows("labelled") == [("", ["", "a,b", None, "NULL"], "l4999")]
    ends = bounds(-(2**63), 2**63 - 1, closed=True)
    listed = [bounds(1, 2), NOTHING, None, bounds(None, None)]
    before = bounds(None, 1_709_164_800_000_000)
    assert rows("ranges") == [
        (ends, bounds("NaN", "NaN", closed=True), NOTHING, listed),
        (before, NOTHING, bounds(None, None), []),
    ]
    assert rows("pairs") == [({"a": "1", "b": None},), ({"": "=>"},), ({},)]
    assert rows("lists") == [([1, None],)]
    assert rows("spans") == [({"months": -1, "days": 1, "microseconds": -1},)]
    for subscription in (slot, f"{slot}_r"):
        assert any(record.op == "c" for record in s.read("good", subscription))
    refused = [record.value for record in s.reader.read(f"{slot}.error") if record.value]
    assert {(one["table"], one["key"]["id"]) for one in refused} == {("lists", "2"), ("spans", "1")}
