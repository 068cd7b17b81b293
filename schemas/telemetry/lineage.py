"""Runs of jobs and the data sets between which they carry rows, by OpenLineage's own client.

Its variables and files say where the events go (``OPENLINEAGE_URL``, ``OPENLINEAGE_API_KEY``,
``OPENLINEAGE_CONFIG``, ...), and ``OPENLINEAGE_NAMESPACE`` the namespace of the jobs.

One thread looks which flows there are and sends what is new: START with the first ones, RUNNING
when others are there, COMPLETE or FAIL at the end. It sends the next event when the one before has
arrived, so that an event that a collector has missed is sent again with the state of then.

Names of data sets: OpenLineage's specification of naming.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import requests
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    error_message_run,
    job_type_job,
    lineage,
    output_statistics_output_dataset,
    processing_engine_run,
)
from openlineage.client.naming.dataset import (
    S3,
    DatasetNaming,
    Kafka,
    LocalFileSystem,
    Postgres,
)
from openlineage.client.uuid import generate_new_uuid

from schemas.telemetry import CLOSE_S
from schemas.telemetry.outage import Log, Outage

__all__ = ["DataSet", "Flow", "connect", "folder", "lineage_sent", "table", "topic"]

_LOOK_S: Final = 5.0
_RETRY_S: Final = 10.0
_PRODUCER: Final = "urn:pgsluice"
_HINT: Final = "check OPENLINEAGE_URL and OPENLINEAGE_API_KEY, and the server"
_KAFKA_PORT: Final = "9092"
_TOO_LATE: Final = "the program has ended"


@dataclass(frozen=True, slots=True, order=True)
class DataSet:
    """Name of a data set, as OpenLineage's specification has it."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows that go from one data set into another.

    Attributes:
        rows: Number of rows since the start of the run; None if it is not known.
    """

    source: DataSet
    target: DataSet
    rows: int | None = None


def table(host: str, port: str, database: str, schema: str, name: str) -> DataSet:
    """Return a table in PostgreSQL."""
    return _data_set(Postgres(host, port, database, schema, name))


def topic(bootstrap_servers: str, name: str) -> DataSet:
    """Return a topic of the cluster that has these servers, of which the first one names it."""
    first = bootstrap_servers.split(",")[0].strip().rpartition("://")[2]
    host, colon, port = first.rpartition(":")
    return _data_set(Kafka(host if colon else first, port if colon else _KAFKA_PORT, name))


def folder(path: str) -> DataSet:
    """Return the data set in a folder, of a local disk or of any Hadoop file system."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return _data_set(LocalFileSystem(str(Path(parts.path).absolute())))
    user, _, host = parts.netloc.rpartition("@")
    place = host if ":" in user or not user else parts.netloc  # never with a password
    if parts.scheme in ("s3", "s3a", "s3n"):
        return _data_set(S3(place, parts.path.lstrip("/")))
    inside = parts.path.lstrip("/") if parts.scheme == "gs" else parts.path
    return DataSet(f"{parts.scheme}://{place}", inside)


def connect() -> OpenLineageClient:
    """Return a client with the configuration of the environment; it connects when it sends.

    Raises:
        Exception: of many kinds, about the configuration; a text may quote a URL.
    """
    client = OpenLineageClient()
    _quiet()
    return client


@contextmanager
def lineage_sent(
    client: OpenLineageClient,
    kind: str,
    version: str,
    log: Log,
    look: Callable[[], Mapping[str, Sequence[Flow]]],
) -> Iterator[None]:
    """Send events while the block runs, and its end.

    Args:
        client: See `connect`.
        kind: Kind of the jobs: ``GATEWAY`` or ``CONSUMER``.
        version: Version of the program.
        log: Writer of lines about the exporter.
        look: Returns the flows of each job that has begun, by its name. A thread of its own calls
            it every few seconds.
    """
    sender = _Sender(client, kind, version, log, look)
    sender.start()
    try:
        yield
    except BaseException as error:
        sender.end(error)
        raise
    sender.end(None)


