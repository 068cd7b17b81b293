"""Which small shares of a cut are read together."""

from __future__ import annotations

from spark_consumer.job.planner import Task
from spark_consumer.job.workers import groups
from spark_consumer.kafka.position import Position, Share, Span


def task(name: str, records: int) -> Task:
    position = Position("markers", 1, 1, None, name, "topic", {0: records})
    return Task(name, Share(name, (Span(0, 0, records, records),), position, position), None)


def names(tasks: list[Task]) -> list[list[str]]:
    return [[task.name for task in group] for group in groups(tasks)]


def test_small_shares_are_read_together() -> None:
    tasks = [task(f"t{number:02}", 10) for number in range(50)]

    assert [len(group) for group in names(tasks)] == [50]
    assert names([]) == []


def test_shares_are_read_apart_where_their_sum_is_not_small() -> None:
    tasks = [task("a", 9_000), task("b", 9_000), task("c", 9_000), task("d", 10)]

    assert names(tasks) == [["a", "b"], ["c", "d"]]
