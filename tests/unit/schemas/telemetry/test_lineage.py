"""Events of runs: names by OpenLineage's specification, each event once, and no end delayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from schemas.telemetry import CLOSE_S
from schemas.telemetry.lineage import (
    DataSet,
    Flow,
    connect,
    folder,
    lineage_sent,
    table,
    topic,
)
from tests.support.backends.collector import Collector
from tests.support.run.waiting import wait_until, within
from tests.unit.schemas.telemetry.test_otlp import SECRET, Lines, silent_server

T, U = (table("h", "5432", "shop", "public", name) for name in ("t", "u"))
TO_T, TO_U = (topic("k:9092", f"s.public.{name}") for name in ("t", "u"))
Sending = Callable[..., AbstractContextManager[None]]


class Scene:
    """Receivers of telemetry, and the lines that are logged."""

    def __init__(self) -> None:
        self.log = Lines()
        self.flows: dict[str, Sequence[Flow]] = {}

    def sending(self) -> AbstractContextManager[None]:
        return lineage_sent(connect(), "GATEWAY", "1.2", self.log, self.look)

    def look(self) -> Mapping[str, Sequence[Flow]]:
        return dict(self.flows)


def ended(collector: Collector) -> list[dict[str, Any]]:
    """The events of a run, whose end may come a little later than the block's."""
    return wait_until(collector.ended_run, 60, "the end")


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as made:
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.mark.parametrize(
    ("named", "namespace", "name"),
    [
        (table("h", "5433", "shop", "public", "t"), "postgres://h:5433", "shop.public.t"),
        (topic("k1:9093,k2:9093", "a.b"), "kafka://k1:9093", "a.b"),
        (topic(" SASL_SSL://k1:9094", "a.b"), "kafka://k1:9094", "a.b"),
        (topic("k1", "a.b"), "kafka://k1:9092", "a.b"),
        (folder("/data/s/public/t"), "file", "/data/s/public/t"),
        (folder("file:///data/t"), "file", "/data/t"),
        (folder("s3a://lake/w/t"), "s3://lake", "w/t"),
        (folder(f"s3a://key:{SECRET}@lake/w/t"), "s3://lake", "w/t"),
        (folder("hdfs://n:8020/w/t"), "hdfs://n:8020", "/w/t"),
        (folder("gs://lake/w/t"), "gs://lake", "w/t"),
        (
            folder("abfss://c@a.dfs.core.windows.net/w/t"),
            "abfss://c@a.dfs.core.windows.net",
            "/w/t",
        ),
    ],
)
def test_names_are_those_of_the_specification(named: DataSet, namespace: str, name: str) -> None:
    assert (named.namespace, named.name) == (namespace, name)


def test_a_run_has_a_start_and_an_end_with_what_flows_where(
    scene: Scene, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "lake")
    scene.flows = {"job": [Flow(T, TO_T)]}
    with scene.sending():
        wait_until(collector.events, 60, "the start")
        scene.flows = {"job": [Flow(T, TO_T, 7), Flow(U, TO_U, 0)], "unbegun": []}

    start, more, end = ended(collector)
    states = [event["eventType"] for event in (start, more, end)]
    assert states == ["START", "RUNNING", "COMPLETE"]
    assert {event["run"]["runId"] for event in (start, more)} == {end["run"]["runId"]}
    assert (end["job"]["namespace"], end["job"]["name"]) == ("lake", "job")
    assert [one["name"] for one in end["inputs"]] == ["shop.public.t", "shop.public.u"]
    assert [one["outputFacets"]["outputStatistics"]["rowCount"] for one in end["outputs"]] == [7, 0]
    assert not more["outputs"][0].get("outputFacets")
    assert [
        (entry["name"], [one["name"] for one in entry["inputs"]])
        for entry in end["job"]["facets"]["lineage"]["entries"]
    ] == [("s.public.t", ["shop.public.t"]), ("s.public.u", ["shop.public.u"])]
    assert end["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert scene.log == []


def test_a_run_that_fails_says_so_by_the_class_of_the_error(
    scene: Scene, collector: Collector
) -> None:
    scene.flows = {"job": [Flow(T, TO_T)]}
    with pytest.raises(ZeroDivisionError), scene.sending():
        raise ZeroDivisionError(SECRET)

    _, end = ended(collector)
    assert end["eventType"] == "FAIL"
    assert end["run"]["facets"]["errorMessage"]["message"] == "ZeroDivisionError"
    assert SECRET not in str(collector.bodies)


def test_what_a_server_has_refused_is_one_line_and_is_sent_again(
    scene: Scene, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.answer = 401
    scene.flows = {"job": [Flow(T, TO_T)]}
    with scene.sending():
        wait_until(lambda: scene.log, 60, "the failure")
        collector.forget()
        collector.answer = 200

    assert [event["eventType"] for event in ended(collector)] == ["START", "COMPLETE"]
    wait_until(lambda: len(scene.log) >= 2, 60, "the end of the outage to be logged")
    (_, _, failed), (_, again, _), *_ = scene.log
    assert (failed["what"], failed["error"]) == ("lineage", "HTTP 401")
    assert again == "a collector accepts telemetry again"
    assert caplog.records == []


def test_a_server_that_never_answers_does_not_delay_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.flows = {"job": [Flow(T, TO_T)]}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TIMEOUT", "60")
    with silent_server() as address, ExitStack() as stack:
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", address)
        with scene.sending():
            stack.enter_context(within(CLOSE_S, "the end"))
        ((_, _, failed),) = scene.log

    assert (failed["what"], failed["error"]) == ("lineage", "the program has ended")
    assert SECRET not in str(scene.log)
