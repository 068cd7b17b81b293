"""Markers that cannot be read: the subscription waits, and neither it nor others lose anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import pytest

from gateway.core.errors import FatalError, HiddenMarkersError
from gateway.runtime.planning import hidden_markers, ownership
from gateway.sink.own_topics import claims
from gateway.sink.own_topics.owners import Owner, read_owners
from gateway.sink.registry.registry import Registry
from tests.security.topics.test_claims import TWO, running_daemon
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, wait_for_copy_marker

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Subscriptions whose markers have no end in time, as while somebody writes there."""
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
        if late := names.intersection(wanted):
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
    scene: Callable[..., Scene], database: Database, endless: set[str]
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
        before = s.markers(other)
        endless.clear()
        wait_for_copy_marker(s, "u", "ready", other)

    assert before == []
    assert s.rebuilt("t", other) == [(1,)]
