"""What the states of copies say about a subscription's tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_consumer.formats.commit_metadata import Version
from spark_consumer.kafka.markers import Copy
from spark_consumer.states.manifests import Hold, Manifest, TableState

BEFORE = Manifest(
    "markers",
    marker=5,
    end_lsn=80,
    tables={"public.t": TableState(Version(3), "topic")},
    copies={"public.t": "ready"},
)


@pytest.mark.parametrize("state", ["gone", "missing"])
def test_a_table_that_is_not_published_any_more_stays_and_keeps_nothing_waiting(
    state: str,
) -> None:
    copying = replace(BEFORE, copies={"public.t": "copying"})
    failed = replace(copying, held_by_job={"public.t": Hold("a failure", None, None)})

    after = failed.after([Copy(6, "public.t", state, "because")])

    assert after.complete_lsn == 80
    assert after.tables == BEFORE.tables
    assert not after.has_held_tables


def test_what_is_missing_is_named_as_in_the_source() -> None:
    held = BEFORE.after([Copy(6, "public.Order-x0020-lines", "held", "no key")])

    assert held.missing() == ["table public.Order lines is held by the gateway: no key"]


def test_a_held_table_is_incomplete_with_its_reason_until_it_is_copied() -> None:
    held = BEFORE.after([Copy(6, "public.t", "held", "no replica identity")])

    assert held.complete_lsn is None
    assert held.has_held_tables
    assert held.missing() == ["table public.t is held by the gateway: no replica identity"]

    copying = held.after([Copy(7, "public.t", "pending"), Copy(8, "public.t", "copying")])
    assert copying.missing() == ["table public.t: its copy is copying"]
    assert not copying.has_held_tables
    assert copying.after([Copy(9, "public.t", "ready")]).complete_lsn == 80
