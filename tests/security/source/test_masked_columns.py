"""Owners of tables, and roles that may log in, do not get the gateway to show a masked value.

Every byte that leaves the gateway is searched: topics, schemas, its log, pages and commands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.integration.monitor.test_gateway_monitor import Monitored
from tests.support.backends.servers import Database
from tests.support.gateway.masked_scene import hashed, key_file, written
from tests.support.gateway.scene import (
    Scene,
    current_lsn,
    wait_for_copy_marker,
    wait_until_confirmed,
)

__all__ = ["key_file"]

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]

ALTERED: Final = {
    "swapped": """
        BEGIN; ALTER TABLE {t} RENAME secret TO x; ALTER TABLE {t} RENAME note TO secret;
        ALTER TABLE {t} RENAME x TO note; INSERT INTO {t} (id, note) VALUES (2, 'a-secret');
        ALTER TABLE {t} RENAME note TO x; ALTER TABLE {t} RENAME secret TO note;
        ALTER TABLE {t} RENAME x TO secret; COMMIT""",
    "away": """
        BEGIN; ALTER TABLE {t} RENAME secret TO x; ALTER TABLE {t} RENAME note TO secret;
        INSERT INTO {t} (id, x) VALUES (2, 'a-secret'); ALTER TABLE {t} RENAME secret TO note;
        ALTER TABLE {t} RENAME x TO secret; COMMIT""",
    "added": """
        ALTER TABLE {t} DROP secret; ALTER TABLE {t} ADD secret text DEFAULT 'default-secret';
        INSERT INTO {t} (id) VALUES (2)""",
    "lost": """
        ALTER TABLE {t} RENAME secret TO note_2;
        INSERT INTO {t} (id, note_2) VALUES (2, 'a-secret');
        DROP TABLE {t}""",
    "paired": """
        CREATE TYPE pair AS (a text, b int);
        ALTER TABLE {t} ALTER secret TYPE pair USING ROW(secret, 1)::pair;
        INSERT INTO {t} (id, secret) VALUES (2, ROW('a-secret', 2))""",
    "listed": """
        ALTER TABLE {t} ALTER secret TYPE text[] USING ARRAY[secret];
        INSERT INTO {t} (id, secret) VALUES (2, '{{a-secret,b-secret}}')""",
    "limited": """
        CREATE DOMAIN short AS text CONSTRAINT short_enough CHECK (length(value) < 99);
        ALTER TABLE {t} ALTER secret TYPE short;
        INSERT INTO {t} (id, secret) VALUES (2, 'a-secret')""",
    "labelled": """
        CREATE TYPE mood AS ENUM ('a-secret', 'b-secret'); UPDATE {t} SET secret = 'b-secret';
        ALTER TABLE {t} ALTER secret TYPE mood USING secret::mood;
        INSERT INTO {t} (id, secret) VALUES (2, 'a-secret')""",
    "keyed": """
        ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD PRIMARY KEY (secret);
        INSERT INTO {t} (id, secret) VALUES (2, 'a-secret');
        UPDATE {t} SET secret = 'b-secret' WHERE id = 2; DELETE FROM {t} WHERE id = 1""",
    "whole": """
        ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} REPLICA IDENTITY FULL;
        INSERT INTO {t} (id, secret) VALUES (2, 'a-secret');
        UPDATE {t} SET secret = 'b-secret' WHERE id = 2; DELETE FROM {t} WHERE id = 1""",
    "moved": """
        CREATE SCHEMA elsewhere; ALTER TABLE {t} SET SCHEMA elsewhere;
        INSERT INTO elsewhere.{t} (id, secret) VALUES (2, 'a-secret')""",
    "renamed": """
        ALTER TABLE {t} RENAME TO {t}_of_old; CREATE TABLE {t} (LIKE {t}_of_old INCLUDING ALL);
        INSERT INTO {t} (id, secret) VALUES (2, 'a-secret');
        INSERT INTO {t}_of_old (id, secret) VALUES (2, 'a-secret')""",
    "attached": """
        ALTER TABLE tree ATTACH PARTITION {t} FOR VALUES FROM (1) TO (9);
        INSERT INTO tree (id, secret) VALUES (2, 'a-secret')""",
    "child": """
        ALTER TABLE {t} NO INHERIT above; ALTER TABLE {t} RENAME TO {t}_alone;
        INSERT INTO {t}_alone (id, secret) VALUES (2, 'a-secret')""",
    "emptied": """
        TRUNCATE {t}; INSERT INTO {t} (id, secret) VALUES (1, 'a-secret')
        ON CONFLICT (id) DO UPDATE SET secret = 'b-secret';
        INSERT INTO {t} (id, secret) VALUES (1, 'a-secret')
        ON CONFLICT (id) DO UPDATE SET secret = excluded.secret || 'b-secret'""",
}
"""Alterations by the owner of a masked table, by the table's name."""


