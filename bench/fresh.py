"""From a commit in PostgreSQL to the rebuilt tables: how fresh they are, with how many tables.

A gateway and a Spark job run as users run them. Rows change in all tables in turns, 60 % updates,
30 % inserts and 10 % deletes, and the newest manifest says until which LSN the tables are complete:
that is when a reader sees a commit. Another checkout can be measured beside this one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg

from bench.configuration import configure
from bench.processes import BenchError, cpu_s
from bench.recording import Recording, recording
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.processes import free_port
from devkit.embedded.registry import EmbeddedRegistry
from devkit.embedded.s3 import EmbeddedS3
from devkit.embedded.spark_cluster import EmbeddedSparkCluster
from spark_consumer.spark.session import TUNED

__all__ = ["CASES", "Case", "run"]

_ROOT: Final = Path(__file__).resolve().parents[1]
_ROWS: Final = 5_000
"""Rows of a table, unless a case says otherwise."""
_CHANGE: Final = 5
"""Rows of a change of one table."""
_TRANSACTIONS: Final = 100
"""Transactions a second."""
_STRIDE: Final = 7_919
_START_S: Final = 900.0
_POLL_S: Final = 0.02
_CUT: Final = re.compile(r"cut applied: .* records=(\d+) tables=(\d+) seconds=([0-9.]+)")
_TABLE: Final = """
CREATE TABLE {name} (id bigint PRIMARY KEY, region text, note text, quantity integer,
                     amount numeric(12,2), changed_at timestamptz DEFAULT now());
