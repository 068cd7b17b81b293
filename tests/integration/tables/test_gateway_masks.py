"""Masked columns on real servers: no value of them leaves the gateway, in a stream or in a copy."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Connection, Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]

VARIABLE = "PGSLUICE_COLUMNS__HASH_KEY_FILE"

KEY = "a key of the tests, of forty characters."
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE people WHERE (salary / level > 1000), bag, notes;"
    "CREATE PUBLICATION named FOR TABLE people WHERE (abs(length(name)) > 3);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p WITH (binary = %s);"
    "CREATE SUBSCRIPTION {s}_named CONNECTION '' PUBLICATION named WITH (binary = %s);"
)
TABLES = """
CREATE TABLE people (ssn text PRIMARY KEY, name text, mail varchar(80), born date, salary int,
    level int, code char(8));
ALTER TABLE people REPLICA IDENTITY FULL;
CREATE TABLE notes (id text PRIMARY KEY, body text, n int);
ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;
CREATE TABLE bag (secret text, n int);
ALTER TABLE bag REPLICA IDENTITY FULL;
"""
ROW = """
INSERT INTO people SELECT 'ssn-secret-' || n, 'name-secret-' || n, 'mail-secret-' || n % 2,
    '1987-06-05', 543210 + n, 1, 'CD-' || n
