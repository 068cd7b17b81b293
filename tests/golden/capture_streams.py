"""The golden cases of protocol 2 to 4: streamed and prepared transactions.

``debug_logical_replication_streaming = immediate`` makes the server stream every change at once, so
that the files stay short; one case streams for want of memory, as in production. Blocks that the
server leaves empty (changes of the catalog) are not mentioned in the expectations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from devkit.embedded.postgres import EmbeddedPostgres
from tests.golden.scene import Scene, old

T1: Final = "CREATE TABLE t1 (a int PRIMARY KEY, b text)"
AT_ONCE: Final = "SET debug_logical_replication_streaming = immediate"


class _Blocks:
    """Expects stream blocks of one transaction."""

    def __init__(self, scene: Scene, xid: int) -> None:
        self._scene = scene
        self._xid = xid
        self._first = True

    def expect(self, *inside: tuple[str, dict[str, Any]]) -> None:
        self._scene.expect("StreamStart", xid=self._xid, first_segment=self._first)
        self._scene.expected += inside
        self._scene.expect("StreamStop")
        self._first = False


def _streamed(server: EmbeddedPostgres, name: str, **options: str) -> Scene:
    scene = Scene(server, name, options, two_phase=int(options["proto_version"]) == 3)
    scene.setup("CREATE TYPE mood AS ENUM ('ok', 'sad')", T1, "CREATE TABLE t2 (m mood)")
    scene.sql(AT_ONCE)
    return scene


def stream(server: EmbeddedPostgres) -> Scene:
    scene = _streamed(server, "stream", proto_version="2", streaming="on", messages="true")
    mood = int(scene.value("SELECT 'mood'::regtype::oid"))
    xid = scene.begin()
    scene.sql(
        "INSERT INTO t1 VALUES (1, 'one')",
        "UPDATE t1 SET a = 2",
        "DELETE FROM t1",
        "INSERT INTO t2 VALUES ('sad')",
        "TRUNCATE t1",
        "SELECT pg_logical_emit_message(true, 'p', 'm')",
    )
    commit = scene.ends("COMMIT", xid)
    blocks = _Blocks(scene, xid)
    blocks.expect(
        scene.relation("t1", xid=xid), scene.row("Insert", "t1", new=["1", "one"], xid=xid)
    )
    blocks.expect(
        scene.row("Update", "t1", old=old("K", "1", None), new=["2", "one"], xid=xid),
    )
    blocks.expect(scene.row("Delete", "t1", old=old("K", "2", None), xid=xid))
    blocks.expect(
        ("Type", {"type_oid": mood, "name": "mood", "xid": xid}),
        scene.relation("t2", xid=xid),
        scene.row("Insert", "t2", new=["sad"], xid=xid),
    )
    # TRUNCATE changes the relation's storage, which makes the server announce it again.
    blocks.expect(
        scene.relation("t1", xid=xid),
        ("Truncate", {"relation_oids": [scene.oid("t1")], "xid": xid}),
    )
    blocks.expect(("LogicalMessage", {"prefix": "p", "transactional": True, "xid": xid}))
    scene.expect("StreamCommit", xid=xid, **commit)
    return scene


def _aborts(scene: Scene, **abort_facts: Any) -> Scene:
    """A subtransaction that is rolled back, then a whole transaction."""
    relation = scene.relation("t1")
    xid = scene.begin()
    scene.sql("INSERT INTO t1 VALUES (1, 'kept')", "SAVEPOINT s", "INSERT INTO t1 VALUES (2, 'no')")
    subxid = int(scene.value("SELECT xmin::text FROM t1 WHERE a = 2"))
    scene.sql("ROLLBACK TO s", "INSERT INTO t1 VALUES (3, 'kept')")
    other = int(scene.value("SELECT xmin::text FROM t1 WHERE a = 3"))
    commit = scene.ends("COMMIT", xid)
    first = _Blocks(scene, xid)
    first.expect(relation, scene.row("Insert", "t1", new=["1", "kept"], xid=xid))
    first.expect(scene.row("Insert", "t1", new=["2", "no"], xid=subxid))
    scene.expect("StreamAbort", xid=xid, subxid=subxid, **abort_facts)
    first.expect(relation, scene.row("Insert", "t1", new=["3", "kept"], xid=other))
    scene.expect("StreamCommit", xid=xid, **commit)

    gone = scene.begin()
    # The checkpoint flushes the WAL of the rollback, so that it is decoded at all.
    scene.sql("INSERT INTO t1 VALUES (4, 'no')", "ROLLBACK", "CHECKPOINT")
    second = _Blocks(scene, gone)
    second.expect(relation, scene.row("Insert", "t1", new=["4", "no"], xid=gone))
    scene.expect("StreamAbort", xid=gone, subxid=gone, **abort_facts)
    return scene


def stream_abort(server: EmbeddedPostgres) -> Scene:
    return _aborts(_streamed(server, "stream-abort", proto_version="2", streaming="on"))


def stream_abort_version_4(server: EmbeddedPostgres) -> Scene:
    scene = _streamed(server, "stream-abort-version-4", proto_version="4", streaming="on")
    return _aborts(scene, abort_lsn=None, abort_time=None)


def stream_abort_parallel(server: EmbeddedPostgres) -> Scene:
    scene = _streamed(server, "stream-abort-parallel", proto_version="4", streaming="parallel")
    anywhere = {"between": [1, 2**63]}
    return _aborts(scene, abort_lsn=anywhere, abort_time=anywhere)


def stream_origin(server: EmbeddedPostgres) -> Scene:
    """The origin comes once, in the first block, without its LSN."""
    scene = _streamed(server, "stream-origin", proto_version="2", streaming="on")
    name = f"streaming_node_{server.major}"
    scene.sql(
        f"SELECT pg_replication_origin_create('{name}')",
        f"SELECT pg_replication_origin_session_setup('{name}')",
    )
    xid = scene.begin()
    scene.sql("INSERT INTO t1 VALUES (1, 'far')", "INSERT INTO t1 VALUES (2, 'far')")
    scene.sql("SELECT pg_replication_origin_xact_setup('1/23456789', '2024-02-29 12:00:00Z')")
    commit = scene.ends("COMMIT", xid)
    scene.sql(
        "SELECT pg_replication_origin_session_reset()",
        f"SELECT pg_replication_origin_drop('{name}')",
    )
    blocks = _Blocks(scene, xid)
    blocks.expect(
        ("Origin", {"name": name, "origin_lsn": 0}),
        scene.relation("t1", xid=xid),
        scene.row("Insert", "t1", new=["1", "far"], xid=xid),
    )
    blocks.expect(scene.row("Insert", "t1", new=["2", "far"], xid=xid))
    scene.expect("StreamCommit", xid=xid, **commit)
    return scene


def stream_for_want_of_memory(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "stream-work-mem", {"proto_version": "2", "streaming": "on"})
    scene.setup(T1)
    xid = scene.begin()
    scene.sql("INSERT INTO t1 SELECT i, 'r' || i FROM generate_series(1, 800) i")
    commit = scene.ends("COMMIT", xid)
    scene.expect("Rows", table=scene.oid("t1"), xid=xid, prefix="r", first=1, last=800)
    scene.expect("StreamCommit", xid=xid, **commit)
    return scene


def _prepares(scene: Scene, gid: str, row: int) -> tuple[int, dict[str, Any]]:
    xid = scene.begin()
    scene.sql(f"INSERT INTO t1 VALUES ({row}, 'row')")
    facts = scene.ends(f"PREPARE TRANSACTION '{gid}'", xid, lsn="prepare_lsn")
    return xid, {**facts, "prepare_time": scene.prepare_time(gid), "xid": xid, "gid": gid}


def two_phase(server: EmbeddedPostgres) -> Scene:
    scene = Scene(server, "two-phase", {"proto_version": "3"}, two_phase=True)
    scene.setup(T1)
    xid, prepare = _prepares(scene, "commit it", 1)
    commit = scene.ends("COMMIT PREPARED 'commit it'", xid)
    begin = {name: fact for name, fact in prepare.items() if name != "flags"}
    scene.expect("BeginPrepare", **begin)
    scene.expected += [scene.relation("t1"), scene.row("Insert", "t1", new=["1", "row"], xid=None)]
    scene.expect("Prepare", **prepare)
    scene.expect("CommitPrepared", xid=xid, gid="commit it", **commit)

    xid, prepare = _prepares(scene, "drop it", 2)
    scene.ends("ROLLBACK PREPARED 'drop it'", xid, lsn="rollback_end_lsn")
    begin = {name: fact for name, fact in prepare.items() if name != "flags"}
    scene.expect("BeginPrepare", **begin)
    scene.expected += [scene.row("Insert", "t1", new=["2", "row"], xid=None)]
    scene.expect("Prepare", **prepare)
    scene.expect(
        "RollbackPrepared",
        xid=xid,
        gid="drop it",
        prepare_end_lsn=prepare["end_lsn"],
        prepare_time=prepare["prepare_time"],
    )
    return scene


def stream_prepare(server: EmbeddedPostgres) -> Scene:
    scene = _streamed(server, "stream-prepare", proto_version="3", streaming="on")
    xid, prepare = _prepares(scene, "g", 1)
    commit = scene.ends("COMMIT PREPARED 'g'", xid)
    _Blocks(scene, xid).expect(
        scene.relation("t1", xid=xid), scene.row("Insert", "t1", new=["1", "row"], xid=xid)
    )
    scene.expect("StreamPrepare", **prepare)
    scene.expect("CommitPrepared", xid=xid, gid="g", **commit)
    return scene


STREAM_CASES: Final[list[Callable[[EmbeddedPostgres], Scene]]] = [
    stream,
    stream_abort,
    stream_abort_version_4,
    stream_abort_parallel,
    stream_origin,
    stream_for_want_of_memory,
    two_phase,
    stream_prepare,
]