@pytest.mark.slow
@pytest.mark.usefixtures("key_file")
@pytest.mark.parametrize("via_root", ["false", "true"])
@pytest.mark.parametrize("how", ["running", "down", "by message"])
def test_no_altered_table_shows_a_masked_value(
    scene: MakeScene, database: Database, kafka: str, registry: str, via_root: str, how: str
) -> None:
    running, binary = how != "down", via_root
    s = scene(
        f"CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = {via_root});"
        f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p WITH (binary = {binary});",
        definitions={"watch_interval_s": 0.5},
        http={"listen": "127.0.0.1:0"},
        on_error=dict.fromkeys(("filter", "value", "size", "schema"), "quarantine"),
    )
    masks = {f"{s.slot}.public.{t}.secret": "hash" for t in ALTERED if t != "child"}
    masks[f"{s.slot}.public.above.secret"] = "hash"
    s.project.extra = {**s.project.extra, "columns": {"masks": masks}}
    with database.connect() as connection:
        if how == "by message":
            connection.execute(INSTALL.encode())
        columns = "(id int PRIMARY KEY, note text, secret text)"
        connection.execute(f"CREATE TABLE above {columns}".encode())
        connection.execute(f"CREATE TABLE tree {columns} PARTITION BY RANGE (id)".encode())
        for name in ALTERED:
            of = " INHERITS (above)" if name == "child" else ""
            connection.execute(f"CREATE TABLE {name} {columns}{of}".encode())
            connection.execute(f"INSERT INTO {name} VALUES (1, '', 'copied-secret')".encode())
        pages: dict[str, bytes] = {}
        log = ""
        if running:
            gateway = Monitored(s.project.start("--verbose"))
            gateway.process.wait_until_copied()
        else:
            log = s.run_to(current_lsn(connection)).err
        for name, statements in ALTERED.items():
            connection.execute(statements.format(t=name).encode())
        connection.execute("CREATE TABLE last (id int PRIMARY KEY); INSERT INTO last VALUES (1)")
        if running:
            wait_for_copy_marker(s, "last", "ready")
            wait_until_confirmed(connection, s.slot)
            for path in ("/", "/status", "/metrics"):
                pages[path] = gateway.get(path)[1].encode()
            assert gateway.process.terminate() == 0, gateway.process.log()
            log = gateway.process.log()
        log += s.run_to(current_lsn(connection)).err

    for command in (("status",), ("check",), ("tail", s.slot, "--from-beginning", "--no-follow")):
        shown = s.cli(*command)
        pages[command[0]] = (shown.out + shown.err).encode()
    found = {**written(kafka, registry, s.slot), **pages, "log": log.encode()}
    assert [name for name, data in found.items() if b"-secret" in data] == []
    assert {row[-1] for row in s.rebuilt("renamed_of_old")} == {
        hashed("copied-secret"),
        hashed("a-secret"),
    }
    assert s.rebuilt("emptied") == [(1, None, hashed("a-secretb-secret"))]


@pytest.mark.slow
@pytest.mark.usefixtures("key_file")
@pytest.mark.parametrize("by_message", [False, True], ids=["", "by message"])
def test_no_altered_publication_shows_a_masked_value(
    scene: MakeScene, database: Database, kafka: str, registry: str, by_message: bool
) -> None:
    s = scene(
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION whole;",
        definitions={"watch_interval_s": 0.5},
        on_error={"filter": "quarantine"},
    )
    masks = {f"{s.slot}.public.{t}.secret": "hash" for t in ("leaf", "t")}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks}}
    columns = "(id int PRIMARY KEY, secret text)"
    with database.connect() as connection:
        if by_message:
            connection.execute(INSTALL.encode())
        connection.execute(
            f"CREATE TABLE tree {columns} PARTITION BY RANGE (id); CREATE TABLE t {columns};"
            "CREATE TABLE leaf PARTITION OF tree FOR VALUES FROM (1) TO (99);"
            "ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 'copied-secret');"
            "INSERT INTO tree VALUES (1, 'copied-secret');"
            "CREATE PUBLICATION whole FOR TABLE tree, t (id)".encode()
        )
        gateway = s.project.start("--verbose")
        gateway.wait_until_copied()
        for n, alteration in enumerate(
            (
                "SET (publish_via_partition_root = true)",
                "SET TABLE tree, t",
                "SET TABLE tree, t WHERE (array_length(parse_ident(secret), 1) > 0)",
                "SET TABLE tree, t (id, secret)",
                "SET (publish_via_partition_root = false)",
                "SET TABLE leaf, t",
            ),
            2,
        ):
            connection.execute(f"ALTER PUBLICATION whole {alteration}".encode())
            for table in ("t", "tree"):
                connection.execute(f"INSERT INTO {table} VALUES ({n}, 'a-secret')".encode())
            wait_until_confirmed(connection, s.slot)
        assert gateway.terminate() == 0, gateway.log()
        log = gateway.log() + s.run_to(current_lsn(connection)).err

    found = {**written(kafka, registry, s.slot), "log": log.encode()}
    assert [name for name, data in found.items() if b"-secret" in data] == []
    assert (7, hashed("a-secret")) in s.rebuilt("leaf")
