"""Traces of cuts: their spans, what they are named by, and failures."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from spark_consumer.errors import SettingsError
from spark_consumer.job.telemetry import telemetry
from spark_consumer.observe.cut_tracing import CutTracing
from spark_consumer.observe.figures import Figures
from spark_consumer.settings import ConsumerSettings


def test_a_cut_has_a_span_for_each_phase_and_each_table_and_a_failed_one_its_error() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    figures = Figures(on_cut=CutTracing(provider.get_tracer("t"), "s", lambda *_, **__: None))

    with figures.cut(0x1B374D848, 7):
        with figures.phase("plan"):
            pass
        with figures.phase("apply"), figures.table("public.t"):
            pass
    with pytest.raises(OSError), figures.cut(0x200, 1), figures.phase("manifest"):
        raise OSError

    plan, apply, cut, manifest, failed = exporter.get_finished_spans()
    assert [one.name for one in (plan, apply, cut)] == ["plan", "apply", "cut"]
    assert dict(apply.attributes or {}) == {"pgsluice.table": "public.t"}
    assert dict(cut.attributes or {}) == {
        "pgsluice.subscription": "s",
        "pgsluice.records": 7,
        "pgsluice.end_lsn": "1/B374D848",
    }
    assert cut.status.status_code is StatusCode.UNSET
    for child, root in ((plan, cut), (apply, cut), (manifest, failed)):
        assert child.parent is not None and child.parent.span_id == root.context.span_id
        assert (root.start_time or 0) <= (child.start_time or 0)
        assert (child.end_time or 0) <= (root.end_time or 0)
    assert (failed.attributes or {})["error.type"] == "OSError"
    assert failed.status.status_code is StatusCode.ERROR


def test_nothing_is_noted_where_nobody_wants_traces() -> None:
    figures = Figures()
    with figures.cut(0x200, 1), figures.phase("plan"), figures.table("public.t"):
        assert figures._steps is None
    assert figures.seconds["plan"] > 0


def test_a_variable_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse="w", checkpoint="c", opentelemetry=True
    )
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")

    with (
        pytest.raises(SettingsError, match="max_queue_size must be a positive integer"),
        telemetry(settings, {}, dict),
    ):
        pass
