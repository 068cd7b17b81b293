"""One large transaction into Kafka, streamed and not: memory, time, and whether it is whole.

``python -m bench.large_transaction [--rows N]``. Whole means: as many records as rows, all in one
Kafka transaction (the topic has one control record behind them), and an END marker that says so.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psycopg
from confluent_kafka import Consumer, TopicPartition

from bench.configuration import configure
from bench.processes import BenchError, Run, timed
from bench.stream import stop_on_sigterm
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry
from gateway.core.errors import FatalError

_TIMEOUT_S: Final = 1800.0
_LIMIT_MIB: Final = 200
_TABLE: Final = "CREATE TABLE large (id int PRIMARY KEY, region text, amount numeric, note text)"
_LOAD: Final = (
    "INSERT INTO large SELECT i, 'region ' || i %% 50, i / 100.0, repeat('n', 60)"
    " FROM generate_series(1, %s) i"
)


class _Bench:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.postgres = stack.enter_context(EmbeddedPostgres(18))
        self.kafka = stack.enter_context(EmbeddedKafka())
        self.registry = stack.enter_context(EmbeddedRegistry())

    def gateway(self, streaming: str, endpos: str) -> Run:
        return timed(
            [
                *(sys.executable, "-m", "gateway", "run", "--endpos", endpos),
                *("--config", self._configure(streaming)),
            ],
            first=": streaming ",
            last=": reached endpos ",
            timeout_s=_TIMEOUT_S,
        )

    def end(self, topic: str) -> int:
        """The topic's end offset; control records have offsets, too."""
        consumer = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "bench"}
        )
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1])
        finally:
            consumer.close()

    def _configure(self, streaming: str) -> Path:
        name = f"large_{streaming}"
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        definitions = (
            "CREATE PUBLICATION p FOR TABLE large;\n"
            f"CREATE SUBSCRIPTION {name} CONNECTION '' PUBLICATION p"
            f" WITH (streaming = {streaming});\n"
        )
        return configure(folder, name, definitions, self.postgres, self.kafka, self.registry)


def measure(rows: int) -> int:
    """Measure and print; return 1 when the gateway needed more memory than it may.

    Raises:
        BenchError: a process failed, or Kafka does not hold what it should.
    """
    folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
    modes = ("on", "off")
    try:
        with ExitStack() as stack:
            bench = _Bench(folder, stack)
            with psycopg.connect(bench.postgres.dsn(), autocommit=True) as connection:
                connection.execute(_TABLE)
                for mode in modes:
                    bench.gateway(mode, "0/1")
                connection.execute(_LOAD, [rows])
                row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
                assert row is not None
                runs = {mode: _run(bench, mode, str(row[0]), rows) for mode in modes}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\none transaction of {rows:,} rows, whole in Kafka")
    for mode, run in runs.items():
        print(
            f"streaming = {mode:4} {rows / run.wall_s:>10,.0f} rows/s"
            f" {run.cpu_s / rows * 1e6:>8.1f} CPU us/row {_mib(run):>8.0f} MiB peak"
        )
    return int(any(_mib(run) > _LIMIT_MIB for run in runs.values()))


def _run(bench: _Bench, mode: str, endpos: str, rows: int) -> Run:
    topic = f"large_{mode}.public.large"
    before = bench.end(topic)
    run = bench.gateway(mode, endpos)
    written = bench.end(topic) - before
    if written != rows + 1:
        raise BenchError(f"{topic} has {written} new offsets, not {rows} records and one commit")
    return run


def _mib(run: Run) -> float:
    assert run.peak_rss is not None
    return run.peak_rss / 2**20


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.large_transaction", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=2_000_000, metavar="N")
    arguments = parser.parse_args()
    stop_on_sigterm()
    try:
        return measure(arguments.rows)
    except FatalError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