INSERT INTO {name} SELECT id, 'region ' || id % 50, 'a note of some forty characters, row ' || id,
                          id % 1000, id / 7.0, now() FROM generate_series(1, {rows}) id
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A load.

    Attributes:
        tables: Number of tables.
        changing: Number of tables that change.
        rate: Rows a second; 0 to measure the idle job.
        rows: Rows of a table.
        warm_s: How long the same is played before, unmeasured.
        seconds: How long it lasts.
    """

    tables: int
    changing: int
    rate: int
    rows: int = _ROWS
    warm_s: int = 60
    seconds: int = 60

    def title(self) -> str:
        """Return it in words."""
        many = "1 table" if self.tables == 1 else f"{self.tables} tables"
        if not self.rate:
            return f"{many}, idle"
        which = "" if self.changing == self.tables else f", {self.changing} of them change"
        first = "" if self.warm_s else ", at first"
        return f"{many}{which}, {self.rate:,} rows/s{first}"


CASES: Final[Mapping[str, Sequence[Case]]] = {
    "one": (Case(1, 1, 500, warm_s=0), Case(1, 1, 500)),
    "twenty": (Case(20, 20, 500, warm_s=0), Case(20, 20, 500), Case(20, 20, 5_000)),
    "many": (Case(500, 0, 0, warm_s=0), Case(500, 100, 500)),
    "medium": (Case(20, 20, 500, 100_000),),
    "large": (Case(1, 1, 500, 5_000_000),),
}
"""Those of one name have tables of the same size, and are measured one after the other, with one
gateway and one job."""


def run(
    names: Sequence[str] = tuple(CASES),
    against: Path | None = None,
    *,
    profile: bool = False,
    spark: Sequence[str] = (),
    cluster: bool = False,
) -> None:
    """Measure and print.

    Args:
        names: Which of `CASES` to measure.
        against: Root of another checkout, set up, which is measured first each time.
        profile: Whether it is recorded where the time goes, which costs some.
        spark: Settings of the job's Spark, as ``name=value``.
        cluster: Whether the job runs on a cluster of two workers, with its tables in S3.
    """
    print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}; seconds")
    for group in (CASES[name] for name in names):
        for root in filter(None, (against, _ROOT)):
            name = "before" if root == against else "now"
            tables, rows = group[0].tables, group[0].rows
            with _running(root, tables, rows, spark, cluster=cluster) as scene:
                print(
                    f"{name:7}{tables} x {rows:,} rows: first state"
                    f" {scene.first_state_s:.0f} s after the start",
                    flush=True,
                )
                for case in group:
                    _play(scene, case, case.warm_s)
                    with recording(scene.jvm) if profile else nullcontext() as recorded:
                        line = _measured(scene, case)
                    print(f"{name:7}{line}", *_where(recorded), sep="\n", flush=True)


def _where(recorded: Recording | None) -> Iterator[str]:
    return iter(()) if recorded is None else recorded.lines()


@dataclass(slots=True)
class _Scene:
    server: EmbeddedPostgres
    pids: dict[str, int]
    jvm: int
    states: Path
    log: Path
    first_state_s: float
    rows: int
    next_id: int
    seen: list[tuple[float, int]] = field(default_factory=list)


def _measured(scene: _Scene, case: Case) -> str:
    """Play a case; return a line of the table."""
    began, before = time.monotonic(), {name: cpu_s(pid) for name, pid in scene.pids.items()}
    skip = len(scene.log.read_text())
    times = _play(scene, case, case.seconds)
    passed = time.monotonic() - began
    cores = {name: (cpu_s(pid) - before[name]) / passed for name, pid in scene.pids.items()}
    used = ", ".join(f"{name} {share:.2f}" for name, share in cores.items())
    memory = _resident(scene.pids["job"]) / 2**20
    line = f"{case.title():46}"
    if times:
        cuts = [(float(s), int(n)) for n, _, s in _CUT.findall(scene.log.read_text()[skip:])]
        spent = [seconds for seconds, records in cuts if records]
        ordered = sorted(times)
        line += (
            f" cut {median(spent):5.2f} ({len(spent)})   visible after {median(ordered):5.2f},"
            f" 95 % {ordered[len(ordered) * 95 // 100]:5.2f}, most {ordered[-1]:5.2f}"
        )
    return f"{line}   cores: {used}   job {memory:,.0f} MB"


def _play(scene: _Scene, case: Case, seconds: int) -> list[float]:
    """Write at the rate; return how long each of some commits took to be seen."""
    if not seconds or not case.rate:
        time.sleep(seconds)
        return []
    commits: list[tuple[float, int]] = []
    changes = case.rate // (_TRANSACTIONS * _CHANGE)
    with scene.server.connect() as connection:
        began = time.monotonic()
        number = 0
        while (now := time.monotonic()) < began + seconds:
            due = began + number / _TRANSACTIONS
            if now < due:
                time.sleep(due - now)
            _write(connection, scene, case, number * changes, changes)
            if number % (_TRANSACTIONS // 10) == 0:
                found = connection.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
                row: Any = found.fetchone()
                commits.append((time.monotonic(), int(row[0])))
            number += 1
        # So that the last of them is behind some marker's end.
        _write(connection, scene, case, number * changes, 1)
    if number < _TRANSACTIONS * seconds * 0.95:
        written = number * changes * _CHANGE / seconds
        raise BenchError(f"only {written:.0f} rows a second written")
    deadline = time.monotonic() + _START_S
    while _newest_lsn(scene.states) < commits[-1][1]:
        if time.monotonic() > deadline:
            raise BenchError("the tables do not come to what was written")
        time.sleep(_POLL_S)
    while not scene.seen or scene.seen[-1][1] < commits[-1][1]:
        if time.monotonic() > deadline:
            raise BenchError("what was seen of the tables was not noted")
        time.sleep(_POLL_S)
    seen = iter(list(scene.seen))
    at, lsn = next(seen)
    times = []
    for sent, wanted in commits:
        while lsn < wanted:
            at, lsn = next(seen)
        times.append(at - sent)
    return times


def _write(
    connection: psycopg.Connection[Any], scene: _Scene, case: Case, number: int, changes: int
) -> None:
    """Write a transaction with the changes from a number on, each of the next table."""
    parts = []
    for each in range(number, number + changes):
        parts.append(_change(f"t{each % case.changing}", scene.rows, scene.next_id, each))
        scene.next_id += 1
    connection.execute(f"BEGIN; {' '.join(parts)} COMMIT".encode())


def _change(table: str, rows: int, new_id: int, number: int) -> str:
    """Return a change: three updates, an insert or two, and a delete in its place."""
    first = number * _STRIDE % (rows - 10) + 1
    odd = number % 2
    last = f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table} WHERE id > {rows});"
    if odd:
        last = f"INSERT INTO {table} VALUES ({-new_id}, 'region 8', 'another', 2, 2.5);"
    return (
        f"UPDATE {table} SET quantity = quantity + 1, changed_at = now()"
        f" WHERE id BETWEEN {first} AND {first + 2};"
        f" INSERT INTO {table} VALUES ({new_id}, 'region 7', 'new', 1, 1.5); {last}"
    )


def _newest_lsn(states: Path) -> int:
    """Return the LSN of the newest manifest; 0 before there is one."""
    most = 0
    for name in ("newest.0", "newest.1"):
        try:
            found = json.loads((states / name).read_text())
        except (OSError, ValueError):
            continue
        most = max(most, int(found["end_lsn"]))
    return most


def _is_complete(states: Path, tables: int) -> bool:
    for name in ("newest.0", "newest.1"):
        try:
            found = json.loads((states / name).read_text())
        except (OSError, ValueError):
            continue
        ready = sum(state == "ready" for state in found["copies"].values())
        if ready == tables == len(found["tables"]):
            return True
    return False


def _resident(pid: int) -> int:
    """Return the resident memory of a process and its children, in bytes."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            status = Path(f"/proc/{one}/status").read_text()
            waiting += _children(one)
        except OSError:
            continue
        # A child that has ended and was not waited for has none.
        found = (x for x in status.splitlines() if x.startswith("VmRSS"))
        total += int(next(found, "VmRSS: 0").split()[1])
    return total * 1024


