"""Between PREPARE and COMMIT PREPARED: the gateway dies, the server restarts, nothing is lost.

Once the server has been told to forget the position of a PREPARE it never sends its rows again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.core.lsn import parse_lsn
from tests.support.backends.rack import Rack, RackServer
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn, value_of
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

LARGE = 2_000
"""Rows that cost more than ``logical_decoding_work_mem``, so that they are streamed."""

CONFIRMED = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"


@pytest.fixture
def server(rack: Rack) -> RackServer:
    return rack.server(logical_decoding_work_mem="64kB")


@pytest.fixture
def two_phase(
    server: RackServer, tmp_path: Path, kafka: str, registry: str
) -> Iterator[Callable[[str], Scene]]:
    """Make a scene with table t in a database of its own."""
    made: list[Scene] = []

    def make(options: str) -> Scene:
        name = server.name
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        definitions = (
            "CREATE PUBLICATION p FOR TABLE t;"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p WITH ({options});"
        )
        # Spools are used, too.
        limits = {"progress_interval_s": 0.2, "max_buffer_bytes": 50_000, "max_batch_records": 500}
        made.append(
            Scene(tmp_path, server.dsn(), kafka, registry, name, definitions, {"limits": limits})
        )
        return made[-1]

    yield make
    for scene in made:
        scene.close()


def prepare(scene: Scene, gid: str, first: int, last: int) -> None:
    """A transaction of rows `first` to `last`, prepared."""
    with scene.connect() as connection:
        connection.execute("BEGIN")
        connection.execute(
            "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(%s::int, %s) i",
            [first, last],
        )
        connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())


def execute(scene: Scene, statement: str) -> None:
    with scene.connect() as connection:
        connection.execute(statement.encode())


def kinds(scene: Scene) -> Counter[tuple[str, str]]:
    """How often each marker with a gid was seen."""
    return Counter((m["kind"], m["gid"]) for m in scene.markers() if m["gid"])


def wait_for_row(scene: Scene, a: int) -> None:
    def there() -> bool:
        return any(r.key == {"a": a} for r in scene.read("t"))

    try:
        wait_until(there, 60, f"row {a} in Kafka")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{scene.project.processes[-1].log()}") from None


def wait_for_marker(scene: Scene, kind: str, gid: str) -> None:
    wait_until(lambda: kinds(scene)[kind, gid] > 0, 60, f"{kind} {gid}")


@pytest.mark.parametrize("rows", [5, LARGE], ids=["small", "streamed"])
@pytest.mark.parametrize("restart", ["no restart", "stopped", "killed"])
@pytest.mark.parametrize("decided", ["while the gateway is down", "afterwards"])
def test_a_gateway_killed_between_prepare_and_its_end_loses_nothing(
    two_phase: Callable[[str], Scene],
    server: RackServer,
    rows: int,
    restart: str,
    decided: str,
) -> None:
    s = two_phase("two_phase = on, streaming = on")
    s.project.start().wait_until_copied()
    execute(s, "INSERT INTO t VALUES (-1, 'before')")
    prepare(s, "kept", 1, rows)
    prepare(s, "gone", 10_001, 10_000 + rows)
    execute(s, "INSERT INTO t VALUES (-2, 'between')")
    wait_for_row(s, -2)
    wait_for_marker(s, "PREPARE", "gone")
    s.project.processes[-1].kill()
    with s.connect() as connection:
        confirmed = value_of(connection, CONFIRMED, s.slot)
    prepared = [m["end_lsn"] for m in s.markers() if m["kind"] == "PREPARE"]
    assert parse_lsn(confirmed) < min(prepared)

    if restart == "stopped":
        server.restart()
    elif restart == "killed":
        server.kill()
        server.restart()
    if decided == "afterwards":
        s.project.start().wait_until_copied()
        execute(s, "INSERT INTO t VALUES (-3, 'after the restart')")
        wait_for_row(s, -3)
    execute(s, "COMMIT PREPARED 'kept'")
    execute(s, "ROLLBACK PREPARED 'gone'")
    if decided == "afterwards":
        wait_for_marker(s, "ROLLBACK_PREPARED", "gone")
        s.project.processes[-1].kill()
    execute(s, "INSERT INTO t VALUES (-4, 'last')")
    with s.connect() as connection:
        end = current_lsn(connection)
    s.run_to(end)

    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
    of_kept = [r for r in s.read("t") if (r.key or {}).get("a") in range(1, rows + 1)]
    assert [r.headers.get("gid") for r in of_kept] == ["kept"] * rows
    assert kinds(s) == {
        ("PREPARE", "kept"): 1,
        ("PREPARE", "gone"): 1,
        ("END", "kept"): 1,
        ("ROLLBACK_PREPARED", "gone"): 1,
    }
    assert_exactly_once(s, ["t"])
    with s.connect() as connection:
        confirmed = value_of(connection, CONFIRMED, s.slot)
    assert parse_lsn(confirmed) >= max(m["end_lsn"] for m in s.markers() if m["kind"] == "END")


def test_a_start_between_a_prepare_and_its_commit_goes_on(
    two_phase: Callable[[str], Scene],
) -> None:
    """The slot waits for the second PREPARE, which lies between the first one and its commit."""
    s = two_phase("two_phase = on")
    s.project.start().wait_until_copied()
    prepare(s, "first", 1, 3)
    prepare(s, "second", 4, 6)
    execute(s, "COMMIT PREPARED 'first'")
    wait_for_row(s, 3)
    ends = {m["gid"]: m["end_lsn"] for m in s.markers() if m["kind"] == "PREPARE"}

    def is_confirmed() -> bool:
        with s.connect() as connection:
            confirmed = parse_lsn(value_of(connection, CONFIRMED, s.slot))
        return bool(ends["first"] <= confirmed < ends["second"])

    wait_until(is_confirmed, 60, "the slot at the second PREPARE")
    s.project.processes[-1].kill()

    s.project.start()
    execute(s, "INSERT INTO t VALUES (-1, 'later')")
    wait_for_row(s, -1)
    execute(s, "COMMIT PREPARED 'second'")
    wait_for_row(s, 6)
    with s.connect() as connection:
        end = current_lsn(connection)
    s.project.processes[-1].kill()
    s.run_to(end)

    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
    assert_exactly_once(s, ["t"])


def test_a_prepared_transaction_does_not_keep_the_server_from_stopping(
    two_phase: Callable[[str], Scene], server: RackServer
) -> None:
    s = two_phase("two_phase = on")
    gateway = s.project.start()
    gateway.wait_until_copied()
    prepare(s, "held", 1, 3)
    execute(s, "INSERT INTO t VALUES (-1, 'later')")
    wait_for_row(s, -1)

    server.shut_down()

    # It would not say so if it had been killed in the end.
    assert "database system is shut down" in server.log.read_text().rpartition("fast shutdown")[2]
    gateway.wait_for("the source server is stopping")
    server.restart()
    execute(s, "COMMIT PREPARED 'held'")
    wait_for_row(s, 3)
    assert gateway.terminate() == 0
    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
    assert kinds(s) == {("PREPARE", "held"): 1, ("END", "held"): 1}
    assert_exactly_once(s, ["t"])


def test_check_names_the_prepared_transaction_that_holds_the_slot_back(
    two_phase: Callable[[str], Scene], server: RackServer
) -> None:
    s = two_phase("two_phase = on")
    s.run_to("0/1")
    prepare(s, "forgotten", 1, 3)
    execute(s, "INSERT INTO t VALUES (-1, 'later')")
    with s.connect() as connection:
        end = current_lsn(connection)
    s.run_to(end)

    ended = s.cli("check")

    assert ended.code == 0, ended.out
    (line,) = [line for line in ended.out.splitlines() if "forgotten" in line]
    assert line.startswith("WARNING")
    assert "COMMIT PREPARED or ROLLBACK PREPARED" in ended.out
    execute(s, "ROLLBACK PREPARED 'forgotten'")
    assert "forgotten" not in s.cli("check").out
