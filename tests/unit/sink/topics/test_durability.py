"""Settings of topics by which Kafka may lose what it has acknowledged."""

from __future__ import annotations

import logging

import pytest

from gateway.runtime.planning.setup import warn_of_risks
from gateway.sink.topics.durability import risks
from gateway.sink.topics.topics import TopicDescription

SAFE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "retention.ms": "-1",
    "cleanup.policy": "delete",
}
PROGRESS = TopicDescription("progress", 1, SAFE | {"cleanup.policy": "compact"}, 3)


def topic(name: str, replicas: int = 3, **config: str) -> TopicDescription:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return TopicDescription(name, 1, SAFE | settings, replicas)


def test_topics_that_keep_what_they_have_acknowledged_are_no_risk() -> None:
    assert list(risks([topic("t")], [PROGRESS])) == []


@pytest.mark.parametrize(
    ("found", "said", "grave"),
    [
        (topic("t", unclean_leader_election_enable="true"), "unclean.leader.election.enable", True),
        (topic("t", 1, min_insync_replicas="1"), "one replica", True),
        (topic("t", min_insync_replicas="1"), "min.insync.replicas = 1", True),
        (topic("t", retention_ms=str(7 * 86_400_000)), "7 days", False),
    ],
)
def test_a_setting_that_can_lose_records_is_named_with_its_topic(
    found: TopicDescription, said: str, grave: bool
) -> None:
    (risk,) = risks([found, topic("u")], [PROGRESS])

    assert risk.message.startswith("topic t: ")
    assert said in risk.message
    assert risk.grave is grave
    assert risk.hint


def test_records_that_go_by_retention_are_no_risk_of_the_progress_topic() -> None:
    progress = TopicDescription("progress", 1, SAFE | {"retention.ms": "1"}, 3)

    assert list(risks([topic("t")], [progress])) == []


def test_a_start_names_all_that_can_be_lost_in_one_line_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unclean = topic("u", unclean_leader_election_enable="true", retention_ms="86400000")
    found = list(risks([topic("t", 1), unclean], [PROGRESS]))

    with caplog.at_level(logging.INFO):
        warned = warn_of_risks(found, frozenset())
        assert warn_of_risks(found, warned) == warned

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "one replica" in record.getMessage() + str(record.__dict__)


def test_a_cluster_that_keeps_everything_is_not_mentioned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        assert warn_of_risks(risks([topic("t", retention_ms="1")], [PROGRESS]), ()) == frozenset()

    assert not caplog.records
