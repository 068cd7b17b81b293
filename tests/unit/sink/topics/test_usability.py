"""Precedence of the faults of a topic that has several."""

from __future__ import annotations

from itertools import combinations

import pytest

from gateway.core.errors import FatalError
from gateway.sink.topics.topic_ids import KnownTopic
from gateway.sink.topics.topics import TopicDescription, TopicSpec
from gateway.sink.topics.usability import unusable_topics

# Each fault, and what its error says, in the order of precedence.
SAID = {
    "refused": "describing",
    "read_denied": "reading topic t: not authorised",
    "failed_reads": "reading the last markers",
    "write_denied": "writing to topic t: not authorised",
    "misconfigured": "cleanup.policy=compact",
}


def judge(*faults: str, read: bool = True) -> dict[str, FatalError]:
    """Judge topic `t`, which has `faults`, beside topic `fine`, which has none."""
    topics = ("t", "fine")
    policy = {"t": "compact" if "misconfigured" in faults else "delete", "fine": "delete"}

    def error_if(fault: str) -> dict[str, FatalError]:
        return {"t": FatalError(SAID[fault])} if fault in faults else {}

    return unusable_topics(
        [TopicSpec(name, forbid_compaction=True) for name in topics],
        {name: TopicDescription(name, 1, {"cleanup.policy": policy[name]}) for name in topics},
        {
            "t": KnownTopic("1", "read_denied" not in faults, "write_denied" not in faults),
            "fine": KnownTopic("2", may_read=True, may_write=True),
        },
        refused=error_if("refused"),
        read=topics if read else (),
        failed_reads=error_if("failed_reads"),
    )


@pytest.mark.parametrize("fault", SAID)
def test_each_fault_makes_its_topic_unusable_and_no_other(fault: str) -> None:
    ((name, error),) = judge(fault).items()

    assert name == "t"
    assert SAID[fault] in error.message


@pytest.mark.parametrize(("first", "second"), list(combinations(SAID, 2)))
def test_of_two_faults_the_one_of_higher_precedence_is_reported(first: str, second: str) -> None:
    (error,) = judge(first, second).values()

    assert SAID[first] in error.message


def test_a_topic_that_is_only_written_needs_no_right_to_read() -> None:
    assert judge("read_denied", read=False) == {}


def test_faults_of_several_topics_are_in_order_of_precedence() -> None:
    names = ("a", "b", "c")
    refused = FatalError("describing topic c: not authorised")

    found = unusable_topics(
        [TopicSpec(name, forbid_compaction=True) for name in names],
        {"a": TopicDescription("a", 1, {"cleanup.policy": "compact"})},
        {"b": KnownTopic("1", may_read=True, may_write=False)},
        refused={"c": refused},
        read=(),
    )

    assert list(found) == ["c", "b", "a"]
