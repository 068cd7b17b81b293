"""Tables that are held because of their keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config import load_settings
from gateway.definitions.model import Operation, Plan, SubscriptionDefinition, Table
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.runtime.planning.table_checks import key_faults
from tests.support.gateway.routing_scene import T1, column, publish, table
from tests.unit.runtime.planning.test_envelope_settings import FILE

COLUMNS = (column("a", 1), column("b", 2))
FULL = table(T1, "t", COLUMNS, identity=("a", "b"), replica_identity=ReplicaIdentity.FULL)
KEYLESS = replace(FULL, primary_key=())
BARE = table(T1, "t", COLUMNS, identity=(), primary_key=())


@pytest.mark.parametrize(
    ("one", "keys", "copied", "uncopied"),
    [
        (FULL, '["b", "a"]', None, None),
        (FULL, '["b"]', "several rows", "several rows"),
        (KEYLESS, "[]", "has no key", None),
        (KEYLESS, '["b"]', "has no key", "several rows"),
        (BARE, "[]", "has no key", None),
        (BARE, '["b"]', "has no key", "several rows"),
    ],
)
@pytest.mark.parametrize("copy_data", [True, False])
def test_without_truncates_a_key_has_to_stand_for_one_row(
    tmp_path: Path, one: Table, keys: str, copied: str | None, uncopied: str | None, copy_data: bool
) -> None:
    lines = '[envelope]\nformat = "row"\n'
    if keys != "[]":
        lines += f'[topics.keys]\n"public.t" = {keys}'
    (tmp_path / "pgsluice.toml").write_text(f"{FILE}{lines}")
    settings = load_settings(tmp_path / "pgsluice.toml", {})
    operations = frozenset({Operation.INSERT})
    plan = Plan(
        {T1: one},
        (SubscriptionDefinition("s", ("p",), copy_data=copy_data),),
        (publish(operations=operations),),
        (),
        (),
    )

    faults = key_faults(settings, plan)

    expected = copied if copy_data else uncopied
    assert set(faults) == ({("s", T1)} if expected else set())
    assert all(str(expected) in fault.reason for fault in faults.values())
