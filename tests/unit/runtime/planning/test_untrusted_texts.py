"""Records of the progress topic that no gateway has written, as the log names them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.observe import Counters
from gateway.runtime.planning.untrusted_texts import trusted_progress
from gateway.sink.delivery.committed_state import CommittedState

RECORDS = 1000


def test_however_many_and_long_they_are_the_log_is_short(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    recovered = CommittedState(None, {}, (), unreadable=("copy " + "x" * 1_000_000,) * RECORDS)

    trusted_progress(cast("Any", None), recovered, counters)

    said = [str(getattr(record, "fields", "")) for record in caplog.records]
    assert 1 < len(said) < 50
    assert max(map(len, said)) < 1000
    assert str(RECORDS - len(said) + 1) in said[-1]
    assert counters.passed_over == RECORDS
