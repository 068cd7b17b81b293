from __future__ import annotations

from datetime import UTC, datetime

from gateway.core.watermark import EPOCH_US, unix_time


def test_postgresql_counts_from_the_beginning_of_2000() -> None:
    epoch = datetime(2000, 1, 1, tzinfo=UTC)
    assert epoch.timestamp() * 1_000_000 == EPOCH_US
    assert unix_time(0) == epoch.timestamp()
    assert unix_time(1_500_000) == epoch.timestamp() + 1.5
