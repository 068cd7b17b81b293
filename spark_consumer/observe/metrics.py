"""Metrics by subscription in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from schemas.topic_names import topic_identifier
from spark_consumer.display import as_label
from spark_consumer.observe.figures import Figures, age

__all__ = ["exposition"]

_PREFIX: Final = "pgsluice_consumer_"


@dataclass(frozen=True, slots=True)
class _Metric:
    """A metric that has one value for each subscription.

    Attributes:
        name: Name, without the prefix of all.
        kind: Type in Prometheus: gauge or counter.
        text: Line of help.
        value: Function from a subscription's figures to the value; None where it is not known.
    """

    name: str
    kind: str
    text: str
    value: Callable[[Figures], float | None]


_METRICS: Final = (
    _Metric(
        "end_lsn",
        "gauge",
        "Position in the source's WAL up to which all tables are complete.",
        lambda figures: figures.end_lsn,
    ),
    _Metric(
        "commit_timestamp_seconds",
        "gauge",
        "When the source committed the last transaction applied, in seconds since 1970.",
        lambda figures: None if figures.commit_time is None else figures.commit_time / 1_000_000,
    ),
    _Metric(
        "records_total",
        "counter",
        "Number of records applied to tables since the start.",
        lambda figures: figures.records,
    ),
    _Metric(
        "cuts_total",
        "counter",
        "Number of cuts, states of all tables at one position, since the start.",
        lambda figures: figures.cuts,
    ),
    _Metric(
        "skipped_total",
        "counter",
        "Number of keys whose UPDATE or DELETE found no row, counted once for each batch.",
        lambda figures: figures.skipped,
    ),
    _Metric(
        "waiting_records",
        "gauge",
        "Number of records that were announced and are in no table yet.",
        lambda figures: figures.progress.waiting_records,
    ),
    _Metric(
        "applying_tables",
        "gauge",
        "Number of tables that the job is writing to now.",
        lambda figures: figures.progress.running_tables,
    ),
    _Metric(
        "tables_held",
        "gauge",
        "Number of tables that the job holds; the log says why.",
        lambda figures: figures.tables_held,
    ),
    _Metric(
        "subscription_held",
        "gauge",
        "1 while nothing of the subscription is read; the log says why.",
        lambda figures: int(figures.held is not None),
    ),
    _Metric(
        "lag_seconds",
        "gauge",
        "Seconds since the source committed the oldest change to be applied.",
        lambda figures: round(figures.lag, 3),
    ),
    _Metric(
        "unread_markers",
        "gauge",
        "Number of markers in the topic that have not been read.",
        lambda figures: figures.unread_markers,
    ),
    _Metric(
        "markers_refused_total",
        "counter",
        "Number of markers that were not followed since the start.",
        lambda figures: figures.refused,
    ),
    _Metric(
        "silent_seconds",
        "gauge",
        "Seconds since the subscription was last seen at work.",
        lambda figures: None if figures.silence is None else round(figures.silence, 3),
    ),
)


def exposition(subscriptions: dict[str, Figures]) -> str:
    """Return the figures in Prometheus' text format."""
    lines = []
    for metric in _METRICS:
        lines += _header(metric.name, metric.kind, metric.text)
        for subscription, figures in subscriptions.items():
            value = metric.value(figures)
            if value is not None:
                lines.append(f"{_sample(metric.name, subscription=subscription)} {value}")
    lines += _header(
        "table_lag_seconds",
        "gauge",
        "Seconds since the source committed the oldest change that a table lacks.",
    )
    for subscription, figures in subscriptions.items():
        for table, since in figures.tables.items():
            of_table = {"subscription": subscription, "table": topic_identifier(table)}
            lines.append(f"{_sample('table_lag_seconds', **of_table)} {round(age(since), 3)}")
    lines += _header(
        "phase_seconds_total",
        "counter",
        "Seconds that the job has spent since the start, by phase of its work.",
    )
    for subscription, figures in subscriptions.items():
        for phase, seconds in sorted(figures.seconds.items()):
            of_phase = {"subscription": subscription, "phase": phase}
            lines.append(f"{_sample('phase_seconds_total', **of_phase)} {seconds:.3f}")
    return "\n".join(lines) + "\n"


def _header(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {_PREFIX}{name} {text}", f"# TYPE {_PREFIX}{name} {kind}"]


def _sample(name: str, **labels: str) -> str:
    named = ",".join(f'{label}="{as_label(value)}"' for label, value in labels.items())
    return f"{_PREFIX}{name}{{{named}}}"
