"""Which schemas a start does not wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyState, Watermark
from gateway.definitions.model import Plan, TableCopy
from gateway.routing.build.known_schemas import registered_before
from tests.support.gateway.routing_scene import T1, T1_TABLE

READY = CopyState("s", "public", "t1", "ready", Lsn(5))
PLAN = Plan({T1: T1_TABLE}, (), (), (TableCopy("s", T1, (), ("a", "b")),), ())


@pytest.mark.parametrize(
    ("states", "known"),
    [
        ((READY,), "f"),
        ((READY, replace(READY, subscription="other", state="held")), "f"),
        ((replace(READY, state="copying"),), ""),
        ((replace(READY, asked="(a > 1)"),), ""),
        ((replace(READY, state="held"),), ""),
        ((), ""),
    ],
)
def test_a_start_waits_for_all_schemas_while_a_table_is_to_be_copied(
    states: tuple[CopyState, ...], known: str
) -> None:
    watermark = Watermark(Lsn(9), 1, "d", states, schemas="f")

    assert registered_before(PLAN, watermark) == known
