"""Every cell of the table "Where problems show" in docs/monitoring.md, on a real gateway.

The table is parsed: what stands in backquotes is a text that has to be there, with ``...`` for
anything and ``reason`` for what has to be the same wherever the gateway itself says it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from html import unescape
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from gateway.core.watermark import CopyRequest
from gateway.runtime.reload.reloader import LOOK_FOR_REQUESTS, channel_of
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.own_topics.requests import send_request
from gateway.sink.registry.registry import Registry
from tests.integration.monitor.test_gateway_monitor import LISTENING, Monitored
from tests.support.backends.broker import create_topics
from tests.support.backends.proxy import Proxy
from tests.support.backends.rack import Rack, RackServer
from tests.support.gateway.scene import Scene, value_of
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring.md"
DEFINITIONS = (
    "CREATE PUBLICATION p FOR ALL TABLES; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLES = "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY)"
MAX_LAG_S = 5.0
SETTINGS: dict[str, Any] = {**LISTENING, "monitor": {"max_lag_s": MAX_LAG_S}}
CLASSES = {"red": "bad", "amber": "wait", "green": "good"}
OVER = ", and once it is over "


@dataclass(frozen=True)
class Row:
    """A line of the table, a field for each of its columns."""

    trouble: str
    log: str
    status: str
    code: str
    page: str
    metric: str
    ready: str


def rows() -> Iterator[Row]:
    text = MONITORING.read_text(encoding="utf-8")
    table = text.partition("## Where problems show")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == len(fields(Row)), line
        yield Row(*cells)


def quoted(cell: str, where: str = "") -> list[str]:
    """The texts of a cell; `where`: without those that are for somewhere else."""
    found = re.findall(r"`([^`]+)`(?: \((gateway|command)\))?", cell)
    return [text for text, only in found if not where or only in ("", where)]


def pattern(text: str) -> re.Pattern[str]:
    escaped = re.escape(text).replace(re.escape("..."), ".+?")
    return re.compile(re.sub(r"reason$", "(?P<reason>.+)", escaped), re.DOTALL)


def found_in(texts: list[str], lines: list[str]) -> list[str] | None:
    """The reasons, or None where a text is not there; no text: nothing may be there."""
    if not texts:
        return None if lines else []
    reasons = []
    for text in texts:
        matches = [match for line in lines if (match := pattern(text).fullmatch(line))]
        if not matches:
            return None
        reasons += [match["reason"] for match in matches if "reason" in match.groupdict()]
    return reasons


class Checked:
    """What a gateway shows from now on, compared with a row of the table."""

    def __init__(self, row: Row, gateway: Monitored, scene: Scene) -> None:
        self.row = row
        self._gateway = gateway
        self._scene = scene
        self._log_from = len(gateway.process.log())
        self._warnings = self._count_warnings()

    def check(self, *, asks_meanwhile: bool = False) -> None:
        """All cells but the end of the log; `asks_meanwhile`: the command knows without gateway."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._scene.cli, "status") if asks_meanwhile else None
            try:
                wait_until(lambda: not self.missing(), 40, self.row.trouble)
            except AssertionError as error:
                raise AssertionError(f"{self.row.trouble}: {self.missing()}") from error
            command = (asked or pool.submit(self._scene.cli, "status")).result()
        shown = [line for line in command.out.splitlines() if line.startswith(("to do", "for now"))]
        assert found_in(quoted(self.row.status, "command"), shown) is not None, command.out
        codes = re.findall(r"(\d+)(?! of)\b(?! of)", self.row.code)
        assert [str(command.code)] == codes, command.out

    def check_end(self) -> None:
        """That the log says that it is over, where the row has a text for that."""
        texts = quoted(self.row.log.partition(OVER)[2])
        wait_until(
            lambda: all(text in self._new_log() for text in texts), 60, f"the end: {self.row.log}"
        )

    def missing(self) -> str:
        """The first column that is not as the table has it yet; empty when all are."""
        row, gateway = self.row, self._gateway
        problems = gateway.status().get("problems", [])
        said = {"act": "to do: ", "wait": "for now: "}
        lines = [f"{said[problem['severity']]}{problem['message']}" for problem in problems]
        reasons = found_in(quoted(row.status, "gateway"), lines)
        if reasons is None:
            return f"status: {lines}"
        code, body = gateway.get("/readyz")
        if str(code) != self._ready_code() or ("reason" in row.ready and not named(reasons, body)):
            return f"readyz: {code} {body} {reasons}"
        page = unescape(gateway.get("/")[1])
        colour, (banner,) = row.page.partition(":")[0], quoted(row.page)
        if f'<strong class="{CLASSES[colour]}">{banner}</strong>' not in page:
            return f"page: {page}"
        if not named(reasons, page):
            return f"reason on the page: {reasons} {page}"
        metrics = gateway.metrics()
        for text in quoted(row.metric):
            name, _, label = text.partition("{")
            values = {
                labels: value
                for labels, value in metrics.get(name, {}).items()
                if not label or label.partition('"')[2].partition('"')[0] in labels
            }
            if sum(values.values()) <= 0:
                return f"metric {text}: {metrics.get(name)}"
        texts = quoted(row.log.partition(OVER)[0])
        if not all(text in self._new_log() for text in texts):
            return f"log: {self._new_log()}"
        if not texts and self._count_warnings() > self._warnings:
            return f"a warning too many: {self._new_log()}"
        return ""

    def _ready_code(self) -> str:
        """The code of `/readyz`: the table may have another one for an outage that lasts."""
        lasts = re.search(r"; (\d+) once it is so for longer", self.row.ready)
        since = sum(self._gateway.metrics().get("kafka_away_since_seconds", {}).values())
        is_lasting = since and time.time() - since > MAX_LAG_S
        return lasts[1] if lasts is not None and is_lasting else self.row.ready[:3]

    def _new_log(self) -> str:
        return self._gateway.process.log()[self._log_from :]

    def _count_warnings(self) -> float:
        return sum(self._gateway.metrics().get("log_events_total", {}).values())