class _Sender:
    """Thread that sends the events."""

    def __init__(
        self,
        client: OpenLineageClient,
        kind: str,
        version: str,
        log: Log,
        look: Callable[[], Mapping[str, Sequence[Flow]]],
    ) -> None:
        self._client = client
        self._kind = kind
        self._version = version
        self._look = look
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        self._outage = Outage(log, "lineage", _HINT)
        self._runs: dict[str, str] = {}
        self._sent: dict[str, frozenset[tuple[DataSet, DataSet]]] = {}
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pgsluice lineage", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, error: BaseException | None) -> None:
        """Let the thread send the end, and wait for it a little."""
        self._error = error
        self._ended.set()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._outage.failed(_TOO_LATE)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            pause_s = _LOOK_S if self._send(self._send_news) else _RETRY_S
        self._send(self._send_ends)
        self._client.close(0)

    def _send(self, send: Callable[[], None]) -> bool:
        """Send events; return whether all have arrived."""
        try:
            send()
        except requests.HTTPError as error:
            status = "" if error.response is None else error.response.status_code
            self._outage.failed(f"HTTP {status}")
        except Exception as error:  # of any transport; the flows are sent again later
            self._outage.failed(type(error).__name__)
        else:
            return True
        return False

    def _send_news(self) -> None:
        for job, flows in self._look().items():
            known, now = self._sent.get(job), frozenset((one.source, one.target) for one in flows)
            if flows and now != known:
                state = RunState.START if known is None else RunState.RUNNING
                self._emit(job, flows, state)
                self._sent[job] = now

    def _send_ends(self) -> None:
        self._send_news()
        flows = self._look()
        for job in self._sent:
            state = RunState.COMPLETE if self._error is None else RunState.FAIL
            self._emit(job, flows.get(job, ()), state)

    def _emit(self, job: str, flows: Sequence[Flow], state: RunState) -> None:
        ends = state in (RunState.COMPLETE, RunState.FAIL)
        self._client.emit(
            RunEvent(
                eventTime=datetime.now(UTC).isoformat(),
                eventType=state,
                producer=f"{_PRODUCER}:{self._version}",
                run=self._run_of(job),
                job=self._job(job, flows),
                inputs=[
                    InputDataset(one.namespace, one.name)
                    for one in sorted({flow.source for flow in flows})
                ],
                outputs=[_output(flow, with_rows=ends) for flow in flows],
            )
        )
        self._outage.passed()

    def _run_of(self, job: str) -> Run:
        run_id = self._runs.setdefault(job, str(generate_new_uuid()))
        engine = processing_engine_run.ProcessingEngineRunFacet(self._version, "pgsluice")
        run = Run(run_id, {"processing_engine": engine})
        if self._error is not None and run.facets is not None:
            # Its class alone: a text may be of a server.
            kind = type(self._error).__name__
            run.facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(kind, "PYTHON")
        return run

    def _job(self, name: str, flows: Sequence[Flow]) -> Job:
        how = job_type_job.JobTypeJobFacet("STREAMING", "PGSLUICE", self._kind)
        entries: list[lineage.LineageEntry] = [
            lineage.LineageDatasetEntry(
                flow.target.namespace,
                flow.target.name,
                "DATASET",
                inputs=[
                    lineage.LineageDatasetInput(flow.source.namespace, flow.source.name, "DATASET")
                ],
            )
            for flow in flows
        ]
        # Without it, each output would seem to come from all inputs.
        which = lineage.LineageJobFacet(entries)
        return Job(self._namespace, name, {"jobType": how, "lineage": which})


def _output(flow: Flow, *, with_rows: bool) -> OutputDataset:
    output = OutputDataset(flow.target.namespace, flow.target.name)
    if with_rows and flow.rows is not None and output.outputFacets is not None:
        rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(flow.rows)
        output.outputFacets["outputStatistics"] = rows
    return output


def _data_set(naming: DatasetNaming) -> DataSet:
    return DataSet(naming.get_namespace(), naming.get_name())


def _quiet() -> None:
    """Keep the client's own lines away, but for the events that it prints where that is asked."""
    for name in ("openlineage", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("openlineage.client.transport.console").setLevel(logging.INFO)
