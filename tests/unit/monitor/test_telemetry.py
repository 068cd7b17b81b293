"""Telemetry that cannot be as it is wanted is refused at the start, and never ends replication."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, StatusCode, TraceState
from opentelemetry.util.types import Attributes

from gateway.core.errors import ConfigError
from gateway.monitor.telemetry import BatchTracing, Telemetry
from gateway.observe import BatchTimes
from gateway.runtime.planning.preflight import local_refusals
from tests.unit.config.test_config import load

ON = {"monitor": ["opentelemetry = true"]}
FAILED = BatchTimes(1, 2, 3, 4, 5, records=7, pieces=2, end_lsn=0, error="TransientError")


class Broken(Sampler):
    """A sampler of somebody else."""

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        raise ZeroDivisionError

    def get_description(self) -> str:
        return "broken"


def tracing(sampler: Sampler) -> tuple[BatchTracing, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return BatchTracing(provider.get_tracer("t"), "s"), exporter


def test_a_missing_package_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(local_refusals(load(tmp_path, ON))) == []
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)

    ((part, error),) = local_refusals(load(tmp_path, ON))

    assert (part, error.hint) == ("monitor", "pip install 'pgsluice[otel]'")
    assert list(local_refusals(load(tmp_path))) == []


def test_a_variable_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")

    with (
        Telemetry(load(tmp_path, ON)) as telemetry,
        pytest.raises(ConfigError, match="max_queue_size must be a positive integer"),
    ):
        telemetry.trace_batches()


def test_a_batch_that_failed_is_an_error_with_its_class() -> None:
    trace, exporter = tracing(ALWAYS_ON)

    trace(FAILED)

    *parts, root = exporter.get_finished_spans()
    assert [span.name for span in parts] == ["queue", "route", "commit"]
    assert root.attributes is not None
    assert root.attributes["error.type"] == "TransientError"
    assert root.status.status_code is StatusCode.ERROR
    times = [span.end_time - (root.start_time or 0) for span in parts if span.end_time]
    assert times == [1_000_000_000, 3_000_000_000, 4_000_000_000]


def test_a_sampler_that_fails_does_not_end_replication(caplog: pytest.LogCaptureFixture) -> None:
    trace, _ = tracing(Broken())

    with caplog.at_level(logging.WARNING):
        trace(FAILED)
        trace(FAILED)

    (record,) = caplog.records
    assert record.__dict__["fields"]["error"] == "ZeroDivisionError"
