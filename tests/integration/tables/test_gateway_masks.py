"""Masked columns on real servers: no value of them leaves the gateway, in a stream or in a copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.gateway.masked_scene import (
    KEY,
    ROW,
    assert_hidden,
    hashed,
    key_file,
    source,
    written,
)
from tests.support.gateway.scene import Connection, Scene, current_lsn, wait_until_confirmed

__all__ = ["key_file", "source"]

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE people WHERE (salary / level > 1000), bag, notes;"
    "CREATE PUBLICATION named FOR TABLE people WHERE (abs(length(name)) > 3);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p WITH (binary = %s);"
    "CREATE SUBSCRIPTION {s}_named CONNECTION '' PUBLICATION named WITH (binary = %s);"
)


def masks(slot: str) -> dict[str, str]:
    return {
        f"{slot}.public.people.ssn": "hash",
        f"{slot}.public.people.name": "null",
        f"{slot}.public.people.mail": "hash",
        f"{slot}.public.people.born": "hash",
        f"{slot}.public.people.salary": "hash",
        f"{slot}.public.people.code": "truncate(2)",
        f"{slot}.public.notes.id": "hash",
        f"{slot}.public.notes.body": "hash",
        f"{slot}.public.bag.secret": "hash",
        f"{slot}_named.public.people.ssn": "hash",
        f"{slot}_named.public.people.name": "truncate(4)",
        f"{slot}_named.public.people.mail": "null",
        f"{slot}_named.public.people.born": "null",
        f"{slot}_named.public.people.salary": "null",
        f"{slot}_named.public.people.code": "null",
    }


@pytest.mark.usefixtures("key_file")
@pytest.mark.parametrize("binary", ["false", "true"])
def test_no_true_value_is_in_any_byte_of_any_topic(
    scene: MakeScene,
    source: Connection,
    kafka: str,
    registry: str,
    binary: str,
) -> None:
    source.execute(ROW.format(1, 30).encode())
    source.execute("INSERT INTO bag VALUES ('bag-secret', 1), ('bag-secret', 1)")
    s = scene(
        DEFINITIONS % (binary, binary),
        copy={"chunk_rows": 10, "parallel": 1},
        on_error=dict.fromkeys(("filter", "value", "size"), "quarantine"),
    )
    s.project.extra = {**s.project.extra, "columns": {"masks": masks(s.slot)}}

    log = s.run_to("0/1").err
    for statement in (
        ROW.format(31, 40),
        "INSERT INTO people SELECT 'ssn-secret-0', 'name-secret-0', m, b, 1987654321, 0, 'CD-0'"
        " FROM (VALUES ('mail-secret-1', '9999-12-31'::date)) AS v (m, b)",
        "UPDATE people SET name = name || '-x' WHERE ssn = 'ssn-secret-1'",
        "UPDATE people SET ssn = ssn || '-x' WHERE ssn = 'ssn-secret-2'",
        "UPDATE people SET salary = 1 WHERE ssn = 'ssn-secret-3'",
        "DELETE FROM people WHERE ssn = 'ssn-secret-4'",
        "UPDATE notes SET n = 2 WHERE id = 'note-secret-1'",
        "UPDATE notes SET id = id || '-x', n = 3 WHERE id = 'note-secret-2'",
        "UPDATE notes SET body = 'life-secret' WHERE id = 'note-secret-3'",
        "DELETE FROM notes WHERE id = 'note-secret-4'",
        "DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag LIMIT 1)",
        "UPDATE bag SET n = 2",
    ):
        source.execute(statement.encode())
    log += s.run_to(current_lsn(source)).err

    found = written(kafka, registry, s.slot)
    assert {f"{s.slot}.error", f"{s.slot}.progress", f"{s.slot}.transaction"} <= found.keys()
    assert found[f"{s.slot}.error"]
    assert f"subject {s.topic('people')}-value" in found
    assert_hidden(found)
    assert_hidden({"log": log.encode()})
    assert KEY not in log
    for command in (("status",), ("check",), ("tail", s.slot, "--from-beginning", "--no-follow")):
        shown = s.cli(*command)
        assert_hidden({command[0]: (shown.out + shown.err).encode()})
        assert KEY not in shown.out + shown.err

    rows = source.execute(
        "SELECT ssn, mail, born::text, salary::text FROM people WHERE level > 0"
        " AND salary / level > 1000"
    ).fetchall()
    wanted = [
        (hashed(ssn), None, *map(hashed, (mail, born, salary)), 1, "CD")
        for ssn, mail, born, salary in rows
    ]
    assert len(wanted) == 38
    assert s.rebuilt("people") == sorted(wanted, key=repr)
    notes = source.execute("SELECT id, body, n FROM notes").fetchall()
    assert s.rebuilt("notes") == sorted(
        [(hashed(name), hashed(body), n) for name, body, n in notes], key=repr
    )
    assert len({row[2] for row in wanted}) == 2
    named = source.execute("SELECT ssn FROM people").fetchall()
    assert sorted(r[0] for r in s.rebuilt("people", f"{s.slot}_named")) == sorted(
        hashed(row[0]) for row in named
    )
    assert {r[1] for r in s.rebuilt("people", f"{s.slot}_named")} == {"name"}
    assert s.rebuilt("bag") == [(hashed("bag-secret"), 2)]
    error = s.reader.read(f"{s.slot}.error")[0].value
    assert error is not None
    assert error["key"]["ssn"] == hashed("ssn-secret-0")
    assert error["after"]["mail"] == hashed("mail-secret-1")


@pytest.mark.usefixtures("key_file")
def test_no_error_quotes_a_masked_column_that_is_not_published(
    scene: MakeScene, source: Connection, kafka: str, registry: str
) -> None:
    s = scene(
        "CREATE PUBLICATION p FOR TABLE notes (id, n)"
        "  WHERE (array_length(parse_ident(body), 1) > 0) WITH (publish = 'insert');"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        on_error={"filter": "quarantine"},
    )
    masks_of_notes = {f"{s.slot}.public.notes.body": "hash"}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks_of_notes}}
    row = b"""INSERT INTO notes VALUES (%s, 'life-secret, "a-secret" and b-secret', 1)"""

    source.execute(row, ("1",))
    log = s.run_to(current_lsn(source)).err
    source.execute(row, ("2",))
    log += s.run_to(current_lsn(source)).err

    found = [error.value for error in s.reader.read(f"{s.slot}.error")]
    assert [(e["op"], e["key"]) for e in found if e] == [("r", {"id": "1"}), ("c", {"id": "2"})]
    assert_hidden({"log": log.encode(), **written(kafka, registry, s.slot)})


MOVING_TABLES = """
CREATE TABLE clients (id text PRIMARY KEY, region text);
CREATE TABLE kinds (id int PRIMARY KEY, wanted bool);
CREATE TABLE bills (id text PRIMARY KEY, client text, kind int, note text);
ALTER TABLE clients REPLICA IDENTITY FULL; ALTER TABLE kinds REPLICA IDENTITY FULL;
ALTER TABLE bills REPLICA IDENTITY FULL;
INSERT INTO clients SELECT 'client-secret-' || n, CASE WHEN n % 2 = 0 THEN 'EU' ELSE 'US' END
    FROM generate_series(1, 10) AS n;
