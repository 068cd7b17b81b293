"""A Kafka Connect worker as its own process, with the files of examples/connect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devkit.embedded.processes import Server
from gateway.core.errors import TransientError
from gateway.jars import ivy as jars
from gateway.jars.java import java
from tests.support.backends.servers import BRIEF_JAVA

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "connect"


def fetched(configurations: Sequence[str]) -> list[Path]:
    """The folders of these jars; the test is skipped, and says why, where they cannot be had."""
    try:
        return [jars.folder(configuration) for configuration in configurations]
    except TransientError as error:
        pytest.skip(f"jars of other people's consumers cannot be fetched here: {error}")


def start_connect(folder: Path, sink: str, environment: Mapping[str, str]) -> Server:
    """Start ``connect-standalone`` with a sink's file; `environment` has what the files ask for."""
    worker, avro, jdbc = fetched(["connect", "connect-avro", "connect-jdbc"])
    plugins = folder / "plugins"
    plugins.mkdir()
    (plugins / "avro").symlink_to(avro)
    (plugins / "jdbc").symlink_to(jdbc)
    (folder / "log4j.properties").write_text(
        "log4j.rootLogger=WARN, out\n"
        "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n\n"
    )
    return Server(
        "Kafka Connect",
        [
            java(),
            *BRIEF_JAVA.split(),
            "-Xmx512m",
            f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}",
            "-cp",
            f"{worker}/*",
            "org.apache.kafka.connect.cli.ConnectStandalone",
            str(EXAMPLES / "worker.properties"),
            str(EXAMPLES / f"{sink}.properties"),
        ],
        log=folder / "connect.log",
        cwd=folder,
        env={**os.environ, **environment},
    )
