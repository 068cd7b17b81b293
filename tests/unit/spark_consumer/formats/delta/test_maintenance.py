"""How long Delta keeps files and log, as its properties say it."""

from __future__ import annotations

import pytest

from spark_consumer.formats.delta.maintenance import hours_of


@pytest.mark.parametrize(
    ("interval", "hours"),
    [
        ("interval 1 week", 168),
        ("interval 9999 hours", 9999),
        ("INTERVAL 30 DAYS", 720),
        ("2 days 12 hours", 60),
        ("interval 90 minutes 1800 seconds", 2),
        ("interval 3600000 milliseconds", 1),
    ],
)
def test_an_interval_is_read_in_hours(interval: str, hours: float) -> None:
    assert hours_of(interval) == pytest.approx(hours)


@pytest.mark.parametrize("interval", ["", "interval", "forever", "1 day and a bit", "3 moons"])
def test_what_is_no_interval_is_refused(interval: str) -> None:
    with pytest.raises(ValueError, match="is no interval"):
        hours_of(interval)
