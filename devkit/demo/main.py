"""``pgsluice demo``: the whole path on local servers, and a verdict.

The verdict comes from comparing the rebuilt Delta tables with the tables of native subscriptions
to the same publications on the same server. No expected result is written down anywhere.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import psycopg
from confluent_kafka import KafkaException

from devkit.demo.console import Console
from devkit.demo.native import NativeSubscriptions
from devkit.demo.play import GATEWAY, SPARK_JOB, Play
from devkit.demo.scenario import PUBLISHER
from devkit.demo.servers import Parts
from gateway.core.errors import GatewayError

__all__ = ["demo"]

_START_S: Final = 60.0
_EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"


def demo(*, keep: bool, postgres_major: int) -> int:
    """Play the scenario; print what happens and the verdict.

    Args:
        keep: At the end leave everything running until SIGINT or SIGTERM.
        postgres_major: Version of the embedded server.

    Returns:
        0 when all tables are equal, 1 when one is not or something failed, 130 when interrupted.
        Everything is stopped by then; logs are kept unless it is 0.
    """
    # The clients' own log lines would stand between ours.
    logging.getLogger().setLevel(logging.WARNING)
    console = Console()
    code = 1
    with _interruptible():
        parts = Parts(postgres_major)
        try:
            with ExitStack() as opened:
                code = Play(console, parts, opened).run()
                if keep:
                    _keep(console, parts)
        except KeyboardInterrupt:
            code = 130
        except GatewayError as error:
            code = 1
            console.say(f"\ndemo: {error}")
        except (psycopg.Error, KafkaException) as error:
            code = 1
            console.say(f"\ndemo: a server failed: {error}")
        finally:
            console.status("stopping")
            parts.stop(keep_logs=code != 0)
            console.clear()
            if code != 0:
                print(f"demo: all processes are stopped; logs: {parts.logs}", file=sys.stderr)
    return code


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _keep(console: Console, parts: Parts) -> None:
    """Start gateway and Spark job again, say how to connect, and wait to be interrupted."""
    before = len(parts.pages(GATEWAY))
    parts.launch(GATEWAY, ["-m", "gateway", "run", "--config", parts.config])
    console.wait_until(
        lambda: len(parts.pages(GATEWAY)) > before,
        "the gateway starts again",
        timeout_s=_START_S,
        check=parts.check,
    )
    parts.launch(SPARK_JOB, ["-m", "gateway", "consume", "--config", parts.config])
    console.say("\n".join(_how_to_connect(parts)))
    # A request to stop is how this ends, and no failure.
    with contextlib.suppress(KeyboardInterrupt):
        console.wait_until(lambda: False, "running", timeout_s=math.inf, check=parts.check)


def _how_to_connect(parts: Parts) -> list[str]:
    """Lines with an address, and a command to try, for each part."""
    postgres, folder = parts.postgres, parts.folder
    psql = postgres.bin / "psql"
    topic, pgsluice = "s1.t1", Path(sys.executable).with_name("pgsluice")
    rows = f"{sys.executable} {_EXAMPLES / 'topic_rows.py'}"
    lines = [
        "",
        "=== Everything is running. To look at it:",
        f"  publisher         {psql} '{postgres.dsn(PUBLISHER)}'",
        f"  native subscriber {psql} '{postgres.dsn(NativeSubscriptions.database('s1'))}'",
        f"  Kafka             {parts.kafka.bootstrap_servers}, with what {parts.config} says",
        f"  schema registry   {parts.registry.url}, likewise",
        f"  the gateway       {parts.pages(GATEWAY)[-1]}",
        f"  a topic           {pgsluice} tail --config {parts.config} {topic} --from-beginning",
        f"  its rows          {rows} --config {parts.config} s1.public.t1",
        f"  a row             {pgsluice} explain --config {parts.config} t1 '(6,1,NSW)'",
        f"  Delta tables      {parts.warehouse}/<subscription>/<schema>/<table>",
        f"  configuration     {parts.config}",
        f"  definitions       {folder / 'replication.sql'}",
        f"  logs              {parts.logs}",
        "  processes         "
        + ", ".join(f"{name} {pid}" for name, pid in parts.pids().items() if pid),
        f"  stop everything   Ctrl-C here, or kill {os.getpid()}",
    ]
    return lines
