"""Capture the golden bytes again: ``python -m tests.golden.capture [MAJOR ...]``.

Starts real servers (16 and 18), plays each case in a database of its own, and writes what pgoutput
made of it to ``tests/golden/<major>/<case>.hex``, with the SQL in its head, and what must be in it
to ``<case>.json``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from devkit.embedded.postgres import EmbeddedPostgres
from tests.golden.capture_streams import STREAM_CASES
from tests.golden.scene import SETTINGS, Scene, old

T1: Final = "CREATE TABLE t1 (a int PRIMARY KEY, b text)"
UNCHANGED: Final = {"unchanged": True}
LONG: Final = "x" * 2500  # stored out of line, uncompressed


def rows(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "rows", {"proto_version": "1"})
    scene.setup(
        "CREATE TYPE mood AS ENUM ('ok', 'sad')",
        "CREATE TABLE t1 (a int PRIMARY KEY, b varchar(9), c mood, d text, e numeric(9,2))",
        "ALTER TABLE t1 ALTER d SET STORAGE EXTERNAL",
    )
    mood = int(scene.value("SELECT 'mood'::regtype::oid"))
    first = ["1", "one", "ok", LONG, "1.50"]
    scene.transaction(
        "INSERT INTO t1 VALUES (1, 'one', 'ok', repeat('x', 2500), 1.5)",
        "UPDATE t1 SET b = 'zwölf' WHERE a = 1",
        "UPDATE t1 SET a = 2, b = NULL WHERE a = 1",
        "DELETE FROM t1",
        inside=[
            ("Type", {"type_oid": mood, "namespace": "public", "name": "mood"}),
            scene.relation("t1", xid=None),
            scene.row("Insert", "t1", new=first, xid=None),
            scene.row("Update", "t1", old=None, new=["1", "zwölf", "ok", UNCHANGED, "1.50"]),
            scene.row(
                "Update",
                "t1",
                old=old("K", "1", None, None, None, None),
                new=["2", None, "ok", UNCHANGED, "1.50"],
            ),
            scene.row("Delete", "t1", old=old("K", "2", None, None, None, None)),
        ],
    )
    return scene


def full_identity(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "full-identity", {"proto_version": "1"})
    scene.setup("CREATE TABLE t1 (a int, b text)", "ALTER TABLE t1 REPLICA IDENTITY FULL")
    scene.transaction(
        "INSERT INTO t1 VALUES (1, '')",
        "UPDATE t1 SET b = NULL",
        "DELETE FROM t1",
        inside=[
            scene.relation("t1"),
            scene.row("Insert", "t1", new=["1", ""]),
            scene.row("Update", "t1", old=old("O", "1", ""), new=["1", None]),
            scene.row("Delete", "t1", old=old("O", "1", None)),
        ],
    )
    return scene


def other_identities(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "other-identities", {"proto_version": "1"})
    scene.setup(
        "CREATE TABLE t1 (a int NOT NULL, b text)",
        "CREATE UNIQUE INDEX i ON t1 (a)",
        "ALTER TABLE t1 REPLICA IDENTITY USING INDEX i",
        "CREATE TABLE t2 (a int)",
        "ALTER TABLE t2 REPLICA IDENTITY NOTHING",
    )
    scene.transaction(
        "INSERT INTO t1 VALUES (-1, 'b')",
        "INSERT INTO t2 VALUES (NULL)",
        inside=[
            scene.relation("t1"),
            scene.row("Insert", "t1", new=["-1", "b"]),
            scene.relation("t2"),
            scene.row("Insert", "t2", new=[None]),
        ],
    )
    return scene


def truncate(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "truncate", {"proto_version": "1"})
    scene.setup(T1, "CREATE TABLE t2 (a serial)")
    t1, t2 = scene.oid("t1"), scene.oid("t2")

    def expected(oids: list[int], *, cascade: bool, restart: bool) -> tuple[str, dict[str, Any]]:
        facts = {"relation_oids": oids, "cascade": cascade, "restart_identity": restart}
        return "Truncate", facts

    scene.transaction(
        "TRUNCATE t1",
        "TRUNCATE t2 RESTART IDENTITY",
        "TRUNCATE t1, t2 RESTART IDENTITY CASCADE",
        inside=[
            scene.relation("t1"),
            expected([t1], cascade=False, restart=False),
            scene.relation("t2"),
            expected([t2], cascade=False, restart=True),
            scene.relation("t1"),  # again: TRUNCATE has changed its storage
            expected([t1, t2], cascade=True, restart=True),
        ],
    )
    return scene


def messages(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "messages", {"proto_version": "1", "messages": "true"})
    scene.setup()
    emit = "SELECT pg_logical_emit_message({}, '{}', {})"
    scene.sql(emit.format("false", "now", "'\\x00ff'::bytea"))
    scene.expect("LogicalMessage", transactional=False, prefix="now", content={"hex": "00ff"})
    inside = {"transactional": True, "prefix": "präfix", "content": {"hex": "68692e"}, "xid": None}
    scene.transaction(
        emit.format("true", "präfix", "'hi.'::text"),
        inside=[("LogicalMessage", inside)],
    )
    return scene


def origin(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "origin", {"proto_version": "1"})
    scene.setup(T1)
    name = f"node_{server.major}"
    scene.sql(
        f"SELECT pg_replication_origin_create('{name}')",
        f"SELECT pg_replication_origin_session_setup('{name}')",
    )
    xid = scene.begin()
    scene.sql(
        "SELECT pg_replication_origin_xact_setup('1/23456789', '2024-02-29 12:00:00.000001Z')"
    )
    scene.sql("INSERT INTO t1 VALUES (1, 'far')")
    commit = scene.ends("COMMIT", xid)
    scene.sql(
        "SELECT pg_replication_origin_session_reset()",
        f"SELECT pg_replication_origin_drop('{name}')",
    )
    # 2024-02-29 12:00:00.000001 is 8825 days and 43200.000001 seconds after 2000-01-01.
    assert commit["commit_time"] == (8825 * 86400 + 43200) * 10**6 + 1
    scene.expect("Begin", xid=xid, final_lsn=commit["commit_lsn"])
    scene.expect("Origin", origin_lsn=0x123456789, name=name)
    scene.expected += [scene.relation("t1"), scene.row("Insert", "t1", new=["1", "far"])]
    scene.expect("Commit", **commit)
    return scene


def binary(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "binary", {"proto_version": "1", "binary": "true"})
    scene.setup(
        "CREATE TABLE t1 (a int PRIMARY KEY, b text, c numeric, d aclitem, e text)",
        "ALTER TABLE t1 ALTER e SET STORAGE EXTERNAL",
    )
    acl = "postgres=r/postgres"  # aclitem has no binary form and comes as text
    sent = "SELECT encode({}, 'hex')"
    one, two = ({"binary": scene.value(sent.format(f"int4send({n})"))} for n in (1, 2))
    ten = {"binary": scene.value(sent.format("numeric_send(10.25)"))}
    text, long = ({"binary": t.encode().hex()} for t in ("ä", LONG))
    scene.transaction(
        f"INSERT INTO t1 VALUES (1, 'ä', 10.25, '{acl}', repeat('x', 2500))",
        "UPDATE t1 SET a = 2, b = NULL",
        inside=[
            scene.relation("t1"),
            scene.row("Insert", "t1", new=[one, text, ten, acl, long]),
            scene.row(
                "Update",
                "t1",
                old={"kind": "K", "columns": [one, None, None, None, None]},
                new=[two, None, ten, acl, UNCHANGED],
            ),
        ],
    )
    return scene


CASES: Final[list[Callable[[EmbeddedPostgres], Scene]]] = [
    rows,
    full_identity,
    other_identities,
    truncate,
    messages,
    origin,
    binary,
]


def capture(major: int, folder: Path) -> None:
    """Write all cases of one server."""
    server = EmbeddedPostgres(major, config=SETTINGS).start()
    try:
        for case in [*CASES, *STREAM_CASES]:
            scene = case(server)
            scene.write(folder / str(major))
            scene.close()
    finally:
        server.stop()


if __name__ == "__main__":
    for chosen in map(int, sys.argv[1:] or ("16", "18")):
        capture(chosen, Path(__file__).parent)
