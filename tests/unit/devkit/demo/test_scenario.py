from __future__ import annotations

from itertools import islice

from devkit.demo.scenario import PUBLICATIONS, SUBSCRIPTIONS, replication_sql, traffic
from gateway.definitions.sql.parser import parse_definitions


def test_the_definitions_file_parses_and_defines_what_is_played_natively() -> None:
    definitions = parse_definitions(replication_sql())

    assert [s.name for s in definitions.subscriptions] == [s.name for s in SUBSCRIPTIONS]
    assert len(definitions.publications) == len(PUBLICATIONS)


def test_every_subscription_names_publications_that_the_file_defines() -> None:
    definitions = parse_definitions(replication_sql())
    defined = {p.name for p in definitions.publications}

    assert {name for s in definitions.subscriptions for name in s.publications} == defined


def test_the_filters_are_those_that_the_manual_prints() -> None:
    definitions = parse_definitions(replication_sql())

    shown = {p.name: [(t.name, t.where) for t in p.tables] for p in definitions.publications}

    assert shown == {
        "p1": [("t1", "a > 5 AND c = 'NSW'")],
        "p2": [("t1", None), ("t2", "e = 99")],
        "p3": [("t2", "d = 10"), ("t3", "g = 10")],
        "p4": [("parent", "a < 5"), ("child", "a >= 5")],
        "p4_leaf": [("parent", None), ("child", "a >= 5")],
    }


def test_both_values_of_publish_via_partition_root_are_there() -> None:
    definitions = parse_definitions(replication_sql())

    assert {p.name: p.via_root for p in definitions.publications} == {
        "p1": False,
        "p2": False,
        "p3": False,
        "p4": True,
        "p4_leaf": False,
    }


def test_the_same_seed_gives_the_same_traffic() -> None:
    assert list(traffic(7, 200)) == list(traffic(7, 200))
    assert list(traffic(7, 200)) != list(traffic(8, 200))


def test_traffic_has_every_kind_of_statement_and_rollbacks() -> None:
    steps = list(islice(traffic(1, 300), 300))
    verbs = {statement.split()[0] for step in steps for statement in step.statements}

    assert verbs == {"INSERT", "UPDATE", "DELETE"}
    assert any(step.rolled_back for step in steps)
    assert any(len(step.statements) > 1 for step in steps)
