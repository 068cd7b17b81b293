"""OpenLineage: the gateway as a job that carries tables into topics.

This module is imported only where ``[monitor] openlineage`` is on. Events name tables, topics and
numbers of rows: no row, no filter, and of the connection string host, port and database.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from gateway.config import Settings
from gateway.core.errors import ConfigError
from gateway.envelope.envelope import package_version
from gateway.monitor.status import of_table
from gateway.monitor.watch import Watch
from gateway.observe import Figures, event
from schemas.telemetry.lineage import Flow, connect, lineage_sent, table, topic

__all__ = ["flows", "sending_lineage", "source_address"]

_LOG: Final = logging.getLogger(__name__)
_UNPUBLISHED: Final = frozenset({"gone", "missing"})


@contextmanager
def sending_lineage(settings: Settings, watch: Watch) -> Iterator[None]:
    """Send events of what the gateway carries while the block runs.

    Raises:
        ConfigError: the configuration of OpenLineage's client cannot be used.
    """
    job = f"pgsluice.gateway.{settings.source.slot}"
    address = source_address(settings.source.dsn)

    def look() -> Mapping[str, Sequence[Flow]]:
        figures = watch.figures
        return {} if figures is None else {job: flows(settings, address, figures)}

    try:
        client = connect()
    except Exception as error:
        raise ConfigError(
            f"the configuration of OpenLineage cannot be used: {type(error).__name__}",
            key="monitor.openlineage",
            hint="correct the variables that begin with OPENLINEAGE, or the file that they name",
        ) from None
    with lineage_sent(client, "GATEWAY", package_version(), _log, look):
        yield


def source_address(dsn: str) -> tuple[str, str]:
    """Return host and port of a connection string: the first ones, as names are to be stable."""
    defaults = {one.keyword.decode(): one.val for one in Conninfo.get_defaults()}
    given = conninfo_to_dict(dsn)

    def first(name: str, otherwise: str) -> str:
        default = defaults.get(name)
        text = given.get(name) or (default.decode() if default else "")
        return str(text).split(",")[0] or otherwise

    host = first("host", "") or first("hostaddr", "localhost")
    return "localhost" if host.startswith(("/", "@")) else host, first("port", "5432")


def flows(settings: Settings, address: tuple[str, str], figures: Figures) -> list[Flow]:
    """Return what goes from which table into which topic, once the gateway has streamed."""
    if figures.loop is None or figures.owner is None:
        return []
    database = figures.owner[1]
    servers = settings.kafka.get("bootstrap.servers") or settings.kafka["metadata.broker.list"]
    rows: dict[tuple[str, str], int] = {}
    for (subscription, name, operation), number in figures.rows.items():
        if operation != "truncate":
            rows[subscription, name] = rows.get((subscription, name), 0) + number
    return [
        Flow(
            table(*address, database, copy.schema, copy.table),
            topic(servers, copy.topic),
            rows.get(of_table(copy), 0),
        )
        for copy in figures.loop.copies
        if copy.topic and copy.state not in _UNPUBLISHED
    ]


def _log(level: int, message: str, **fields: object) -> None:
    event(_LOG, level, message, **fields)
