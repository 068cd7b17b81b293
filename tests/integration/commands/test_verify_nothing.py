"""``verify`` of tables of which the source does not say what they should hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
DEFINITIONS = """
CREATE PUBLICATION log FOR TABLE t, u WITH (publish = 'insert');
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION log;
"""


def test_what_cannot_be_compared_is_said_before_anything_is_started(
    scene: MakeScene, database: Database, tmp_path: Path
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY)")
    folders = {name: str(tmp_path / name) for name in ("warehouse", "checkpoint")}
    s = scene(DEFINITIONS, consumer=folders)

    ended, one = s.cli("verify"), s.cli("verify", "--table", "U")

    why = "not compared: its publications do not publish delete and update"
    assert ended.out.splitlines() == [f"{s.slot}: public.{name}: {why}" for name in ("t", "u")]
    assert one.out.splitlines() == [f"{s.slot}: public.u: {why}"]
    for each in (ended, one):
        assert each.code == 1
        assert "none of these tables can be compared with the source" in each.err
        assert "starting Spark" not in each.err