def named(reasons: list[str], text: str) -> bool:
    """Whether the reasons are in a text, by their first lines: not all texts have several."""
    return all(reason.splitlines()[0] in text for reason in reasons)


class Played:
    """A gateway on servers that a test may take away, and the troubles by the table's names."""

    def __init__(self, server: RackServer, rack: Rack, registry: str, folder: Path) -> None:
        self._server, self._rack, self._registry, self._folder = server, rack, registry, folder
        self._connection = server.connect()
        self._connection.execute(TABLES)
        self._role = f"role_{server.name}"
        self._connection.execute(
            f"CREATE ROLE {self._role} SUPERUSER LOGIN PASSWORD '{self._role}'".encode()
        )
        self._proxy = Proxy(server.dsn())
        self._scenes: list[Scene] = []
        self.scene = self._scene("a", DEFINITIONS)
        self._rows = {row.trouble: row for row in rows()}
        self.played: set[str] = set()

    def _scene(self, name: str, definitions: str) -> Scene:
        through = self._proxy.through(self._server.dsn())
        dsn = psycopg.conninfo.make_conninfo(through, user=self._role, password=self._role)
        bootstrap = f"127.0.0.1:{self._rack.kafka_proxy.port}"
        slot = self._server.name
        self._scenes.append(
            Scene(
                self._folder / name,
                dsn,
                bootstrap,
                self._registry,
                slot,
                definitions,
                SETTINGS,
            )
        )
        return self._scenes[-1]

    def close(self) -> None:
        for one in self._scenes:
            one.close()
        self._proxy.close()
        self._connection.execute(f"DROP OWNED BY {self._role}; DROP ROLE {self._role}".encode())
        self._connection.close()

    @contextmanager
    def watching(
        self, trouble: str, gateway: Monitored, scene: Scene, *, asks_meanwhile: bool = False
    ) -> Iterator[None]:
        """What the block does is the trouble; it is checked at its end."""
        checked = Checked(self._rows[trouble], gateway, scene)
        yield
        checked.check(asks_meanwhile=asks_meanwhile)
        self.played.add(trouble)

    def settled(self, gateway: Monitored) -> None:
        wait_until(lambda: gateway.get("/readyz")[0] == 200, 30, "the gateway to be ready")
        wait_until(lambda: not gateway.status().get("problems", [""]), 30, "no problem to be left")
        wait_until(lambda: self.scene.cli("status").code == 0, 30, "the status to be all well")

    def a_start_cannot_be_made_here(self) -> None:
        row = self._rows["a start cannot be made here"]
        no_folder = self._folder / "file"
        no_folder.write_text("")
        environment = {"PGSLUICE_GATEWAY__SPOOL_DIRECTORY": str(no_folder)}
        checked, run = (
            self.scene.cli(*command, environment=environment)
            for command in (("check",), ("run", "--endpos", "0/1"))
        )
        status = self.scene.cli("status")
        reason = f"{no_folder} is not a folder"
        assert reason in checked.out and reason in run.err
        assert row.code == "1 of `run` and `check`, 75"
        assert (checked.code, run.code, status.code) == (1, 1, 75)
        (text,) = quoted(row.status)
        assert text in status.out.splitlines()
        assert (row.page, row.metric, row.ready) == ("none", "none", "none")
        self.played.add(row.trouble)

    def a_standby_has_other_definitions(self) -> None:
        other = self._scene("b", DEFINITIONS.replace("ALL TABLES", "TABLE t"))
        standby = Monitored(other.project.start())
        # What it says at its start is the trouble: the log is looked at from its beginning.
        checked = Checked(self._rows["a standby has other definitions"], standby, other)
        checked._log_from = 0
        checked.check()
        self.played.add(checked.row.trouble)
        assert standby.process.terminate() == 0

    def copies_that_cannot_be_made(self, gateway: Monitored) -> None:
        with self.watching("a copy is asked for that cannot be made", gateway, self.scene):
            assert self.scene.cli("copy", "t", "--where", "no_column > 1").code == 1
        with self.watching(
            "a copy that was asked for cannot be made any more", gateway, self.scene
        ):
            system = value_of(
                self._connection, "SELECT system_identifier::text FROM pg_control_system()"
            )
            slot = self.scene.slot
            kafka = {"bootstrap.servers": self._rack.broker.bootstrap_servers}
            identity = SlotIdentity(str(system), self._server.name, slot)
            request = CopyRequest("late", "public", "dropped", None, "")
            registry = Registry({"url": self._registry})
            send_request(kafka, f"{slot}.progress", identity, registry, request)
            registry.close()
            said = [channel_of(slot), LOOK_FOR_REQUESTS]
            self._connection.execute("SELECT pg_notify(%s, %s)", said)

    def kafka_does_not_answer(self, gateway: Monitored) -> None:
        idle = Checked(self._rows["Kafka does not answer"], gateway, self.scene)
        self._rack.kafka_proxy.refuse()
        self._rack.kafka_proxy.reset()
        idle.check(asks_meanwhile=True)
        self.played.add(idle.row.trouble)
        with self.watching(
            "a change waits for longer than `monitor.max_lag_s`",
            gateway,
            self.scene,
            asks_meanwhile=True,
        ):
            self._connection.execute("INSERT INTO t VALUES (1)")
        self._rack.kafka_proxy.accept()
        idle.check_end()
        self.settled(gateway)

    def postgresql_does_not_answer(self, gateway: Monitored) -> None:
        with self.watching("PostgreSQL does not answer", gateway, self.scene):
            self._proxy.refuse()
            self._proxy.reset()
        self._proxy.accept()
        self.settled(gateway)

    def a_right_is_withdrawn(self, gateway: Monitored) -> None:
        with self.watching(
            "a right that all tables need is withdrawn", gateway, self.scene, asks_meanwhile=True
        ):
            self._connection.execute(f"ALTER ROLE {self._role} NOLOGIN".encode())
            self._proxy.reset()
        self._connection.execute(f"ALTER ROLE {self._role} LOGIN".encode())
        self.settled(gateway)

    def changed_definitions_are_refused(self, gateway: Monitored) -> None:
        project = self.scene.project
        good = project.definitions
        checked = Checked(self._rows["changed definitions are refused"], gateway, self.scene)
        project.definitions = good.replace("CREATE PUB", "CREATE NO PUB")
        project.write()
        os.kill(gateway.process.pid, signal.SIGHUP)  # `pgsluice reload` would refuse it by itself
        checked.check()
        project.definitions = good
        assert self.scene.cli("reload").code == 0
        checked.check_end()
        self.settled(gateway)
        self.played.add(checked.row.trouble)

    def a_table_is_held(self, gateway: Monitored) -> None:
        with self.watching("a table is held", gateway, self.scene):
            self._connection.execute("CREATE TABLE never (a int)")
            self._connection.execute("ALTER TABLE u REPLICA IDENTITY NOTHING")
            self._connection.execute("INSERT INTO u VALUES (1)")

    def a_subscription_is_held(self, gateway: Monitored) -> None:
        project = self.scene.project
        markers = f"{self.scene.slot}_held.transaction"
        admin = AdminClient({"bootstrap.servers": self._rack.broker.bootstrap_servers})
        create_topics(admin, [NewTopic(markers, 2)])
        with self.watching("a subscription is held", gateway, self.scene):
            project.definitions += (
                f"CREATE SUBSCRIPTION {self.scene.slot}_held CONNECTION '' PUBLICATION p;"
            )
            reloaded = self.scene.cli("reload")
            assert reloaded.code == 0, reloaded.err
            assert f"subscription {self.scene.slot}_held is held: " in reloaded.err


@pytest.fixture
def played(rack: Rack, registry: str, tmp_path: Path) -> Iterator[Played]:
    made = Played(rack.server(), rack, registry, tmp_path)
    yield made
    made.close()


def test_every_trouble_shows_where_the_table_says(played: Played) -> None:
    played.a_start_cannot_be_made_here()
    gateway = Monitored(played.scene.project.start())
    gateway.process.wait_until_copied()
    played.settled(gateway)
    played.a_standby_has_other_definitions()
    troubles: tuple[Callable[[Monitored], None], ...] = (
        played.copies_that_cannot_be_made,
        played.kafka_does_not_answer,
        played.postgresql_does_not_answer,
        played.a_right_is_withdrawn,
        played.changed_definitions_are_refused,
        played.a_table_is_held,
        played.a_subscription_is_held,
    )
    for play in troubles:
        play(gateway)

    assert played.played == {row.trouble for row in rows()}
    assert gateway.process.terminate() == 0, gateway.process.log()