FROM generate_series({0}, {1}) AS n;
INSERT INTO notes SELECT 'note-secret-' || n, repeat('life-secret-' || n || ' ', 800), 1
FROM generate_series({0}, {1}) AS n;
"""
SECRETS = (b"-secret", b"CD-", b"1987-06-05")
"""Parts of the masked values; texts, which look alike in every form of a record."""


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
        f"{slot}_named.public.people.code": "null",
    }


def hashed(text: str) -> str:
    """The definition, by Python's own modules."""
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        yield connection


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hash.key"
    path.write_text(f"{KEY}\n")
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def written(kafka: str, registry: str, slot: str) -> dict[str, bytes]:
    """All bytes of all of the gateway's topics, open and aborted transactions too, and schemas."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"all-{slot}",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[str, bytes] = {}
    try:
        topics = consumer.list_topics(timeout=60).topics
        for name in sorted(name for name in topics if name.startswith(slot)):
            places = [TopicPartition(name, p, OFFSET_BEGINNING) for p in topics[name].partitions]
            consumer.assign(places)
            pieces, ended = [], 0
            while ended < len(places):
                message = consumer.poll(60)
                assert message is not None, f"{name} does not end"
                if message.error() is not None:
                    ended += 1
                    continue
                headers: Any = message.headers() or []
                pieces += [message.key() or b"", message.value() or b""]
                pieces += [value or b"" for _, value in headers]
            found[name] = b"\n".join(pieces)
    finally:
        consumer.close()
    client = SchemaRegistryClient({"url": registry})
    for subject in client.get_subjects():
        if subject.startswith(slot):
            schema = client.get_latest_version(subject).schema.schema_str
            found[f"subject {subject}"] = (schema or "").encode()
    return found


def assert_hidden(found: dict[str, bytes]) -> None:
    for name, data in found.items():
        assert [secret for secret in SECRETS if secret in data] == [], name


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
        "INSERT INTO people SELECT 'ssn-secret-0', 'name-secret-0', m, b, 5432109, 0, 'CD-0'"
        " FROM (VALUES ('mail-secret-1', '1987-06-05'::date)) AS v (m, b)",
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
@pytest.mark.parametrize("via_root", ["false", "true"])
def test_masks_stay_with_tables_that_are_renamed_or_detached(
    scene: MakeScene, source: Connection, kafka: str, registry: str, via_root: str
) -> None:
    source.execute(
        b"CREATE TABLE events (id int PRIMARY KEY, mail text) PARTITION BY RANGE (id);"
        b"CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (9);"
        b"CREATE TABLE contacts (id int PRIMARY KEY, mail text);"
    )
    s = scene(
        f"CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = {via_root});"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    )
    named = {f"{s.slot}.public.{table}.mail": "hash" for table in ("events", "contacts")}
    s.project.extra = {**s.project.extra, "columns": {"masks": named}}
    s.run_to(current_lsn(source))

    for n, statements in enumerate(
        (
            "ALTER TABLE events DETACH PARTITION events_1; ALTER TABLE contacts RENAME TO clients;"
            "CREATE TABLE contacts (id int PRIMARY KEY, mail text)",
            "ALTER TABLE events_1 RENAME TO archive; ALTER TABLE clients RENAME TO people_of_old",
        ),
        1,
    ):
        source.execute(statements.encode())
        detached, renamed = ("events_1", "clients") if n == 1 else ("archive", "people_of_old")
        for table in (detached, renamed, "contacts"):
            row = f"INSERT INTO {table} VALUES ({n}, 'mail-secret')"
            source.execute(row.encode())
        s.run_to(current_lsn(source))

        for table in (detached, renamed, "contacts"):
            assert s.rebuilt(table)[-1] == (n, hashed("mail-secret"))

    assert_hidden(written(kafka, registry, s.slot))


@pytest.mark.usefixtures("key_file")
def test_last_rows_of_a_dropped_table_are_hashed_when_the_key_is_gone(
    scene: MakeScene,
    source: Connection,
    kafka: str,
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = scene("CREATE PUBLICATION p FOR ALL TABLES; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    plain = s.project.extra
    masks_of_notes = {f"{s.slot}.public.notes.body": "hash"}
    s.project.extra = {**plain, "columns": {"masks": masks_of_notes}}
    s.run_to(current_lsn(source))

    source.execute(b"INSERT INTO notes VALUES ('1', 'life-secret', 1); DROP TABLE notes")
    s.project.extra = plain
    monkeypatch.delenv(VARIABLE)
    s.run_to(current_lsn(source))

    (row,) = (r.value["after"] for r in s.read("notes") if r.op == "c" and r.value)
    guessable = hmac.new(b"", b"life-secret", hashlib.sha256).hexdigest()
    assert len(row["body"]) == len(guessable)
    assert row["body"] != guessable
    assert_hidden(written(kafka, registry, s.slot))


@pytest.mark.usefixtures("key_file")
def test_no_error_quotes_a_masked_column_that_is_not_published(
    scene: MakeScene, source: Connection, kafka: str, registry: str
) -> None:
    s = scene(
        "CREATE PUBLICATION p FOR TABLE notes (id, n) WHERE (body::int > 0)"
        "  WITH (publish = 'insert'); CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
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


@pytest.mark.usefixtures("key_file")
def test_a_table_is_held_when_another_column_has_the_name_of_a_masked_one(
    scene: MakeScene, source: Connection, kafka: str, registry: str
) -> None:
    s = scene("CREATE PUBLICATION p FOR TABLE notes; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    masks_of_notes = {f"{s.slot}.public.notes.body": "hash"}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks_of_notes}}
    s.run_to(current_lsn(source))

    source.execute(
        b"ALTER TABLE notes RENAME body TO life; ALTER TABLE notes ADD body text;"
        b"INSERT INTO notes VALUES ('1', 'life-secret', 1, 'life-secret')"
    )
    log = s.run_to(current_lsn(source)).err

    assert "has no mask for subscription" in log
    assert_hidden(written(kafka, registry, s.slot))


def test_another_mask_is_another_definition_and_copies_the_table_again(
    scene: MakeScene, source: Connection, key_file: Path
) -> None:
    source.execute(ROW.format(1, 3).encode())
    s = scene("CREATE PUBLICATION p FOR TABLE people; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip

    def run(**columns: str) -> list[tuple[Any, ...]]:
        named = {f"{s.slot}.public.people.{name}": mask for name, mask in columns.items()}
        s.project.extra = {"columns": {"masks": named}}
        s.run_to(current_lsn(source))
        return [row[:2] for row in s.rebuilt("people")]

    plain = run()
    first = run(name="null")
    again = run(name="null")
    begun = sum(record.op == "t" for record in s.read("people"))
    key_file.write_text(f"{KEY[::-1]}\n")
    other = run(name="hash")

    assert plain == [(f"ssn-secret-{n}", f"name-secret-{n}") for n in (1, 2, 3)]
    assert first == again == [(f"ssn-secret-{n}", None) for n in (1, 2, 3)]
    assert begun == 2
    wanted = hmac.new(KEY[::-1].encode(), b"name-secret-1", hashlib.sha256).hexdigest()
    assert other[0] == ("ssn-secret-1", wanted)


@pytest.mark.usefixtures("key_file")
def test_a_hash_of_a_number_that_was_published_needs_another_topic(
    scene: MakeScene, source: Connection
) -> None:
    source.execute(b"INSERT INTO notes VALUES ('1', 'x', 543210)")
    s = scene("CREATE PUBLICATION p FOR TABLE notes; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    plain, table = s.project.extra, f"{s.slot}.public.notes"
    s.run_to(current_lsn(source))

    s.project.extra = {**plain, "columns": {"masks": {f"{table}.n": "hash"}}}
    refused = s.cli("run", "--endpos", current_lsn(source))
    s.project.extra = {**s.project.extra, "topics": {"names": {table: f"{s.slot}.hashed"}}}
    s.run_to(current_lsn(source))

    assert refused.code == 1
    assert f"refuses the schema of subject {s.topic('notes')}-value" in refused.err
    assert "[topics] names" in refused.err
    (row,) = (r.value for r in s.reader.read(f"{s.slot}.hashed") if r.op == "r")
    assert row is not None
    assert row["after"]["n"] == hashed("543210")


@pytest.mark.usefixtures("key_file")
def test_a_column_that_is_added_with_its_mask_is_never_published_without(
    scene: MakeScene, source: Connection, kafka: str, registry: str
) -> None:
    s = scene("CREATE PUBLICATION p FOR TABLE notes; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    plain = s.project.extra
    s.run_to(current_lsn(source))

    source.execute(
        b"ALTER TABLE notes ADD phone text DEFAULT 'phone-secret-1';"
        b"INSERT INTO notes VALUES ('1', 'x', 1, 'phone-secret-2')"
    )
    s.project.extra = {**plain, "columns": {"masks": {f"{s.slot}.public.notes.phone": "hash"}}}
    s.run_to(current_lsn(source))

    assert s.rebuilt("notes") == [("1", "x", 1, hashed("phone-secret-2"))]
    assert_hidden(written(kafka, registry, s.slot))


@pytest.mark.usefixtures("source")
def test_reload_and_status_say_that_masks_need_a_restart(scene: MakeScene) -> None:
    s = scene("CREATE PUBLICATION p FOR TABLE notes; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    gateway = s.project.start()
    gateway.wait_until_copied()
    s.project.extra = {"columns": {"masks": {f"{s.slot}.public.notes.n": "null"}}}

    ended, status = s.cli("reload"), s.cli("status")
    assert gateway.terminate() == 0

    assert ended.code == 1
    assert "columns.masks: differ from those in force" in ended.err
    assert "restart the gateway" in ended.err
    assert "a restart if the masks of [columns] differ" in status.out


@pytest.mark.usefixtures("source", "key_file")
def test_status_needs_no_key_to_compare_the_file(
    scene: MakeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("CREATE PUBLICATION p FOR TABLE notes; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    s.project.extra = {"columns": {"masks": {f"{s.slot}.public.notes.body": "hash"}}}
    s.run_to("0/1")
    monkeypatch.delenv(VARIABLE)

    same = s.cli("status")
    s.project.definitions = s.project.definitions.replace("TABLE notes", "TABLE notes, bag")
    other = s.cli("status")

    assert "the definitions file differs" not in same.out
    assert "the definitions file differs" in other.out


@pytest.mark.usefixtures("key_file")
def test_check_and_explain_show_masks_and_refuse_what_cannot_be(
    scene: MakeScene, source: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute(ROW.format(1, 1).encode())
    s = scene("CREATE PUBLICATION p FOR TABLE people; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    name = f"{s.slot}.public.people"

    s.project.extra = {"columns": {"masks": {f"{name}.ssn": "hash", f"{name}.code": "truncate(2)"}}}
    checked = s.cli("check")
    explained = s.cli("explain", "people", "ssn-secret-1")
    monkeypatch.delenv(VARIABLE)
    without_key = s.cli("check")
    s.project.extra = {"columns": {"masks": {f"{name}.ssn": "null"}}}
    refused = s.cli("run", "--endpos", "0/1")

    shown = (
        f"table public.people of subscription {s.slot}: masked are ssn (hash), code (truncate(2))"
    )
    assert shown in checked.out
    assert KEY not in checked.out + checked.err + json.dumps(explained.out)
    assert "masked: ssn (hash), code (truncate(2))" in explained.out
    assert without_key.code == 1
    assert "columns.hash_key: is required by the mask of" in without_key.out
    assert refused.code == 1
    assert 'cannot mask column "ssn" of table "public.people" by null' in refused.err
    assert "mask it by hash" in refused.err
