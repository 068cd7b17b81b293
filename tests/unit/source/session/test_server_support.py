"""Which servers are refused, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.source.session.connection import ServerFacts
from gateway.source.session.server_support import unsupported, untested, without_logical_wal

SERVER = ServerFacts("1", "d", 1, 180001, "UTF8", "logical", False, 10, 10, "1GB", "r", True)


def test_a_server_newer_than_the_newest_tested_is_refused_unless_it_is_wanted() -> None:
    newer = replace(SERVER, version_num=190000)

    assert untested(SERVER) is None
    (refusal,) = unsupported(newer, allow_untested=False)
    assert "PostgreSQL 19; this release is tested up to 18" in refusal.message
    assert unsupported(newer, allow_untested=True) == []


@pytest.mark.parametrize(
    ("wal_level", "effective", "enough"),
    [
        ("logical", None, True),
        ("replica", None, False),
        ("replica", "replica", True),  # the first logical slot raises it
        ("replica", "logical", True),
        ("minimal", "minimal", False),
    ],
)
def test_wal_level_replica_is_enough_where_the_server_raises_it(
    wal_level: str, effective: str | None, enough: bool
) -> None:
    facts = replace(SERVER, wal_level=wal_level, effective_wal_level=effective)

    assert (without_logical_wal(facts) is None) is enough