INSERT INTO kinds SELECT n, n < 3 FROM generate_series(1, 5) AS n;
INSERT INTO bills SELECT 'bill-secret-' || n, 'client-secret-' || n % 12, n % 7, 'note'
    FROM generate_series(1, 300) AS n;
"""
OF_CLIENTS = "client IN (SELECT id FROM clients WHERE region = 'EU')"
OF_KINDS = "kind IN (SELECT id FROM kinds WHERE wanted)"
MOVING = (
    f"CREATE PUBLICATION p FOR TABLE clients, bills WHERE ({OF_CLIENTS});"
    f"CREATE PUBLICATION q FOR TABLE bills WHERE ({OF_KINDS});"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_kinds CONNECTION '' PUBLICATION q;"
)


@pytest.mark.usefixtures("key_file")
def test_rows_move_by_true_values_and_are_masked_as_ever(
    scene: MakeScene, source: Connection, kafka: str, registry: str
) -> None:
    source.execute(MOVING_TABLES.encode())
    s = scene(MOVING, copy={"rows_per_second": 1000})
    masked = ("clients.id", "bills.id", "bills.client")
    masks = {f"{s.slot}.public.{name}": "hash" for name in masked}
    masks |= {f"{s.slot}_kinds.public.{name}": "hash" for name in masked[1:]}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks}}
    checked = s.cli("check")
    assert checked.code == 0, checked.out
    assert f"public.bills of subscription {s.slot} is copied again whenever" in checked.out
    assert f"public.bills of subscription {s.slot}_kinds is copied" not in checked.out

    def move(first: int) -> None:
        """Rows move, and some of them change meanwhile, their keys and clients too."""
        for n in range(first, first + 4):
            for statement in (
                "UPDATE clients SET region = CASE region WHEN 'EU' THEN 'US' ELSE 'EU' END"
                f" WHERE id LIKE '%-{n}' OR id LIKE '%-{n + 3}'",
                f"UPDATE kinds SET wanted = NOT wanted WHERE id = {n % 5 + 1}",
                f"UPDATE bills SET id = id || '-{n}' WHERE id LIKE '%{n}5'",
                f"UPDATE bills SET client = 'client-secret-{n}', kind = {n} WHERE id LIKE '%{n}2'",
                f"UPDATE bills SET note = 'changed' WHERE id LIKE '%{n}4'",
                f"DELETE FROM bills WHERE id LIKE '%{n}7'",
            ):
                source.execute(statement.encode())

    gateway = s.project.start()
    gateway.wait_until_copied()
    move(1)
    wait_until_confirmed(source, s.slot)
    # Its set, which Kafka does not have, is empty, and the tables are copied in the same stream.
    source.execute(
        b"CREATE TEMP TABLE kept AS TABLE clients; TRUNCATE clients;INSERT INTO clients TABLE kept"
    )
    move(2)
    assert gateway.terminate() == 0, gateway.log()
    log = gateway.log()
    move(3)
    log += s.run_to(current_lsn(source)).err

    for subscription, where in ((s.slot, OF_CLIENTS), (f"{s.slot}_kinds", OF_KINDS)):
        wanted = source.execute(f"SELECT * FROM bills WHERE {where}".encode()).fetchall()
        shown = [(hashed(i), hashed(client), kind, note) for i, client, kind, note in wanted]
        assert 10 < len(shown) < 290
        assert s.rebuilt("bills", subscription) == sorted(shown, key=repr), subscription
        moves = [marker["move"]["state"] for marker in s.markers(subscription) if marker["move"]]
        assert "begun" in moves, subscription
    found = written(kafka, registry, s.slot)
    assert f"{s.slot}.progress" in found
    assert_hidden(found)
    assert_hidden({"log": log.encode(), "status": s.cli("status").out.encode()})
