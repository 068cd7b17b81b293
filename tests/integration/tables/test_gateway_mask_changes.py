"""Changes of masks, and of the tables and columns that have them, on real servers."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.definitions.model import Plan
from gateway.envelope.progress import decode_key
from gateway.runtime.planning import setup
from gateway.runtime.planning.plan import read_plan
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.own_topics.compacted_topic import read_compacted
from gateway.sink.reading.decoding import unframed
from tests.support.gateway.masked_scene import (
    KEY,
    ROW,
    VARIABLE,
    assert_hidden,
    hashed,
    key_file,
    source,
    written,
)
from tests.support.gateway.scene import Connection, Scene, current_lsn
from tests.support.gateway.sink_scene import leave_open
from tests.support.run.waiting import wait_until

__all__ = ["key_file", "source"]

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]


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
def test_a_masked_table_that_becomes_a_partition_brings_its_mask_to_the_root(
    scene: MakeScene, source: Connection, kafka: str, registry: str
) -> None:
    source.execute(
        b"CREATE TABLE events (id int PRIMARY KEY, mail text) PARTITION BY RANGE (id);"
        b"CREATE TABLE events_9 PARTITION OF events FOR VALUES FROM (9) TO (99);"
        b"CREATE TABLE contacts (id int PRIMARY KEY, mail text);"
        b"INSERT INTO contacts VALUES (1, 'mail-secret'); INSERT INTO events VALUES (9, 'x')"
    )
    s = scene("CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = true);"
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
              definitions={"watch_interval_s": 0.5})  # fmt: skip
    named = f"{s.slot}.public.contacts.mail"
    s.project.extra = {**s.project.extra, "columns": {"masks": {named: "hash"}}}
    gateway = s.project.start()
    gateway.wait_until_copied()

    source.execute(
        b"ALTER TABLE events ATTACH PARTITION contacts FOR VALUES FROM (1) TO (9);"
        b"INSERT INTO events VALUES (2, 'mail-secret')"
    )
    wanted = [(1, hashed("mail-secret")), (2, hashed("mail-secret")), (9, hashed("x"))]
    wait_until(lambda: s.rebuilt("events") == wanted, 60, "the tree with the mask")
    assert gateway.terminate() == 0

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
def test_a_gateway_with_masks_that_was_killed_in_a_commit_starts_again_at_once(
    scene: MakeScene, source: Connection, kafka: str
) -> None:
    s = scene(
        "CREATE PUBLICATION p FOR TABLE notes;CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        limits={"retry_for_s": 60},
    )
    masks_of_notes = {f"{s.slot}.public.notes.body": "hash"}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks_of_notes}}
    s.run_to(current_lsn(source))
    topic, broker = f"{s.slot}.progress", {"bootstrap.servers": kafka}
    [data, *_] = (data for data, _ in read_compacted(broker, topic, 60))
    key = decode_key(unframed(data)[1])
    identity = SlotIdentity(key.system_identifier, key.database, key.slot)
    leave_open(broker, identity, topic, data)

    source.execute("INSERT INTO notes VALUES ('1', 'life-secret', 1)")
    s.run_to(current_lsn(source))

    assert s.rebuilt("notes") == [("1", hashed("life-secret"), 1)]


@pytest.mark.usefixtures("key_file")
def test_a_masked_table_that_its_owner_drops_stops_no_start(
    scene: MakeScene, source: Connection
) -> None:
    s = scene(
        "CREATE PUBLICATION p FOR ALL TABLES; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        definitions={"watch_interval_s": 0.5},
    )
    named = f"{s.slot}.public.notes.body"
    s.project.extra = {**s.project.extra, "columns": {"masks": {named: "hash"}}}
    gateway = s.project.start()
    gateway.wait_until_copied()

    def is_gone() -> bool:
        copies = (m["copy"] for m in s.markers() if m["kind"] == "COPY")
        return "gone" in {c["state"] for c in copies if c["table"] == "notes"}

    source.execute(b"DROP TABLE notes")
    wait_until(is_gone, 60, "the end of a dropped table")
    source.execute(b"CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1)")
    wait_until(lambda: s.reader.has(s.topic("late")), 60, "the topic of a new table")
    assert gateway.terminate() == 0
    source.execute(b"INSERT INTO bag VALUES ('x', 1); INSERT INTO late VALUES (2)")
    s.run_to(current_lsn(source))
    assert s.rebuilt("bag") == [("x", 1)]
    assert s.rebuilt("late") == [(1,), (2,)]
    checked = s.cli("check")
    other = {named: "hash", f"{s.slot}.public.bag.secret": "hash"}
    s.project.extra = {**s.project.extra, "columns": {"masks": other}}
    refused = s.cli("run", "--endpos", current_lsn(source))

    warning = f"the mask of {named} is for a table that its subscription does not have"
    assert warning in checked.out
    assert checked.code == 0, checked.out
    assert refused.code == 1
    assert warning in refused.err


@pytest.mark.usefixtures("key_file")
@pytest.mark.parametrize("tables", ["TABLE notes", "ALL TABLES"])
def test_tables_that_inherit_from_a_masked_table_are_masked(
    scene: MakeScene, source: Connection, kafka: str, registry: str, tables: str
) -> None:
    s = scene(f"CREATE PUBLICATION p FOR {tables} WITH (publish = 'insert'); "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    masks_of_notes = {f"{s.slot}.public.notes.body": "hash"}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks_of_notes}}
    s.run_to(current_lsn(source))

    source.execute(
        b"CREATE TABLE lives () INHERITS (notes); CREATE TABLE long_lives () INHERITS (lives);"
        b"INSERT INTO lives VALUES ('1', 'life-secret', 1)"
    )
    s.run_to(current_lsn(source))
    source.execute(
        b"INSERT INTO long_lives VALUES ('2', 'life-secret', 2);"
        b"ALTER TABLE lives NO INHERIT notes; INSERT INTO lives VALUES ('3', 'life-secret', 3)"
    )
    s.run_to(current_lsn(source))

    rows = [record.value["after"] for record in s.read("lives") if record.value]
    assert {row["body"] for row in rows if row} == {hashed("life-secret")}
    rows = [record.value["after"] for record in s.read("long_lives") if record.value]
    assert {row["body"] for row in rows if row} == {hashed("life-secret")}
    assert_hidden(written(kafka, registry, s.slot))


@pytest.mark.usefixtures("key_file")
@pytest.mark.parametrize(
    ("under", "running"), [("partition", True), ("partition", False), ("child", True)]
)
def test_a_table_that_comes_under_a_masked_one_is_copied_with_the_mask(
    scene: MakeScene, source: Connection, kafka: str, registry: str, under: str, running: bool
) -> None:
    above, moved = {
        "partition": (
            "CREATE TABLE events (id int NOT NULL, mail text) PARTITION BY RANGE (id)",
            "ALTER TABLE events ATTACH PARTITION late FOR VALUES FROM (1) TO (9)",
        ),
        "child": (
            "CREATE TABLE events (id int NOT NULL, mail text)",
            "ALTER TABLE late INHERIT events",
        ),
    }[under]
    source.execute(
        f"{above}; CREATE TABLE late (id int PRIMARY KEY, mail text);"
        "INSERT INTO late VALUES (1, 'early')".encode()
    )
    s = scene(
        "CREATE PUBLICATION p FOR ALL TABLES; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        definitions={"watch_interval_s": 0.5},
    )
    masks_of_events = {f"{s.slot}.public.events.mail": "hash"}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks_of_events}}
    if running:
        gateway = s.project.start()
        gateway.wait_until_copied()
    else:
        s.run_to(current_lsn(source))
    clear = s.rebuilt("late")

    source.execute(f"{moved}; INSERT INTO late VALUES (2, 'mail-secret')".encode())
    wanted = [(1, hashed("early")), (2, hashed("mail-secret"))]
    if running:
        wait_until(lambda: s.rebuilt("late") == wanted, 60, "the table under its new mask")
        assert gateway.terminate() == 0
    else:
        s.run_to(current_lsn(source))

    assert clear == [(1, "early")]
    assert s.rebuilt("late") == wanted
    assert_hidden(written(kafka, registry, s.slot))


@pytest.mark.usefixtures("key_file")
def test_a_table_that_is_not_published_has_masks_for_those_that_inherit_from_it(
    scene: MakeScene, source: Connection, kafka: str, registry: str
) -> None:
    source.execute(
        b"CREATE UNLOGGED TABLE drafts (id int NOT NULL, body text);"
        b"CREATE TABLE letters (id int PRIMARY KEY, body text, note text) INHERITS (drafts);"
        b"CREATE TABLE cards (id int PRIMARY KEY, body text); INSERT INTO cards VALUES (1, 'early')"
    )
    s = scene(
        "CREATE PUBLICATION p FOR TABLE letters, cards;"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        definitions={"watch_interval_s": 0.5},
    )
    named = {"drafts.body": "hash", "letters.note": "null"}
    columns = {"masks": {f"{s.slot}.public.{name}": mask for name, mask in named.items()}}
    s.project.extra = {**s.project.extra, "columns": columns}
    gateway = s.project.start()
    gateway.wait_until_copied()

    source.execute(
        b"INSERT INTO letters VALUES (1, 'life-secret', 'life-secret');"
        b"ALTER TABLE cards INHERIT drafts; INSERT INTO cards VALUES (2, 'life-secret')"
    )
    wanted = [(1, hashed("early")), (2, hashed("life-secret"))]
    wait_until(lambda: s.rebuilt("cards") == wanted, 60, "the copy with the mask")
    assert gateway.terminate() == 0

    assert s.rebuilt("letters") == [(1, hashed("life-secret"), None)]
    assert_hidden(written(kafka, registry, s.slot))


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
def test_the_plan_of_masked_tables_is_read_once(
    scene: MakeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene("CREATE PUBLICATION p FOR TABLE notes; "
              "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;")  # fmt: skip
    s.project.extra = {"columns": {"masks": {f"{s.slot}.public.notes.body": "hash"}}}
    read: list[None] = []

    def counted(*arguments: Any, **options: Any) -> Plan:
        read.append(None)
        return read_plan(*arguments, **options)

    monkeypatch.setattr(setup, "read_plan", counted)
    s.run_to("0/1")

    assert len(read) == 1


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
