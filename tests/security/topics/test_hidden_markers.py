"""Markers that cannot be read, or written: only their subscription waits, and nothing is lost."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient

from gateway.config import load_settings
from gateway.core.errors import ConfigError, FatalError, HiddenMarkersError
from gateway.core.names import transaction_topic
from gateway.runtime.daemon import Daemon
from gateway.runtime.planning import hidden_markers, ownership
from gateway.runtime.reload import reloader
from gateway.sink.own_topics import claims
from gateway.sink.own_topics.owners import Owner, read_owners
from gateway.sink.own_topics.requests import send
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from tests.security.topics.test_claims import TWO, running_daemon
from tests.support.backends.broker import create_topics
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, wait_for_copy_marker, wait_until_confirmed
from tests.support.run.waiting import wait_until

UNCOPIED = " CONNECTION '' PUBLICATION p WITH (copy_data = false)"

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]


@pytest.fixture
def endless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Subscriptions whose markers have no end in time, as while somebody writes there.

    Or, with the parameter "denied", those whose markers may not be read.
    """
    is_denied = getattr(request, "param", "") == "denied"
    names: set[str] = set()

    def read(
        kafka: Mapping[str, str | int | bool],
        registry: Registry,
        subscriptions: Iterable[str],
        *,
        timeout_s: float = 30,
        refused: dict[str, FatalError] | None = None,
    ) -> dict[str, Owner]:
        wanted = list(subscriptions)
        late = names.intersection(wanted)
        if late and is_denied and refused is not None:
            refused |= {transaction_topic(name): FatalError("not authorised") for name in late}
            wanted = [name for name in wanted if name not in late]
        elif late:
            raise HiddenMarkersError("no end of markers in time", subscriptions=late)
        return read_owners(kafka, registry, wanted, timeout_s=timeout_s, refused=refused)

    for module in (claims, hidden_markers, ownership):
        monkeypatch.setattr(module, "read_owners", read)
    return names


def redefine(s: Scene, old: str, new: str) -> None:
    """Change the definitions and ask for a reload."""
    s.project.definitions = s.project.definitions.replace(old, new)
    s.project.write()
    with s.connect() as connection:
        connection.execute(f'NOTIFY "pgsluice_{s.slot}"'.encode())


