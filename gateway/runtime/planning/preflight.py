"""Checks made before a start creates anything; `pgsluice check` makes the same ones.

A start that fails after it has made a slot leaves a server that keeps WAL for nobody.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import AccessError, ConfigError, GatewayError, TransientError
from gateway.definitions.model import Plan
from gateway.source.provisioning.own_publications import check_publications, missing_rights
from gateway.source.session.connection import ServerFacts
from gateway.source.session.server_errors import classify_server_error, read_only
from gateway.source.session.server_support import may_not_replicate, unsupported
from gateway.source.stream.slot import slot_status

__all__ = ["local_refusals", "plan_refusals", "server_refusals"]


def local_refusals(settings: Settings) -> Iterator[tuple[str, GatewayError]]:
    """Yield the part at fault and the reason for which a gateway cannot start on this machine."""
    for part, check in _LOCAL:
        try:
            check(settings)
        except GatewayError as error:
            yield part, error


def server_refusals(
    settings: Settings, connection: psycopg.Connection, facts: ServerFacts
) -> Iterator[tuple[str, GatewayError]]:
    """Yield the reasons for which a gateway cannot start on this server.

    Raises:
        TransientError: the connection is gone.
    """
    for problem in unsupported(facts, allow_untested=settings.source.allow_untested):
        yield "source", problem
    if (refused := may_not_replicate(facts)) is not None:
        yield "source", refused
    if slot_status(connection, settings.source.slot) is None:
        used = _used_slots(connection)
        if used >= facts.max_replication_slots:
            yield (
                "slot",
                TransientError(
                    f"all {facts.max_replication_slots} replication slots are in use",
                    hint="raise max_replication_slots and restart the server, or drop a slot",
                ),
            )


def plan_refusals(
    settings: Settings, connection: psycopg.Connection, plan: Plan
) -> Iterator[tuple[str, GatewayError]]:
    """Yield the reasons for which `plan` cannot be put into force on this server.

    Raises:
        TransientError: the connection is gone.
    """
    statements = missing_rights(connection, plan, prefix=settings.source.slot)
    if statements:
        yield (
            "publications",
            AccessError(
                "the role of [source].dsn may not make the gateway's publications",
                hint="let the owner of the tables run:\n" + "\n".join(statements),
            ),
        )
    elif connection.info.parameter_status("default_transaction_read_only") == "on":
        missing = check_publications(connection, plan, prefix=settings.source.slot)
        if missing:
            made = "run this on its primary:\n" + "\n".join(missing)
            failed = "the gateway's publications cannot be made"
            yield "publications", read_only(connection, failed, on_standby=made)


def _check_spool(settings: Settings) -> None:
    """Refuse a folder in which no file can be made; one that is missing is made when needed."""
    folder = settings.gateway.spool_directory or Path(tempfile.gettempdir())
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    why = None
    if not there.is_dir():
        why = f"{there} is not a folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        why = f"no permission to write in {there}"
    elif there == folder:
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            why = error.strerror
    if why is not None:
        raise ConfigError(
            f"no spool file can be made in {folder}: {why}",
            key="gateway.spool_directory",
            hint="give the gateway's user write permission there, or name another folder",
        )


def _check_listen(settings: Settings) -> None:
    listen = settings.http.listen
    if listen is None:
        return
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host.strip("[]"), int(port)))
    except OSError as error:
        raise ConfigError(
            f"{listen} cannot be used: {error.strerror}",
            key="http.listen",
            hint="give it a port that is free",
        ) from None


def _check_extras(settings: Settings) -> None:
    monitor = settings.monitor
    for is_on, module, key, extra in (
        (monitor.opentelemetry, "opentelemetry.exporter.otlp.proto.http", "opentelemetry", "otel"),
        (monitor.openlineage, "openlineage.client", "openlineage", "openlineage"),
    ):
        if is_on and not _is_installed(module):
            raise ConfigError(
                "the packages that it needs are not installed",
                key=f"monitor.{key}",
                hint=f"pip install 'pgsluice[{extra}]'",
            )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package around it
        return False


def _used_slots(connection: psycopg.Connection) -> int:
    try:
        row = connection.execute(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots"
        ).fetchone()
    except psycopg.Error as error:
        raise classify_server_error(error.sqlstate, str(error), doing="reading slots") from None
    assert row is not None
    return int(row[0])


_LOCAL: Final[tuple[tuple[str, Callable[[Settings], None]], ...]] = (
    ("gateway", _check_spool),
    ("http", _check_listen),
    ("monitor", _check_extras),
)
