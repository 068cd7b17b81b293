"""The Spark job's figures as Prometheus reads them."""

from __future__ import annotations

import re
import time
from urllib.request import urlopen

import pytest

from spark_consumer.errors import SettingsError
from spark_consumer.metrics import Figures, serve


def test_figures_are_served_by_subscription() -> None:
    figures = Figures(end_lsn=256, commit_time=1_500_000, records=7, cuts=2, tables_aside=1)
    figures.skipped = 3
    assert figures.lag == 0
    figures.waiting_since = int((time.time() - 60) * 1_000_000)
    with figures.phase("apply"):
        pass

    with (
        serve("127.0.0.1:0", {'s"1': figures}) as port,
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer,
    ):
        text = answer.read().decode()

    assert 'pgsluice_consumer_end_lsn{subscription="s\\"1"} 256' in text
    assert 'pgsluice_consumer_commit_timestamp_seconds{subscription="s\\"1"} 1.5' in text
    assert 'pgsluice_consumer_records_total{subscription="s\\"1"} 7' in text
    assert 'pgsluice_consumer_skipped_total{subscription="s\\"1"} 3' in text
    assert 'pgsluice_consumer_tables_aside{subscription="s\\"1"} 1' in text
    lag = re.search(r'pgsluice_consumer_lag_seconds{subscription="s\\"1"} ([0-9.]+)', text)
    assert lag is not None and 60 <= float(lag[1]) < 120
    assert 'pgsluice_consumer_phase_seconds_total{subscription="s\\"1",phase="apply"} 0.0' in text


def test_an_address_that_cannot_be_used_is_named() -> None:
    complaint = "metrics_listen: 'nowhere' cannot be used"
    with pytest.raises(SettingsError, match=complaint), serve("nowhere", {}):
        pass
