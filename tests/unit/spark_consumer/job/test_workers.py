"""Which tables of a cut are read together, and by how many workers."""

from __future__ import annotations

from spark_consumer.job.planner import Task
from spark_consumer.job.workers import groups
from spark_consumer.kafka.position import Position, Share, Span


def task(name: str, records: int) -> Task:
    position = Position("markers", 1, 1, None, name, "topic", {0: records})
    return Task(name, Share(name, (Span(0, 0, records, records),), position, position), None)


def names(tasks: list[Task], workers: int) -> list[list[str]]:
    return [[task.name for task in group] for group in groups(tasks, workers)]


def test_small_tables_are_shared_among_the_workers() -> None:
    tasks = [task(f"t{number:02}", 10) for number in range(50)]

    assert [len(group) for group in names(tasks, 2)] == [25, 25]
    assert [len(group) for group in names(tasks, 8)] == [7] * 7 + [1]
    assert [len(group) for group in names(tasks, 1)] == [50]


def test_a_few_small_tables_are_read_at_once() -> None:
    tasks = [task(f"t{number}", 10) for number in range(4)]

    assert names(tasks, 4) == [["t0", "t1", "t2", "t3"]]


def test_what_is_large_is_read_by_itself() -> None:
    tasks = [task("large", 1_000_000), task("a", 10), task("larger", 2_000_000), task("b", 20)]

    assert names(tasks, 2) == [["a", "b"], ["large"], ["larger"]]
    assert names([], 2) == []
