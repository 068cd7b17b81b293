"""What a running gateway tells of itself over HTTP, to systemd, and by ``pgsluice status``."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.commands.status import read_status
from gateway.config import Settings, load_settings
from gateway.definitions.model import Definitions
from gateway.envelope.envelope import package_version
from gateway.monitor.metrics import PREFIX
from gateway.runtime.planning.plan import read_definitions
from tests.oracle.ddl.test_changing_publications import published_to
from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Scene, current_lsn, value_of
from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
Metrics: TypeAlias = dict[str, dict[tuple[str, ...], float]]
SECRET = "do-not-show-me"
TABLES = """
CREATE TABLE t (a int PRIMARY KEY, c text);
CREATE TABLE u (a int PRIMARY KEY);
ALTER TABLE t REPLICA IDENTITY FULL;
"""
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5), u;
CREATE PUBLICATION asked FOR TABLE t WHERE (length(c) > 3 AND md5(c) <> '');
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
CREATE SUBSCRIPTION {s}_asked CONNECTION '' PUBLICATION asked;
"""
LISTENING = {"http": {"listen": "127.0.0.1:0"}, "definitions": {"watch_interval_s": 0.5}}


class Monitored:
    """A gateway process and what it answers."""

    def __init__(self, process: GatewayProcess) -> None:
        process.wait_for("metrics, health and status are served")
        found = re.search(r"are served port=(\d+)", process.log())
        assert found is not None
        self.process = process
        self.url = f"http://127.0.0.1:{found[1]}"

    def get(self, path: str) -> tuple[int, str]:
        """Status code and body."""
        try:
            with urlopen(self.url + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metrics(self) -> Metrics:
        """By name without prefix, and values of the labels in the order of their names."""
        found: Metrics = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name.removeprefix(PREFIX), {})[labels] = sample.value
        return found

    def status(self) -> dict[str, Any]:
        """Return what ``/status`` shows."""
        found = json.loads(self.get("/status")[1])
        assert isinstance(found, dict)
        return found

    def status_without_problems(self) -> dict[str, Any]:
        """Return what ``/status`` shows; empty while it shows a problem."""
        found = self.status()
        return {} if found["problems"] else found


def test_a_gateway_tells_what_it_has_done_and_shows_no_value(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute(
            f"INSERT INTO t SELECT n, '{SECRET}' FROM generate_series(1, 9) n".encode()
        )
        s = scene(DEFINITIONS, **LISTENING)
        gateway = Monitored(s.project.start())
        gateway.process.wait_until_copied()
        for statement in (
            "INSERT INTO t VALUES (20, 'long enough'), (3 + 18, 'abc')",
            "UPDATE t SET a = 1 + 99 WHERE a = 1",  # enters a > 5
            "UPDATE t SET a = 0 WHERE a = 9",  # leaves it
            "UPDATE t SET a = -2 WHERE a = 2",  # was never in it
            "DELETE FROM t WHERE a = 8",
            "TRUNCATE u",
        ):
            connection.execute(statement.encode())
        published_to(s, current_lsn(connection))

        def counted() -> Metrics:
            found = gateway.metrics()
            done = found.get("rows_total", {}).get(("truncate", s.slot, "public.u")) == 1
            return found if done and found.get("lag_bytes", {}).get((), 1) == 0 else {}

        found = wait_until(counted, 60, "the figures to be posted")
        # The page's poll of the server is up to five seconds old: from when the copy waited for
        # transactions of other databases, perhaps.
        status = wait_until(gateway.status_without_problems, 30, "the page to show no problem")
        code, commanded = s.cli("status", "--json").code, json.loads(s.cli("status", "--json").out)
        texts = [gateway.get(path)[1] for path in ("/metrics", "/status", "/", "/healthz")]
        assert gateway.process.terminate() == 0, gateway.process.log()

    rows = {
        labels: value
        for labels, value in found["rows_total"].items()
        if labels[1:] == (s.slot, "public.t") and value
    }
    assert rows == {
        ("copy", s.slot, "public.t"): 4,
        ("insert", s.slot, "public.t"): 3,
        ("delete", s.slot, "public.t"): 2,
    }
    assert found["filtered_rows_total"][s.slot, "public.t"] == 1
    assert found["server_evaluated_rows_total"][()] > 0
    assert found["commit_seconds_count"][()] > 0
    assert found["role"]["leader", s.slot] == 1
    assert found["slot_active"][()] == 1
    assert found["retained_wal_bytes"][()] > 0
    assert found["tables"]["ready",] == 3
    assert found["lag_seconds"][()] == 0
    assert (code, commanded["problems"]) == (0, [])
    assert status["tables"] == [{**t, "estimate": None} for t in commanded["tables"]]
    assert status["gateway"]["version"] == package_version()
    assert status["gateway"]["started_at"] <= found["last_commit_timestamp_seconds"][()]
    assert commanded["slot"]["reader"] == f"pgsluice {package_version()}"
    assert commanded["slot"]["reading_since"] >= status["gateway"]["started_at"]
    assert commanded["last_change"] == status["last_change"]
    assert status["last_change"] == found["last_change_timestamp_seconds"][()]
    assert {table["topic"] for table in status["tables"]} == {
        s.topic("t"),
        s.topic("u"),
        s.topic("t", f"{s.slot}_asked"),
    }
    assert {(one["subscription"], one["table"]) for one in status["changed"]} >= {
        (s.slot, "public.t"),
        (s.slot, "public.u"),
    }
    assert not [text for text in texts if SECRET in text or "postgresql://" in text]


def test_health_and_role_of_a_leader_and_of_one_that_stands_by(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES)
        s = scene(DEFINITIONS, **LISTENING)
        leader = Monitored(s.project.start())
        leader.process.wait_until_copied()
        follower = Monitored(s.project.start())
        follower.process.wait_until_doing("standby")

        wait_until(lambda: leader.get("/readyz")[0] == 200, 60, "the leader to be ready")
        wait_until(lambda: follower.get("/readyz")[0] == 200, 60, "the other to be ready")

        assert leader.get("/readyz") == (200, "ok: streaming\n")
        assert follower.get("/readyz") == (200, "ok: standby\n")
        assert follower.get("/healthz") == (200, "ok: standby\n")
        assert follower.metrics()["role"]["standby", s.slot] == 1
        assert "lag_seconds" not in follower.metrics()
        assert leader.get("/nothing")[0] == 404
        assert s.cli("status").code == 0
        assert (leader.process.terminate(), follower.process.terminate()) == (0, 0)


def test_a_held_table_is_told_everywhere(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES)
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t WHERE (c > 'm'), u;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            **LISTENING,
        )
        gateway = Monitored(s.project.start())
        gateway.process.wait_until_copied()
        connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
        connection.execute("INSERT INTO t VALUES (1, 'z')")

        def is_held() -> bool:
            return ("held", s.slot, "public.t") in gateway.metrics().get("table_held", {})

        wait_until(is_held, 60, "t to be held")
        (problem,) = [p for p in gateway.status()["problems"] if p["severity"] == "act"]
        status, checked = s.cli("status"), s.cli("check")
        assert gateway.process.terminate() == 0, gateway.process.log()

    assert problem["severity"] == "act"
    assert f"table public.t of subscription {s.slot} is held: cannot update" in problem["message"]
    assert status.code == 1
    assert f"to do: {problem['message']}" in status.out
    assert problem["message"] in checked.out
    assert checked.code == 1