def test_a_reload_goes_on_without_a_subscription_whose_markers_have_no_end(
    scene: Callable[..., Scene],
    database: Database,
    endless: set[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = scene(TWO, definitions={"watch_interval_s": 0.5})
    other = f"{s.slot}_other"
    endless.add(other)
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        connection.execute("CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (2)")

    with running_daemon(s, time.sleep):
        wait_for_copy_marker(s, "t", "ready")
        redefine(s, "TABLE t", "TABLE t, TABLE u")
        wait_for_copy_marker(s, "u", "ready")
        before, shown = s.markers(other), s.cli("status").out
        endless.clear()
        wait_for_copy_marker(s, "u", "ready", other)

    assert before == []
    assert "cannot be used: no end of markers in time (only its gateway needs" in shown
    assert "-> let nobody else write to the subscription's topic of markers" in shown
    assert caplog.messages.count("trying again") == 1, "an attempt has failed for it once more"
    assert s.rebuilt("t", other) == [(1,)]


def test_a_start_waits_for_the_only_subscription_that_is_not_held(
    scene: Callable[..., Scene], database: Database, kafka: str, endless: set[str]
) -> None:
    s = scene(TWO)
    compacted = NewTopic(
        transaction_topic(f"{s.slot}_other"), 1, 1, config={"cleanup.policy": "compact"}
    )
    create_topics(AdminClient({"bootstrap.servers": kafka}), [compacted])
    endless.add(s.slot)
    pauses: list[float] = []

    def pause(_: float) -> None:
        pauses.append(1)
        if len(pauses) == 3:
            endless.clear()

    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    with running_daemon(s, pause):
        wait_for_copy_marker(s, "t", "ready")

    assert s.rebuilt("t") == [(1,)]


def test_a_start_waits_while_the_registry_lacks_the_schemas_of_all_markers_that_there_are(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    s = scene(TWO)
    properties, other = {"bootstrap.servers": kafka}, f"{s.slot}_other"
    marked = transaction_topic(s.slot)
    ensure_topics(properties, [TopicSpec(marked), TopicSpec(transaction_topic(other))])
    other_version = struct.pack(">bI", 0, 1_999_999) + b"\xff" * 20
    send(properties, [(marked, 0, None, other_version, [])], "another")
    admin, pauses = AdminClient({"bootstrap.servers": kafka}), list[Any]()

    def pause(_: float) -> None:
        pauses.append(s.markers(other))
        if len(pauses) == 3:
            admin.delete_records([TopicPartition(marked, 0, 1)])[TopicPartition(marked, 0)].result()

    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    with running_daemon(s, pause):
        wait_for_copy_marker(s, "t", "ready", other)
        assert pauses[:3] == [[], [], []], "the one was copied without the other"
        wait_until(lambda: s.rebuilt("t") == [(1,)], 60, "the copy of the one that was not clear")


def test_what_a_person_must_put_right_is_said_though_markers_are_hidden(
    scene: Callable[..., Scene], database: Database, endless: set[str]
) -> None:
    s = scene(TWO)
    other = f"{s.slot}_other"
    endless.add(other)
    s.project.extra = {"topics.names": {f"{s.slot}.public.t": f"{other}.public.t"}}
    pauses: list[float] = []

    def pause(_: float) -> None:
        pauses.append(1)
        assert len(pauses) < 5, "it goes on trying"

    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    daemon = Daemon(
        load_settings(s.project.write()),
        endpos=None,
        stopping=lambda: False,
        pause=pause,
        report_copy=lambda _: None,
    )
    with pytest.raises(ConfigError, match=f"{other}.public.t"):
        daemon.run()


@pytest.mark.parametrize("endless", ["endless", "denied"], indirect=True)
def test_a_start_waits_for_a_subscription_whose_rows_nothing_would_copy(
    scene: Callable[..., Scene], database: Database, endless: set[str]
) -> None:
    s = scene(TWO.replace("{s}_other CONNECTION '' PUBLICATION p", "{s}_other" + UNCOPIED))
    other = f"{s.slot}_other"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        with running_daemon(s, time.sleep):
            wait_for_copy_marker(s, "t", "ready")
            connection.execute("INSERT INTO t VALUES (2)")
            wait_until_confirmed(connection, s.slot)
        endless.add(other)
        connection.execute("INSERT INTO t VALUES (3)")
        pauses: list[float] = []

        def pause(_: float) -> None:
            pauses.append(1)
            if len(pauses) == 2:
                endless.clear()

        with running_daemon(s, pause):
            wait_until(lambda: (3,) in s.rebuilt("t"), 60, "the gateway")
            endless.clear()
            connection.execute("INSERT INTO t VALUES (4)")
            wait_until(lambda: (4,) in s.rebuilt("t", other), 60, "the subscription")

    assert s.rebuilt("t", other) == [(2,), (3,), (4,)]


def test_a_reload_waits_for_a_subscription_whose_rows_nothing_would_copy(
    scene: Callable[..., Scene],
    database: Database,
    endless: set[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reloader, "_RETRY_S", 0.2)
    s = scene(TWO.replace("{s}_other CONNECTION '' PUBLICATION p", "{s}_other" + UNCOPIED))
    other = f"{s.slot}_other"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        connection.execute("CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1)")
        with running_daemon(s, time.sleep):
            wait_for_copy_marker(s, "t", "ready")
            endless.add(other)
            redefine(s, "TABLE t", "TABLE t, TABLE u")
            wait_until(lambda: "reload postponed" in caplog.text, 60, "the reload")
            connection.execute("INSERT INTO t VALUES (2)")
            wait_until(lambda: (2,) in s.rebuilt("t"), 60, "the gateway")
            endless.clear()
            wait_for_copy_marker(s, "u", "ready")
            connection.execute("INSERT INTO t VALUES (3)")
            wait_until(lambda: (3,) in s.rebuilt("t", other), 60, "the subscription")

    assert s.rebuilt("t", other) == [(2,), (3,)]
    hints = [vars(record).get("fields", {}).get("hint", "") for record in caplog.records]
    assert any(f"{other} cannot be left out" in hint for hint in hints)


def test_a_schema_of_somebody_else_under_the_markers_holds_that_subscription_alone(
    scene: Callable[..., Scene], database: Database, registry: str
) -> None:
    s = scene(TWO, definitions={"watch_interval_s": 0.5})
    other = f"{s.slot}_other"
    subject = f"{other}.transaction-value"
    foreign = {"type": "record", "name": "x", "fields": [{"name": "x", "type": "int"}]}
    with Registry({"url": registry}) as ids:
        ids.register(subject, foreign)
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")

    with running_daemon(s, time.sleep):
        wait_for_copy_marker(s, "t", "ready")
        shown = s.cli("status").out
        with SchemaRegistryClient({"url": registry}) as client:
            client.delete_subject(subject)
        wait_for_copy_marker(s, "t", "ready", other)

    assert f"refuses the schema of subject {subject}" in shown
    assert "-> delete from the registry what others have registered" in shown
    assert s.rebuilt("t", other) == [(1,)]
