"""Commands that ask: a gateway that is not there, for what is not so, or the operator."""

from __future__ import annotations

import os
import pty
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Ended,
    Scene,
    current_lsn,
    unhurried,
    value_of,
    wait_until_slot_is_free,
)

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t, u;
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""


@pytest.fixture
def published(scene: MakeScene, database: Database) -> Scene:
    """Tables that were copied by a gateway that has ended."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
        s = scene(DEFINITIONS)
        s.run_to("0/1")
        wait_until_slot_is_free(connection, s.slot)
    return s


def beginnings(s: Scene) -> int:
    return sum(r.value is not None and r.value["op"] == "t" for r in s.read("t"))


def test_a_request_that_no_gateway_has_accepted_is_cancelled(published: Scene) -> None:
    s = published
    nothing, nothing_of_it = s.cli("copy", "--cancel"), s.cli("copy", "t", "--cancel")
    requested = s.cli("copy", "t", "--no-wait")
    nothing_else = s.cli("copy", "u", "--cancel")
    cancelled = s.cli("copy", "--cancel")
    again = s.cli("copy", "--cancel")
    with s.connect() as connection:
        s.run_to(current_lsn(connection))

    for ended in (nothing, nothing_of_it, nothing_else, again):
        assert (ended.code, unhurried(ended.err), ended.out.count("\n")) == (0, "", 1)
        assert ended.out.startswith("nothing to cancel")
    assert requested.code == 1
    assert "`pgsluice copy --cancel` withdraws it" in requested.err
    assert cancelled.code == 1
    assert "the request is kept: `pgsluice run` accepts it when it starts" in cancelled.err
    assert beginnings(s) == 1


def test_definitions_are_not_in_force_where_no_gateway_is(published: Scene) -> None:
    unchanged = published.cli("reload")

    assert unchanged.code == 1
    assert "in force" not in unchanged.out
    assert "no gateway reads replication slot" in unchanged.err


def answered(s: Scene, answer: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> Ended:
    """Run `slot drop` at a terminal where somebody types `answer`."""
    screen, terminal = pty.openpty()
    os.write(screen, f"{answer}\n".encode())
    with os.fdopen(terminal) as keyboard, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", keyboard)
        ended = s.cli("slot", "drop", *more)
    os.close(screen)
    return ended


def test_a_slot_is_dropped_when_the_operator_agrees(
    published: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = published
    exists = "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)"
    with s.connect() as connection:
        with Path(os.devnull).open() as nobody, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", nobody)
            script = s.cli("slot", "drop")
        declined = answered(s, "", monkeypatch)
        assert value_of(connection, exists, s.slot)
        agreed = answered(s, "y", monkeypatch)
        assert not value_of(connection, exists, s.slot)
        other = answered(s, "n", monkeypatch, "--system-identifier", "1")

    assert script.code == 2
    assert "with --yes it asks nothing" in script.err
    assert declined.code == other.code == 1
    assert declined.out.endswith("[y/N] nothing was dropped\n")
    assert agreed.code == 0, agreed.err
    assert f"slot {s.slot} dropped" in agreed.out
