"""Metrics as Prometheus' client collects them, in OpenTelemetry's data model. Pure.

The programs declare their metrics once, for Prometheus. Names, HELP texts and labels are the same
here; ``_total`` of a counter is left out, and ``_seconds`` and ``_bytes`` are said as a unit as
well, so that a collector that converts back to Prometheus makes the same names.

Source: OpenTelemetry's "Prometheus and OpenMetrics compatibility".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

__all__ = ["as_metrics"]

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}
_UNKNOWN: Final = cast(float, None)
"""Least and greatest value of a histogram, which OTLP leaves out where they are not known."""


def as_metrics(families: Iterable[Family], begun: int, now: int) -> Iterator[Metric]:
    """Yield the metrics that have a value.

    Args:
        families: Families as `prometheus_client` collects or parses them.
        begun: Time from which the counters count, in nanoseconds since 1970.
        now: Time of the values, likewise.
    """
    for family in families:
        data: Gauge | Sum | Histogram
        if family.type == "histogram":
            data = Histogram(list(_distributions(family.samples, begun, now)), _CUMULATIVE)
        elif family.type == "counter":
            samples = [one for one in family.samples if not one.name.endswith("_created")]
            data = Sum(_numbers(samples, begun, now), _CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(_numbers(family.samples, begun, now))
        if data.data_points:
            unit = next((u for end, u in _UNITS.items() if family.name.endswith(end)), "")
            yield Metric(family.name, family.documentation, unit, data)


def _numbers(samples: Iterable[Sample], begun: int, now: int) -> list[NumberDataPoint]:
    return [NumberDataPoint(dict(one.labels), begun, now, float(one.value)) for one in samples]


def _distributions(samples: Iterable[Sample], begun: int, now: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each set of labels; Prometheus' buckets include the smaller ones."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    totals: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", None)
        key = tuple(labels.items())
        if bound is not None:
            buckets.setdefault(key, []).append((float(bound), int(sample.value)))
        elif sample.name.endswith("_sum"):
            totals[key] = sample.value
    for key, found in buckets.items():
        bounds, up_to = zip(*found, strict=True)
        counts = [until - before for before, until in zip((0, *up_to), up_to, strict=False)]
        yield HistogramDataPoint(
            dict(key),
            begun,
            now,
            count=up_to[-1],
            sum=totals[key],
            bucket_counts=counts,
            explicit_bounds=bounds[:-1],
            min=_UNKNOWN,
            max=_UNKNOWN,
        )
