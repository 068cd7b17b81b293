"""The configuration of a gateway that is measured: its servers, and what it publishes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry

__all__ = ["configure"]


def configure(
    folder: Path,
    name: str,
    definitions: str,
    server: EmbeddedPostgres,
    kafka: EmbeddedKafka,
    registry: EmbeddedRegistry,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write the files of a gateway; return the path of its configuration.

    Args:
        folder: Folder of the files, which exists.
        name: Name of the gateway, and of its slot.
        definitions: Text of the definitions.
        server: Source.
        kafka: Broker of the topics.
        registry: Registry of the schemas.
        more: Further tables of settings.
    """
    (folder / "replication.sql").write_text(definitions)
    tables: dict[str, Mapping[str, Any]] = {
        "source": {"dsn": server.dsn(), "slot": name},
        "definitions": {"file": "replication.sql"},
        "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
        "registry": {"url": registry.url},
        "gateway": {"name": name},
        **(more or {}),
    }
    lines: list[str] = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]
    path = folder / "pgsluice.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