@contextmanager
def _running(
    root: Path, tables: int, rows: int, spark: Sequence[str], *, cluster: bool
) -> Iterator[_Scene]:
    """Servers, a gateway and a job of a checkout, with tables that are complete."""
    server, kafka, registry = EmbeddedPostgres(18), EmbeddedKafka(), EmbeddedRegistry()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for part in (server, kafka, registry):
            stack.callback(part.stop)
            part.start()
        with server.connect() as connection:
            _make(connection, tables, rows)
        place = _on_cluster(stack, root, folder) if cluster else _Place(folder / "warehouse")
        config = _configure(folder, server, kafka, registry, tables, place, spark)
        python = str(root / ".venv" / "bin" / "python")
        gateway = [python, "-m", "gateway", "run"]
        job = place.command or [python, "-m", "gateway", "consume"]
        began = time.monotonic()
        pids = {}
        for name, command, env in (("gateway", gateway, None), ("job", job, place.environment)):
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [*command, "--config", config],
                stderr=log,
                stdout=log,
                cwd=root,
                env=env,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            pids[name] = process.pid
        states = place.files / "fresh" / ".pgsluice"
        while not _is_complete(states, tables):
            if time.monotonic() > began + _START_S:
                said = (folder / "job.log").read_text()[-2000:]
                raise BenchError(f"the tables are not complete; the job said:\n{said}")
            time.sleep(_POLL_S)
        first = time.monotonic() - began
        jvm = pids["job"]
        if not cluster:
            # The JVM of a job is a child of its process, and does the work.
            pids["JVM"] = jvm = _children(pids["job"])[0]
        for number, worker in enumerate(place.workers, 1):
            pids |= {f"executor {number}": child for child in _children(worker)}
        scene = _Scene(server, pids, jvm, states, folder / "job.log", first, rows, rows + 1)
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(scene, ended), daemon=True)
        watcher.start()
        stack.callback(watcher.join)
        stack.callback(ended.set)
        yield scene


@dataclass(frozen=True, slots=True)
class _Place:
    """Place where the job runs.

    Attributes:
        files: The warehouse's files on this machine.
        warehouse: Its name for the job; empty: the path of `files`.
        command: Command of the job, without its configuration; empty: the gateway's.
        environment: Environment of the job.
        workers: Processes whose children the executors are.
    """

    files: Path
    warehouse: str = ""
    command: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    workers: Sequence[int] = ()


def _on_cluster(stack: ExitStack, root: Path, folder: Path) -> _Place:
    """Start a cluster and an S3 server, and build what is submitted."""
    dist = folder / "dist"
    subprocess.run(
        [root / ".venv" / "bin" / "python", root / "tools" / "dist.py", "--s3", dist],
        check=True,
        cwd=root,
        capture_output=True,
    )
    s3 = stack.enter_context(EmbeddedS3())
    cluster = stack.enter_context(EmbeddedSparkCluster(s3.spark_settings))
    jars = ",".join(sorted(map(str, (dist / "jars").glob("*.jar"))))
    settings = [f"--conf={name}={value}" for name, value in TUNED.items()]
    submit = ["spark-submit", "--master", cluster.master, "--jars", jars, *settings]
    return _Place(
        s3.bucket / "warehouse",
        "s3a://lake/warehouse",
        [*submit, str(dist / "consume.py")],
        {**cluster.environment, "PYTHONPATH": str(root)},
        cluster.workers,
    )


def _children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started."""
    found = (one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for text in found for child in text.split()]


def _watch(scene: _Scene, ended: threading.Event) -> None:
    """Note when each newest LSN was seen first."""
    newest = 0
    while not ended.wait(_POLL_S):
        lsn = _newest_lsn(scene.states)
        if lsn > newest:
            newest = lsn
            scene.seen.append((time.monotonic(), lsn))


def _make(connection: psycopg.Connection[Any], tables: int, rows: int) -> None:
    for number in range(tables):
        connection.execute(_TABLE.format(name=f"t{number}", rows=rows).encode())


def _configure(
    folder: Path,
    server: EmbeddedPostgres,
    kafka: EmbeddedKafka,
    registry: EmbeddedRegistry,
    tables: int,
    place: _Place,
    spark: Sequence[str],
) -> Path:
    listed = ", ".join(f"t{number}" for number in range(tables))
    definitions = (
        f"CREATE PUBLICATION p FOR TABLE {listed};\n"
        "CREATE SUBSCRIPTION fresh CONNECTION '' PUBLICATION p;\n"
    )
    consumer: dict[str, Any] = {
        "warehouse": place.warehouse or str(place.files),
        "checkpoint": str(folder / "checkpoint"),
        "subscriptions": ["fresh"],
        "trigger_interval_s": 1,
        "metrics_listen": f"127.0.0.1:{free_port()}",
    }
    of_spark: dict[str, Any] = {
        "spark.local.dir": str(folder / "spark"),
        **dict(one.split("=", 1) for one in spark),
    }
    more = {"consumer": consumer, "consumer.spark": of_spark}
    return configure(folder, "fresh", definitions, server, kafka, registry, more)
