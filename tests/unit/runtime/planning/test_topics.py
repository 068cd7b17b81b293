"""Which topics may be compacted: those in which a key stands for one row."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import load_settings
from gateway.definitions.model import Operation, Plan, Publish, SubscriptionDefinition, Table
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.runtime.planning.topics import table_topics
from tests.support.gateway.routing_scene import CHILD, PARENT, T1, column, publish, table
from tests.unit.runtime.planning.test_envelope_settings import FILE

COLUMNS = (column("customer", 1), column("id", 2), column("v", 3))
ALL = ("customer", "id", "v")
DEFAULT, FULL = ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL
ROWS = frozenset({Operation.INSERT, Operation.UPDATE, Operation.DELETE})
INSERTS = frozenset({Operation.INSERT})


def of(how: ReplicaIdentity, identity: tuple[str, ...], primary_key: tuple[str, ...]) -> Table:
    return table(T1, "t", COLUMNS, replica_identity=how, identity=identity, primary_key=primary_key)


FULL_WITH_KEY = of(FULL, ALL, ("id",))
FULL_WITHOUT_KEY = of(FULL, ALL, ())
KEYED = of(DEFAULT, ("id",), ("id",))


def forbidden(
    folder: Path, keys: tuple[str, ...], tables: list[Table], publishes: list[Publish]
) -> bool:
    (folder / "pgsluice.toml").write_text(f'{FILE}[topics.keys]\n"public.t" = {list(keys)}')
    settings = load_settings(folder / "pgsluice.toml", {})
    (topic,) = table_topics(
        Plan(
            {one.oid: one for one in tables},
            (SubscriptionDefinition("s", ("p",)),),
            tuple(publishes),
            (),
            (),
            topics=settings.topics,
        ),
        settings,
    )
    return topic.forbid_compaction


@pytest.mark.parametrize(
    ("one", "keys", "published", "expected"),
    [
        (FULL_WITH_KEY, ("id",), publish(operations=ROWS), False),
        (FULL_WITH_KEY, ("customer", "id"), publish(operations=ROWS), False),
        (FULL_WITH_KEY, ("customer",), publish(operations=ROWS), True),
        (FULL_WITHOUT_KEY, ALL, publish(operations=ROWS), True),
        (KEYED, ("id",), publish(operations=ROWS), False),
        (KEYED, ("id",), publish(), True),
        (KEYED, ("v",), publish(operations=INSERTS, columns=("customer", "v")), True),
    ],
)
def test_compaction_is_forbidden_unless_a_key_stands_for_one_row(
    tmp_path: Path, one: Table, keys: tuple[str, ...], published: Publish, expected: bool
) -> None:
    assert forbidden(tmp_path, keys, [one], [published]) is expected


@pytest.mark.parametrize("how", [FULL, DEFAULT])
def test_a_tree_s_topic_is_judged_by_the_operations_of_all_its_partitions(
    tmp_path: Path, how: ReplicaIdentity
) -> None:
    root = table(PARENT, "t", COLUMNS, identity=("id",), primary_key=("id",), kind="p")
    leaf = table(CHILD, "leaf", COLUMNS, replica_identity=how, ancestors=(PARENT,))
    publishes = [
        publish(relation=CHILD, target=PARENT),
        publish(relation=PARENT, operations=INSERTS),
    ]

    assert forbidden(tmp_path, ("id",), [root, leaf], publishes)
