"""The state of a copy that does not fit into a record is written as one that begins again."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from gateway.copy import Progress
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import CopyState, Watermark
from gateway.envelope.progress import copy_name, decode_value
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.own_topics.progress import KafkaProgress
from tests.support.gateway.routing_scene import Schemas

STATE = CopyState("s", "public", "t", "copying", Lsn(5), "d", oid=7, taken="{}", topic="s.public.t")


def written(progress: KafkaProgress, state: CopyState) -> tuple[int, CopyState]:
    records = progress.encode(Watermark(ZERO_LSN, 1, "", (state,)))
    (value,) = [value for *_, value, _ in records[:-1]]
    assert value is not None
    found = decode_value(value[5:], "copy", copy_name(state))
    assert isinstance(found, CopyState)
    return len(value), found


def test_a_list_of_keys_that_is_too_long_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    kafka = {"message.max.bytes": 100_000}
    progress = KafkaProgress(kafka, SlotIdentity("1", "db", "slot"), Schemas())
    few = replace(STATE, progress=Progress((b"9",), again=tuple((b"%09d" % n,) for n in range(9))))
    many = replace(
        STATE, progress=Progress((b"9",), again=tuple((b"%09d" % n,) for n in range(20_000)))
    )
    ready = replace(STATE, state="ready", progress=Progress((b"9",), complete=True))

    assert written(progress, few)[1] == few
    with caplog.at_level(logging.WARNING):
        size, found = written(progress, many)
        written(progress, replace(many, published=1))
    assert size < 100_000
    assert found.state == "pending"
    assert (found.progress, found.consistent_point) == (Progress(), None)
    assert (found.oid, found.definition, found.topic) == (7, "d", "s.public.t")
    assert len(caplog.records) == 1
    assert written(progress, ready)[1] == ready
