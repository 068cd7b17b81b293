"""Several slots in one configuration: each group of subscriptions a gateway of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from itertools import groupby

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
    wait_until_confirmed,
)

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION low FOR TABLE t WHERE (a < 10);"
    "CREATE PUBLICATION high FOR TABLE t WHERE (a >= 10), other;"
    "CREATE SUBSCRIPTION {s}_low CONNECTION '' PUBLICATION low;"
    "CREATE SUBSCRIPTION {s}_high CONNECTION '' PUBLICATION high;"
)


def test_each_group_has_a_slot_and_a_process_and_one_status_shows_all(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b int); CREATE TABLE other (a int PRIMARY KEY);"
            "INSERT INTO t VALUES (1, 0), (11, 0); INSERT INTO other VALUES (1)"
        )
        slot = f"gw_{database.name}"
        groups = {"lows": [f"{slot}_low"], "rest": [f"{slot}_high"]}
        s = scene(DEFINITIONS, **{"source.groups": groups})
        for group in groups:
            gateway = s.project.start("--group", group)
            gateway.wait_until_copied()
        connection.execute("UPDATE t SET a = a + 100; INSERT INTO t VALUES (2, 0)")
        for group in groups:
            wait_until_confirmed(connection, f"{slot}_{group}")

        status = s.cli("status", "--json")
        parts = [json.loads(line) for line in status.out.splitlines()]
        check = s.cli("check")
        reload = s.cli("reload", "--group", "rest")
        first, second = s.project.processes
        assert first.terminate() == 0
        absent = s.cli("copy", "t", "--group", "lows", "--timeout", "60")
        slots = value_of(
            connection,
            "SELECT array_agg(slot_name::text ORDER BY slot_name) FROM pg_replication_slots"
            " WHERE database = %s",
            database.name,
        )
    assert second.terminate() == 0

    assert slots == [f"{slot}_lows", f"{slot}_rest"]
    assert (status.code, [part["slot"]["name"] for part in parts]) == (0, slots)
    assert [sorted({each["subscription"] for each in part["tables"]}) for part in parts] == [
        [f"{slot}_low"],
        [f"{slot}_high"],
    ]
    assert check.code == 0, check.out
    assert reload.code == 0, reload.err
    assert absent.code == 1, "although the gateway of the other group runs"
    assert f'no gateway reads replication slot "{slot}_lows"' in absent.err
    assert s.rebuilt("t", f"{slot}_low") == [(2, 0)]
    assert s.rebuilt("t", f"{slot}_high") == [(101, 0), (111, 0)]
    assert_exactly_once(s, ["t"], f"{slot}_low")
    assert_exactly_once(s, ["t", "other"], f"{slot}_high")
    assert s.cli("status").code == 75, "no gateway reads any of the slots"


def test_a_subscription_that_moves_to_another_group_and_back_is_published_once(
    scene: Callable[..., Scene], database: Database
) -> None:
    slot = f"gw_{database.name}"
    low, high = f"{slot}_low", f"{slot}_high"
    before, after = {"lows": [low], "rest": [high]}, {"lows": [], "rest": [low, high]}
    s = scene(DEFINITIONS, **{"source.groups": before})

    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b int); CREATE TABLE other (a int PRIMARY KEY);"
            "INSERT INTO t VALUES (1, 0), (2, 0), (11, 0)"
        )

        def run(group: str, groups: dict[str, list[str]]) -> None:
            s.project.extra = {"source.groups": groups}
            ended = s.cli("run", "--group", group, "--endpos", current_lsn(connection))
            assert ended.code == 0, ended.err

        run("lows", before)
        run("rest", before)
        connection.execute("UPDATE t SET b = 1 WHERE a = 1")
        run("lows", before)
        connection.execute("DELETE FROM t WHERE a = 2; INSERT INTO t VALUES (3, 0)")
        run("rest", after)
        connection.execute("INSERT INTO t VALUES (2, 5); DELETE FROM t WHERE a = 3")
        run("rest", after)
        connection.execute("INSERT INTO t VALUES (4, 0)")
        # Nothing was read by the gateway of this group since; it dies wherever it can on its way.
        s.project.extra = {"source.groups": before}
        points = ("start.topics_claimed", "start.offsets_forgotten", "copy.announced")
        died = [
            s.project.start("--group", "lows", environment={"PGSLUICE_FAILPOINT": point}).wait()
            for point in points
        ]
        run("lows", before)
        connection.execute("UPDATE t SET b = 2 WHERE a = 4")
        run("lows", before)
        rows = sorted(connection.execute("SELECT * FROM t WHERE a < 10").fetchall())

    assert died == [-signal.SIGKILL] * len(points)
    assert s.rebuilt("t", low) == rows
    markers = s.markers(low)
    ends = [(m["xid"], m["commit_lsn"]) for m in markers if m["kind"] == "END"]
    assert ends == sorted(set(ends), key=lambda end: end[1]), "published twice, or out of order"
    writers = [m["writer"]["slot"] for m in markers]
    assert [name for name, _ in groupby(writers)] == [
        f"{slot}_{g}" for g in ("lows", "rest", "lows")
    ]


def test_a_move_without_copies_says_which_changes_may_be_lost_and_its_hint_finds_them(
    scene: Callable[..., Scene], database: Database
) -> None:
    slot = f"gw_{database.name}"
    low, high = f"{slot}_low", f"{slot}_high"
    before, after = {"lows": [low], "rest": [high]}, {"lows": [], "rest": [low, high]}
    definitions = DEFINITIONS.replace("PUBLICATION low;", "PUBLICATION low WITH (copy_data=false);")
    s = scene(definitions, **{"source.groups": before})
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b int); CREATE TABLE other (a int PRIMARY KEY)"
        )

        def run(group: str, groups: dict[str, list[str]]) -> str:
            s.project.extra = {"source.groups": groups}
            ended = s.cli("run", "--group", group, "--endpos", current_lsn(connection))
            assert ended.code == 0, ended.err
            return ended.err

        run("lows", before)
        connection.execute("INSERT INTO t VALUES (1, 0)")
        run("rest", before)
        moved = run("rest", after)
        missing = s.rebuilt("t", low)
        back = run("lows", before)

    warning = "changes of a subscription with copy_data = false may be lost"
    assert f"subscription={low}" in moved.partition(warning)[2]
    assert missing == []
    assert warning not in back
    assert s.rebuilt("t", low) == [(1, 0)]


def test_a_gateway_that_is_not_told_its_group_says_which_there_are(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE other (a int)")
        endpos = current_lsn(connection)
    slot = f"gw_{database.name}"
    s = scene(DEFINITIONS, **{"source.groups": {"lows": [f"{slot}_low"], "rest": []}})

    untold = s.cli("run", "--endpos", endpos)
    unknown = s.cli("run", "--group", "high", "--endpos", endpos)
    ungrouped = s.cli("run", "--group", "lows", "--endpos", endpos)

    assert (untold.code, unknown.code, ungrouped.code) == (1, 1, 1)
    assert "source.groups: which group is meant?" in untold.err
    assert "there is no group 'high'" in unknown.err
    assert "name one with --group: lows, rest" in untold.err
    assert "name one with --group: lows, rest" in unknown.err
    assert f"subscription {slot}_high is in none of the groups" in ungrouped.err
