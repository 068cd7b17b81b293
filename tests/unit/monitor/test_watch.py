"""Status of the source server between two polls."""

from __future__ import annotations

import time
from pathlib import Path

from gateway.core.errors import AccessError, TransientError
from gateway.core.lsn import Lsn
from gateway.monitor.notify import Notifier
from gateway.monitor.watch import View, Watch
from gateway.observe import Counters
from tests.unit.config.test_config import load
from tests.unit.monitor.figures import SLOT, loop_state


def seen_before_an_attempt(path: Path, counters: Counters) -> Watch:
    """A watch that has not looked again since the latest attempt began."""
    watch = Watch(load(path), counters, Notifier({}), server=False)
    watch.view = View(0.0, Lsn(1000), SLOT, ())
    counters.enter("retrying")
    return watch


def test_what_was_seen_before_an_attempt_does_not_count(tmp_path: Path) -> None:
    counters = Counters()
    counters.set_denied(TransientError("the server does not answer"))
    assert seen_before_an_attempt(tmp_path, counters).status() is None


def test_a_refused_access_is_said_while_another_attempt_begins(tmp_path: Path) -> None:
    counters = Counters()
    counters.set_denied(AccessError("Kafka refuses the user", hint="grant it"))
    status = seen_before_an_attempt(tmp_path, counters).status()
    assert status is not None
    assert status.denied == {"Kafka refuses the user": "grant it"}


def test_the_position_of_the_server_is_never_behind_the_watermark_while_it_streams(
    tmp_path: Path,
) -> None:
    counters = Counters()
    watch = Watch(load(tmp_path), counters, Notifier({}), server=False)
    counters.enter("streaming")
    counters.post(loop_state(durable_lsn=1_500, last_change=42.25))
    watch.view = View(time.monotonic(), Lsn(1000), SLOT, ())

    status = watch.status()

    assert status is not None
    assert (status.server_lsn, status.lag_bytes, status.last_change) == (1_500, 0, 42.25)
