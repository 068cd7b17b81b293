"""The server is not where Kafka thinks it is: restored, replaced, promoted. Nothing is dropped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.lsn import parse_lsn
from tests.support.backends.standby import standby_of, wait_until_replayed
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
    wait_until_slot_is_free,
)
from tests.support.models.rebuild import Rebuilt
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
GROUPS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLE u;"
    "CREATE SUBSCRIPTION {s}_moved CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_stays CONNECTION '' PUBLICATION q;"
    "CREATE SUBSCRIPTION {s}_other CONNECTION '' PUBLICATION p;"
)
TABLE = "CREATE TABLE t (a int PRIMARY KEY, b int)"
PASSING = "SELECT * FROM t WHERE a % 2 = 0"
CONFIRMED = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"

MakeScene = Callable[..., Scene]


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(18) as running:
        yield running


@pytest.fixture
def scene_on(tmp_path: Path, kafka: str, registry: str) -> Iterator[MakeScene]:
    made: list[Scene] = []
    name = f"position_{abs(hash(tmp_path)) % 10**8}"

    def make(server: EmbeddedPostgres, definitions: str = DEFINITIONS) -> Scene:
        folder = tmp_path / str(len(made))
        made.append(Scene(folder, server.dsn(), kafka, registry, name, definitions))
        return made[-1]

    yield make
    for one in made:
        one.close()


def insert(connection: psycopg.Connection[tuple[object, ...]], first: int, rows: int) -> None:
    """Insert one row in each transaction."""
    for number in range(first, first + rows):
        connection.execute("INSERT INTO t VALUES (%s, 0)", [number])


@pytest.mark.parametrize(
    ("written", "said"),
    [(1, "its WAL ends before that"), (400, "its WAL does not have transaction")],
    ids=["whose WAL is shorter", "whose WAL has grown beyond the watermark"],
)
def test_a_server_restored_from_a_copy_is_refused(
    server: EmbeddedPostgres, scene_on: MakeScene, written: int, said: str
) -> None:
    s = scene_on(server)
    data, kept = server.folder / "data", server.folder / "kept"
    with server.connect() as connection:
        connection.execute(TABLE)
        insert(connection, 1, 10)
        s.run_to(current_lsn(connection))
        wait_until_slot_is_free(connection, s.slot)
        copied_at = current_lsn(connection)
    server.shut_down()
    shutil.copytree(data, kept, copy_function=_copy_with_owner)
    _own_like(data, kept)
    server.restart()
    with server.connect() as connection:
        insert(connection, 101, 100)
        s.run_to(current_lsn(connection))
        wait_until_slot_is_free(connection, s.slot)
    server.shut_down()
    shutil.rmtree(data)
    kept.rename(data)
    server.restart()

    with server.connect() as connection:
        insert(connection, 1001, written)
        before = value_of(connection, CONFIRMED, s.slot)
        ended = s.cli("run", "--endpos", current_lsn(connection))

        assert ended.code == 1, ended.err
        assert "the changes in Kafka are not from this source server" in ended.err
        assert said in ended.err
        assert "pgsluice slot drop" in ended.err
        # What both have may be confirmed; the copy was taken before that.
        confirmed = value_of(connection, CONFIRMED, s.slot)
        assert parse_lsn(before) <= parse_lsn(confirmed) <= parse_lsn(copied_at)
        assert parse_lsn(confirmed) <= parse_lsn(current_lsn(connection))

        wait_until_slot_is_free(connection, s.slot)
        assert s.cli("slot", "drop", "--yes").code == 0
        s.run_to(current_lsn(connection))
    assert rows_since_the_last_copy(s) == s.source_rows(PASSING)


def test_a_server_that_took_the_place_of_another_is_refused_until_that_is_said(
    server: EmbeddedPostgres, scene_on: MakeScene
) -> None:
    s = scene_on(server)
    with server.connect() as connection:
        connection.execute(TABLE)
        insert(connection, 1, 10)
        s.run_to(current_lsn(connection))
        old = value_of(connection, "SELECT system_identifier FROM pg_control_system()")
    with EmbeddedPostgres(18) as other, other.connect() as connection:
        connection.execute(TABLE)
        # Its positions are behind those of the first one, as the topic's readers expect.
        connection.execute("SELECT pg_switch_wal()")
        insert(connection, 4, 4)
        moved = scene_on(other)

        ended = moved.cli("run", "--endpos", "0/1")
        assert ended.code == 1
        assert f"slot drop --system-identifier {old}" in ended.err
        assert value_of(connection, "SELECT count(*) FROM pg_replication_slots") == 0

        dropped = moved.cli("slot", "drop", "--yes", "--system-identifier", str(old))
        assert dropped.code == 0, dropped.err
        moved.run_to(current_lsn(connection))
        assert moved.rebuilt("t") == moved.source_rows(PASSING)


@pytest.fixture
def standby(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    with standby_of(server) as running:
        yield running


def synchronise_slot(
    s: Scene, server: EmbeddedPostgres, standby: EmbeddedPostgres, group: str | None = None
) -> None:
    """Bring the slot to the standby, once the gateway has moved it past where the standby began."""
    slot = s.slot if group is None else f"{s.slot}_{group}"
    with server.connect() as primary, standby.connect() as connection:
        gateway = s.project.start(*(() if group is None else ("--group", group)))

        def synchronised() -> bool:
            primary.execute("SELECT pg_log_standby_snapshot()")  # a slot moves on from one only
            # An error while the gateway has confirmed what the standby has not received yet.
            with suppress(psycopg.errors.ObjectNotInPrerequisiteState):
                connection.execute("SELECT pg_sync_replication_slots()")
            ready = "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = %s"
            row = connection.execute(ready, [slot]).fetchone()
            return row is not None and row[0] is True

        wait_until(synchronised, 60, "the slot to be on the standby")
        assert gateway.terminate() == 0
        wait_until_slot_is_free(primary, slot)


def test_a_standby_that_was_promoted_without_a_loss_goes_on(
    server: EmbeddedPostgres, standby: EmbeddedPostgres, scene_on: MakeScene
) -> None:
    s = scene_on(server)
    with server.connect() as connection:
        connection.execute(TABLE)
        insert(connection, 1, 10)
        s.run_to(current_lsn(connection))
        wait_until_slot_is_free(connection, s.slot)
        failover = "SELECT failover FROM pg_replication_slots WHERE slot_name = %s"
        assert value_of(connection, failover, s.slot) is True
        synchronise_slot(s, server, standby)
        insert(connection, 101, 10)
        s.run_to(current_lsn(connection))
        insert(connection, 201, 10)  # only the promoted server can still send these
    wait_until_replayed(server, standby)
    server.shut_down()
    with standby.connect() as connection:
        connection.execute("SELECT pg_promote()")
        insert(connection, 301, 10)
        promoted = scene_on(standby)
        promoted.run_to(current_lsn(connection))

    assert promoted.rebuilt("t") == promoted.source_rows(PASSING)
    assert_exactly_once(promoted, ["t"])
    assert [r.op for r in promoted.read("t")].count("t") == 1, "copied once"


def test_a_standby_that_was_promoted_with_a_loss_is_refused(
    server: EmbeddedPostgres, standby: EmbeddedPostgres, scene_on: MakeScene
) -> None:
    s = scene_on(server)
    with server.connect() as connection:
        connection.execute(TABLE)
        insert(connection, 1, 10)
        s.run_to(current_lsn(connection))
        synchronise_slot(s, server, standby)
        wait_until_replayed(server, standby)
        with standby.connect() as replica:
            replica.execute("SELECT pg_promote()")  # the primary lives on, unnoticed
        insert(connection, 101, 10)
        s.run_to(current_lsn(connection))
    server.shut_down()
    with standby.connect() as connection:
        insert(connection, 1001, 400)
        before = value_of(connection, CONFIRMED, s.slot)
        promoted = scene_on(standby)
        ended = promoted.cli("run", "--endpos", current_lsn(connection))

        assert ended.code == 1, ended.err
        assert "the changes in Kafka are not from this source server" in ended.err
        assert "it left timeline 1 at" in ended.err
        assert value_of(connection, CONFIRMED, s.slot) == before


def test_changes_after_a_failover_come_as_changes_though_their_old_group_has_begun_again(
    server: EmbeddedPostgres, standby: EmbeddedPostgres, scene_on: MakeScene
) -> None:
    s = scene_on(server, GROUPS)
    moved, before, after = f"{s.slot}_moved", ["moved", "stays"], ["other", "moved"]
    s.project.extra = groups_of(s.slot, old=before, new=["other"])
    with server.connect() as connection, standby.connect() as replica:
        connection.execute(f"{TABLE}; CREATE TABLE u (a int PRIMARY KEY)")
        insert(connection, 1, 10)
        run_group(s, "old", connection)
        run_group(s, "new", connection)
        synchronise_slot(s, server, standby, "new")
        wait_until_replayed(server, standby)
        replica.execute("SELECT pg_promote()")  # the primary lives on, unnoticed
        connection.execute("SELECT pg_switch_wal()")
        insert(connection, 101, 10)
        run_group(s, "old", connection)
        reached = max(m["end_lsn"] for m in s.markers(moved) if m["kind"] == "PROGRESS")
    server.shut_down()
    promoted = scene_on(standby, GROUPS)
    promoted.project.extra = groups_of(s.slot, old=["stays"], new=after)
    with standby.connect() as connection:
        insert(connection, 201, 10)
        assert parse_lsn(current_lsn(connection)) < reached, "or nothing is at the same positions"
        dropped = promoted.cli("slot", "drop", "--group", "old", "--yes")
        assert dropped.code == 0, dropped.err
        while parse_lsn(current_lsn(connection)) <= reached:
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("INSERT INTO u SELECT count(*) FROM u")
        run_group(promoted, "old", connection)
        run_group(promoted, "new", connection)

    records = promoted.read("t", moved)
    rows = {(r.op, r.value["after"]["a"]) for r in records if r.value and r.value["after"]}
    assert {a for op, a in rows if op == "c" and a > 200} == set(range(201, 211))
    assert rows_since_the_last_copy(promoted, moved) == promoted.source_rows("SELECT * FROM t")


def groups_of(slot: str, **groups: list[str]) -> dict[str, dict[str, list[str]]]:
    """The setting of groups of subscriptions, which are named without the slot."""
    return {
        "source.groups": {
            group: [f"{slot}_{name}" for name in names] for group, names in groups.items()
        }
    }


def run_group(s: Scene, group: str, connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Run the gateway of a group up to now."""
    ended = s.cli("run", "--group", group, "--endpos", current_lsn(connection))
    assert ended.code == 0, ended.err


def rows_since_the_last_copy(s: Scene, subscription: str | None = None) -> list[tuple[object, ...]]:
    """The table by its last copy: a restored server's LSNs begin below those before."""
    records = s.read("t", subscription)
    first = max(i for i, r in enumerate(records) if r.op == "t")
    return sorted(Rebuilt().apply(records[first:]).rows(), key=repr)


def _copy_with_owner(source: str, target: str) -> str:
    shutil.copy2(source, target)
    _chown_like(Path(source), Path(target))
    return target


def _own_like(source: Path, target: Path) -> None:
    for folder in (source, *(path for path in source.rglob("*") if path.is_dir())):
        _chown_like(folder, target / folder.relative_to(source))


def _chown_like(source: Path, target: Path) -> None:
    status = source.stat()
    shutil.chown(target, status.st_uid, status.st_gid)
