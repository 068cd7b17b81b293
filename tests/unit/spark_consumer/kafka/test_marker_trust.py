"""Which markers the job believes, which schemas, and which table a failure belongs to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

import schemas
from spark_consumer.errors import (
    AccessError,
    ContractError,
    FatalConsumerError,
    TransientConsumerError,
)
from spark_consumer.kafka.marker_trust import Refused, Witness, owner_before, warnings
from spark_consumer.kafka.markers import Claim, Copy, Damaged, Marker, MarkerRecord, Range
from spark_consumer.kafka.position import Gap, Position, Share, TopicState, share
from spark_consumer.kafka.schema_contract import parsed_schema
from spark_consumer.spark.failures import MemoryShortError, SparkFailedError, as_error, every_table

OURS = ("7001", "shop", "pgsluice")
OTHERS = ("7002", "shop", "pgsluice")
T = "s1.public.t"


def progress(offset: int, end_lsn: int, *ranges: Range, topic: str = T, **more: Any) -> Marker:
    return Marker(
        offset, end_lsn, None, {topic: ranges} if ranges else {}, **{"writer": OURS} | more
    )


def refusals(witness: Witness, *read: MarkerRecord) -> dict[int, str]:
    return {one.offset: one.reason for one in witness.judge(read) if isinstance(one, Refused)}


def witness(owner: tuple[str, str, str] | None = OURS, *topics: str) -> Witness:
    return Witness("s1", topics, owner)


GOOD = Range(0, 5, 9, 5, 4)


@pytest.mark.parametrize(
    "topic",
    [
        "s2.public.secret",
        "s1.transaction",
        "s1",
        "s10.public.t",
        "pgsluice.progress",
        "",
        "s1.no such topic!",
        f"s1.{'t' * 247}",
    ],
)
def test_a_marker_that_names_a_topic_of_others_is_passed_over(topic: str) -> None:
    found = refusals(witness(), progress(3, 16, GOOD, topic=topic), progress(4, 32, GOOD))

    assert list(found) == [3]
    assert found[3] == f"it names topic {topic}, which is not one of this subscription's"


def test_a_topic_that_the_configuration_names_is_one_of_the_subscription_s() -> None:
    assert not refusals(witness(OURS, "orders"), progress(3, 16, GOOD, topic="orders"))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GOOD, first=4),
        replace(GOOD, next=5),
        replace(GOOD, previous=-1, first=-1),
        replace(GOOD, records=0),
        replace(GOOD, partition=-1),
        replace(GOOD, partition=7),
        replace(GOOD, next=1 << 40),
    ],
)
def test_a_range_that_cannot_be_is_a_gap_of_its_table(wrong: Range) -> None:
    state = TopicState("id", {0: 0}, {0: 9})
    known = Position("markers", 2, 8, None, T, "id", {0: 5})

    assert isinstance(share(T, "markers", state, [progress(3, 16, GOOD)], known), Share)
    assert isinstance(share(T, "markers", state, [progress(3, 16, wrong)], known), Gap)
    assert isinstance(share(T, "markers", state, [progress(3, 16, GOOD, GOOD)], known), Gap)


def test_only_the_owner_is_believed_and_who_takes_the_topics_over_on_purpose() -> None:
    other = replace(progress(4, 1 << 60), writer=OTHERS)
    judge = witness(None)

    assert not refusals(judge, Claim(0, OURS, None), progress(1, 16, GOOD))
    found = refusals(
        judge,
        other,
        replace(other, offset=5, writer=None),
        Copy(6, "public.t", "gone", writer=OTHERS),
        Claim(7, OTHERS, None),
        Claim(8, OTHERS, ("7003", "shop", "pgsluice")),
        replace(other, offset=9),
    )
    assert list(found) == [4, 5, 6, 7, 8, 9]
    assert found[4] == (
        "it was written by slot 'pgsluice' of database 'shop' on system 7002, and the topics are"
        " those of slot 'pgsluice' of database 'shop' on system 7001"
    )
    assert "an unnamed writer" in found[5]

    found = refusals(judge, Claim(10, OTHERS, OURS), replace(other, offset=11), progress(12, 99))
    assert list(found) == [12]


def test_a_lesser_lsn_withdraws_what_was_claimed_and_a_copy_may_begin_at_one() -> None:
    judge = witness()
    believed = list(judge.judge([progress(1, 16), progress(2, 1 << 60), progress(3, 32, GOOD)]))

    assert [one.offset for one in believed] == [1, 2, 3]
    assert judge.withdrawn == [(3, 32, 1 << 60)]
    judge.withdrawn.clear()
    restored: list[Marker | Copy] = [
        Copy(4, "public.t", "pending", writer=OURS),
        progress(5, 8),
        progress(6, 9),
    ]
    assert not refusals(judge, *restored)
    assert not judge.withdrawn
    assert refusals(judge, progress(7, -1)) == {7: "end_lsn -1 is no LSN"}


def nested(depth: int) -> Any:
    return "int" if not depth else {"type": "array", "items": nested(depth - 1)}


def record(*kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": "R", "fields": fields}


def test_the_gateway_s_own_schemas_are_accepted() -> None:
    for name in ("envelope", "transaction", "progress"):
        schema = schemas.load(name)
        assert parsed_schema(1, json.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it (is not JSON|s JSON is nested too deeply)|its JSON"),
        ('"string"', "it is not a record"),
        (" " * 5_000_000, "it has 5000000 characters"),
        (record({"type": "map", "values": "int"}), "it names a type that it does not have"),
        (record({"type": "map", "values": "null"}), "it names a type that it does not have"),
        (record({"type": "array", "items": "null"}), "items that take no bytes"),
        (record({"type": "array", "items": record()}), "items that take no bytes"),
        (record({"type": "fixed", "name": "F", "size": 1 << 30}), "a fixed type of size"),
        (record(["null", {"type": "array", "items": "R"}]), "a type inside itself"),
        (record(nested(20)), "nested more than 10 deep"),
        (record(*["int"] * 50_000), "more than 40000 types"),
        (record() | {"fields": [{"name": "a`b", "type": "int"}]}, "proper name"),
        (record() | {"fields": [{"type": "int"}]}, "proper name"),
        (record("int", ["null", ["int"]]), "a union in a union"),
    ],
)  # fmt: skip
def test_a_schema_that_no_gateway_writes_is_refused(schema: Any, why: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)

    with pytest.raises(ContractError, match=rf"schema 7 is refused: .*({why})"):
        parsed_schema(7, text)


def test_a_failure_is_the_table_s_unless_it_is_known_to_be_of_all() -> None:
    try:
        raise ValueError("year 294247 is out of range")
    except ValueError as error:
        known = as_error("table t", error)
    assert isinstance(known, FatalConsumerError)
    assert known.message == "table t: the job failed on it (ValueError)"
    assert every_table(known) is None

    spark = as_error("table t", PySparkException("boom"))
    assert isinstance(spark, SparkFailedError)
    assert every_table(spark) is None
    for text in ("[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] ...", "org.apache.avro.X: y"):
        assert isinstance(as_error("table t", PySparkException(text)), ContractError)
        # As Spark reports that the JVM ran out of memory while Avro decoded a record.
        short = PySparkException(f"{text} Caused by: java.lang.OutOfMemoryError: Java heap space")
        assert isinstance(as_error("table t", short), MemoryShortError)

    away = TransientConsumerError("the broker does not answer")
    assert every_table(away) is away
    refused = AccessError("the broker refuses access")
    assert every_table(refused) is refused
    gone = every_table(Py4JNetworkError("Answer from Java side is empty"))
    assert gone is not None and gone.message == "Spark has ended"


def test_a_record_that_is_no_marker_is_passed_over_and_moves_no_owner() -> None:
    found = refusals(witness(None), Damaged(1, "it is none"), progress(2, 16, GOOD))

    assert found == {1: "it is none"}


def test_the_owner_of_past_markers_is_whose_they_were_then_and_not_who_wrote_first() -> None:
    third = ("7003", "shop", "pgsluice")
    forged = progress(4, 16, GOOD, writer=OTHERS)
    claimed = Claim(6, third, OURS)
    stray = Claim(7, OTHERS, OURS)
    read: list[MarkerRecord] = [forged, progress(5, 16, GOOD), claimed, stray]
    read.append(progress(8, 32, writer=third))

    assert owner_before(read, third) == OURS
    assert list(refusals(witness(owner_before(read, third)), *read)) == [4, 7]
    assert owner_before(read[:2], OURS) == OURS
    assert owner_before(read, None) is None


def test_however_many_markers_are_passed_over_the_log_is_short() -> None:
    refused = [Refused(offset, "it names topic " + "x" * 100_000) for offset in range(1000)]
    withdrawn = [(offset, 16, 32) for offset in range(1000)]

    lines = list(warnings("s1", refused, withdrawn))

    assert 2 < len(lines) < 50
    assert max(map(len, lines)) < 1000
    named = [line for line in lines if line.startswith("marker skipped")]
    assert f"more markers skipped: subscription=s1 markers={1000 - len(named)}" in lines
    assert any(line.startswith("LSN goes backwards: subscription=s1 marker=0") for line in lines)