def test_check_and_status_warn_before_the_retained_wal_comes_near_its_limit(
    scene: MakeScene,
) -> None:
    # A server of its own: the limit is one for all slots of a server, and a checkpoint acts on it.
    with EmbeddedPostgres(18) as server, server.connect() as connection:
        connection.execute(TABLES)
        s = scene(DEFINITIONS, source={"dsn": server.dsn()})
        s.run_to("0/1")
        assert s.cli("status").code == 75
        assert "max_slot_wal_keep_size)" not in s.cli("check").out
        row = value_of(
            connection, "SELECT setting FROM pg_settings WHERE name = 'wal_segment_size'"
        )
        segment = int(row) >> 20
        limit = f"ALTER SYSTEM SET max_slot_wal_keep_size = '{4 * segment}MB'"
        connection.execute(limit.encode())
        connection.execute("SELECT pg_reload_conf()")
        for _ in range(4):
            connection.execute("INSERT INTO u VALUES (txid_current()); SELECT pg_switch_wal()")
        status, checked = s.cli("status", "--json"), s.cli("check")

    assert status.code == 1
    messages = [problem["message"] for problem in json.loads(status.out)["problems"]]
    assert any("max_slot_wal_keep_size" in message for message in messages)
    assert "WARNING slot: the slot retains" in checked.out


def test_a_status_judges_all_by_one_reading_of_the_definitions(
    scene: MakeScene, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES)
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    settings = load_settings(s.project.write(), {})
    read: list[Path] = []

    def counted(settings: Settings, *, masks: bool) -> Definitions:
        read.append(settings.definitions.file)
        return read_definitions(settings, masks=masks)

    monkeypatch.setattr("gateway.commands.status.read_definitions", counted)
    found = read_status(settings)

    assert read == [settings.definitions.file]
    assert (found.muted, found.file_differs) == ({}, False)
    settings.definitions.file.write_text(settings.definitions.file.read_text().replace("5", "6"))
    assert read_status(settings).file_differs


def test_systemd_is_told_and_log_lines_are_json(
    scene: MakeScene, database: Database, tmp_path: Path
) -> None:
    address = str(tmp_path / "notify")
    with database.connect() as connection, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unit:
        unit.bind(address)
        unit.settimeout(60 * PATIENCE)
        connection.execute(TABLES)
        s = scene(DEFINITIONS, log={"format": "json"})
        process = s.project.start(environment={"NOTIFY_SOCKET": address})
        told = unit.recv(4096).decode()
        while "READY=1" not in told:
            told = unit.recv(4096).decode()
        assert process.terminate() == 0, process.log()
        while "STOPPING=1" not in told:
            told = unit.recv(4096).decode()

    lines = [json.loads(line) for line in process.log().splitlines()]
    streaming = [line for line in lines if line["message"] == "streaming"]
    assert streaming[0]["slot"] == s.slot
    assert streaming[0]["logger"] == "gateway.runtime.lifecycle.streaming"
