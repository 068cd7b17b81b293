"""Metrics and traces by OTLP, and events of OpenLineage, where ``[consumer]`` turns them on.

Nothing of OpenTelemetry or OpenLineage is imported otherwise. Both work in threads of their own.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from spark_consumer.display import logger
from spark_consumer.errors import SettingsError
from spark_consumer.names import table_folder
from spark_consumer.observe.figures import Figures
from spark_consumer.observe.metrics import exposition
from spark_consumer.settings import ConsumerSettings
from spark_consumer.states.manifests import Manifest

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["telemetry"]

_log: Final = logger(__name__)


@contextmanager
def telemetry(
    settings: ConsumerSettings,
    figures: dict[str, Figures],
    manifests: Callable[[], Mapping[str, Manifest]],
) -> Iterator[None]:
    """Send what is turned on while the block runs.

    Args:
        settings: Settings of the job.
        figures: Figures by subscription; they may change meanwhile.
        manifests: Returns the newest manifest of each subscription; called by another thread.

    Raises:
        SettingsError: a package is missing, or the environment cannot be used.
    """
    with ExitStack() as stack:
        if settings.opentelemetry:
            with _installed("opentelemetry", "otel"):
                from schemas.telemetry.otlp import metrics_sent, resource, traces_sent
            from prometheus_client.parser import text_string_to_metric_families as families

            of = resource("pgsluice-consumer", _version())
            send = metrics_sent(of, _write, lambda: families(exposition(figures)))
            stack.enter_context(send)
            stack.enter_context(_cuts_traced(traces_sent(of, _write), figures))
        if settings.openlineage:
            stack.enter_context(_lineage(settings, manifests))
        yield


@contextmanager
def _cuts_traced(
    sending: AbstractContextManager[Tracer | None], figures: Mapping[str, Figures]
) -> Iterator[None]:
    """Send a trace of each cut while the block runs, unless the environment wants none."""
    from spark_consumer.observe.cut_tracing import CutTracing

    with ExitStack() as stack:
        try:
            tracer = stack.enter_context(sending)
        except ValueError as error:
            raise SettingsError(
                f"opentelemetry: a variable has a value that it cannot have: {error}",
                hint="correct it: those of traces that are numbers begin with OTEL_BSP_",
            ) from None
        for subscription, one in figures.items():
            one.on_cut = None if tracer is None else CutTracing(tracer, subscription, _write)
        yield


@contextmanager
def _lineage(
    settings: ConsumerSettings, manifests: Callable[[], Mapping[str, Manifest]]
) -> Iterator[None]:
    with _installed("openlineage", "openlineage"):
        from schemas.telemetry.lineage import Flow, connect, folder, lineage_sent, topic

    servers = settings.kafka.get("bootstrap.servers") or settings.kafka.get("metadata.broker.list")

    def look() -> Mapping[str, Sequence[Flow]]:
        return {
            f"pgsluice.consumer.{subscription}": [
                Flow(
                    topic(servers or "", state.topic),
                    folder(table_folder(settings.warehouse, subscription, name)),
                )
                for name, state in manifest.tables.items()
            ]
            for subscription, manifest in manifests().items()
        }

    try:
        client = connect()
    except Exception as error:
        raise SettingsError(
            f"openlineage: its configuration cannot be used: {type(error).__name__}",
            hint="correct the variables that begin with OPENLINEAGE, or the file that they name",
        ) from None
    with lineage_sent(client, "CONSUMER", _version(), _write, look):
        yield


@contextmanager
def _installed(setting: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{setting}: the packages that it needs are not installed",
            hint=f"pip install 'pgsluice[{extra}]'",
        ) from error


def _version() -> str:
    try:
        return importlib.metadata.version("pgsluice")
    except importlib.metadata.PackageNotFoundError:  # sent to a cluster as a file
        return "unknown"


def _write(level: int, message: str, **fields: object) -> None:
    if _log.isEnabledFor(level):
        named = " ".join(f"{name}={value}" for name, value in fields.items())
        _log.log(level, "%s: %s", message, named)
