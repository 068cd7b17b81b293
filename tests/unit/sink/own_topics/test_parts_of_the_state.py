"""Parts of the state are records of their own, in the Kafka transaction of the watermark."""

from __future__ import annotations

from gateway.core.lsn import ZERO_LSN
from gateway.core.watermark import StatePart, Watermark
from gateway.envelope.progress import decode_key, decode_value
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.own_topics.progress import KafkaProgress
from tests.support.gateway.routing_scene import Schemas


def test_a_part_is_written_before_the_position_and_removed_by_name() -> None:
    progress = KafkaProgress({}, SlotIdentity("1", "db", "slot"), Schemas())
    parts = (StatePart("set", "a/0.0", b"\0x"), StatePart("moves", "7/w", None))

    *records, position = progress.encode(Watermark(ZERO_LSN, 1, "", ()), parts=parts)

    found = []
    for _, _, key, value, _ in records:
        assert key is not None
        named = decode_key(key[5:])
        found.append((named.kind, named.name))
        if value is not None:
            assert decode_value(value[5:], named.kind, named.name) == parts[0]
    assert found == [("set", "a/0.0"), ("moves", "7/w")]
    assert [value is None for _, _, _, value, _ in records] == [False, True]
    assert position[2] is not None
    assert decode_key(position[2][5:]).kind == "position"
