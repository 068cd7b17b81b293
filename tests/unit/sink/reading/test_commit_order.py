"""The order of records over partitions, where their positions alone do not give it."""

from __future__ import annotations

from confluent_kafka import Message

from gateway.sink.reading.commit_order import in_order


def message(partition: int, op: str, key: str = "", *, lsn: bytes = b"1", seq: int = 0) -> Message:
    headers: dict[str, str | bytes | None] = {"commit_lsn": lsn, "seq": b"%d" % seq}
    headers["op"] = op.encode()
    return Message("s1.public.t", partition, 0, key.encode(), b"", headers)


def test_a_copy_over_several_partitions_begins_once_and_before_all_of_its_rows() -> None:
    first = [
        message(0, "c", "0", lsn=b"0", seq=1),
        *(message(0, "t"), message(0, "r", "a"), message(0, "t"), message(0, "r", "b")),
    ]
    second = [
        *(message(1, "t"), message(1, "r", "c"), message(1, "t"), message(1, "r", "d")),
        *(message(1, "t", seq=3), message(1, "c", "e", seq=4)),
    ]
    third = [message(2, "t"), message(2, "t"), message(2, "r", "f"), message(2, "t", seq=3)]
    first += [message(0, "t", seq=3)]

    rows: list[set[bytes | str]] = [set()]
    for one in in_order([first, second, third]):
        op = dict(one.headers() or ())["op"]
        if op == b"t":
            rows.append(set())
        else:
            rows[-1].add(one.key() or b"")

    assert rows == [{b"0"}, {b"a", b"c"}, {b"b", b"d", b"f"}, {b"e"}]
