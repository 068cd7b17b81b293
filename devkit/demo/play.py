"""One play of the scenario, from the first server to the verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from devkit.demo import scenario
from devkit.demo.console import Console, DemoError
from devkit.demo.native import Connection, NativeSubscriptions, execute, read_table
from devkit.demo.order import Order, read_result
from devkit.demo.servers import SLOT, Parts
from devkit.demo.show import format_table, side_by_side
from devkit.demo.verdict import Comparison, Row, TableKey, TableRows, compare, summary
from devkit.demo.watch import Watcher, describe
from gateway.core.lsn import Lsn, format_lsn, parse_lsn

__all__ = ["GATEWAY", "SPARK_JOB", "Play", "rebuilt"]

GATEWAY: Final = "gateway"
SPARK_JOB: Final = "spark-job"
_SEED: Final = 31_003
_TRANSACTIONS: Final = 500
_SHOWN_ROWS: Final = 9
_TIMEOUT_S: Final = 120.0
_SPARK_TIMEOUT_S: Final = 600.0


class Play:
    """One play of the scenario on `parts`; what it opens goes onto `opened`."""

    def __init__(self, console: Console, parts: Parts, opened: ExitStack) -> None:
        self._console = console
        self._parts = parts
        self._opened = opened
        self._native = NativeSubscriptions(parts.postgres)
        opened.callback(self._native.close)

    def run(self) -> int:
        """Return 0 when every table is equal, else 1.

        Raises:
            GatewayError: a part failed, or did not do what it has to in time.
        """
        console, parts = self._console, self._parts
        console.head(f"Servers and processes, each its own; folder {parts.folder}")
        order = Order(parts.folder)
        self._opened.callback(order.close)
        starting = parts.start_servers()
        parts.launch(SPARK_JOB, ["-m", "devkit.demo.consumer", parts.folder])
        postgres = f"PostgreSQL {parts.postgres.major}"
        console.wait_for({postgres: starting.pop(postgres)})
        publisher = self._opened.enter_context(self._publisher())
        self._native.subscribe()
        console.timed("native subscriptions are copying their tables")
        console.wait_for(starting)
        parts.write_configuration()
        watcher = self._start_gateway(publisher)
        self._play_steps(publisher, watcher)
        lsn = _current_lsn(publisher)
        order.give(lsn)
        self._finish(lsn)
        return self._judge(publisher)

    @contextmanager
    def _publisher(self) -> Iterator[Connection]:
        """The publisher's database, with tables, publications and first rows."""
        with self._parts.postgres.connect() as connection:
            execute(connection, f"CREATE DATABASE {scenario.PUBLISHER}")
        with self._parts.postgres.connect(scenario.PUBLISHER) as publisher:
            for statement in (*scenario.TABLES, *scenario.PUBLICATIONS):
                execute(publisher, statement)
            for step in scenario.BEFORE:
                _play(publisher, step)
            yield publisher

    def _start_gateway(self, publisher: Connection) -> Watcher:
        """Start the daemon and read the topics until all tables are copied."""
        console, parts = self._console, self._parts
        parts.launch(GATEWAY, ["-m", "gateway", "run", "--config", parts.config])

        def streaming() -> bool:
            query = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND active"
            return bool(publisher.execute(query, [SLOT]).fetchall())

        self._wait_until(streaming, "the gateway starts")
        watcher = Watcher(
            parts.kafka.client_settings,
            parts.registry.client_settings,
            [s.name for s in scenario.SUBSCRIPTIONS],
        )
        self._opened.callback(watcher.close)
        topics = watcher.start()
        tables = sum(not topic.endswith(".transaction") for topic in topics)

        def complete() -> bool:
            watcher.poll()
            return watcher.copied(tables)

        self._wait_until(complete, "the gateway copies the tables")
        console.timed(f"gateway streams from slot {SLOT} into {len(topics)} topics")
        console.say(f"    its page: {parts.pages(GATEWAY)[-1]}")
        console.head("Initial data synchronization: how many rows passed a filter")
        copied = Counter(c.topic for c in watcher.pop() if c.op == "r")
        for topic in topics:
            if not topic.endswith(".transaction"):
                console.say(f"    {topic:<24} {copied[topic]}")
        return watcher

    def _play_steps(self, publisher: Connection, watcher: Watcher) -> None:
        """Play the manual's examples and the live workload, showing what comes of each."""
        for title, steps in (
            ("The manual's examples, and what the topics get", scenario.MANUAL),
            ("Live statements", scenario.LIVE),
        ):
            self._console.head(title)
            for step in steps:
                lsn = _play(publisher, step)
                self._show_step(step)
                self._read_up_to(watcher, lsn)
                self._show_changes(watcher)
        self._console.head(f"{_TRANSACTIONS} random transactions, seed {_SEED}")
        begin = time.monotonic()
        for step in scenario.traffic(_SEED, _TRANSACTIONS):
            lsn = _play(publisher, step)
            watcher.poll(timeout_s=0)
        played = time.monotonic()
        self._read_up_to(watcher, lsn)
        names = {"c": "inserts", "u": "updates", "d": "deletes", "t": "truncates"}
        counts = Counter(names[change.op] for change in watcher.pop())
        shown = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        self._console.say(
            f"    played in {played - begin:.1f} s, in Kafka {time.monotonic() - played:.1f} s"
            f" later: {shown}"
        )

    def _show_step(self, step: scenario.Step) -> None:
        self._console.say(f"  -- {step.note}")
        statements = [f"  {statement};" for statement in step.statements]
        if len(statements) > 1 or step.rolled_back:
            statements = ["  BEGIN;", *statements]
            statements.append("  ROLLBACK;" if step.rolled_back else "  COMMIT;")
        self._console.say("\n".join(statements))

    def _show_changes(self, watcher: Watcher) -> None:
        changes = [(change, describe(change)) for change in watcher.pop()]
        lines = [f"      {change.topic:<20} {text}" for change, text in changes if text]
        self._console.say("\n".join(lines or ["      (nothing for anybody)"]))

    def _finish(self, lsn: Lsn) -> None:
        """Wait until both sides are complete up to `lsn`; stop gateway and Spark job."""
        console, parts = self._console, self._parts
        console.head(f"Everything up to LSN {format_lsn(lsn)}")
        self._wait_until(self._native.copied, "native subscriptions copy their tables")
        self._wait_until(lambda: self._native.applied(lsn), "native subscriptions apply")
        console.timed("native subscriptions have applied it")
        code = parts.end(GATEWAY, _TIMEOUT_S)
        if code != 0:
            raise DemoError(f"the gateway ended with code {code} on SIGTERM")
        console.timed("gateway stopped on SIGTERM, exit code 0")
        console.timed("Spark job is applying it (about a minute)")
        begun: set[str] = set()

        def ended() -> bool:
            for name in sorted(rebuilt(parts.folder / "warehouse") - begun):
                begun.add(name)
                console.timed(f"  {name} has its first rows")
            return parts.ended(SPARK_JOB)

        self._wait_until(
            ended, f"pgsluice consume --endpos {format_lsn(lsn)}", timeout_s=_SPARK_TIMEOUT_S
        )
        parts.check()
        console.timed("Spark job has applied it: pgsluice consume --endpos, exit code 0")

    def _judge(self, publisher: Connection) -> int:
        """Show the tables, compare, print the verdict."""
        native: dict[TableKey, TableRows] = {
            (s.name, schema, table): self._native.rows(s.name, schema, table)
            for s in scenario.SUBSCRIPTIONS
            for schema, table in self._native.tables(s.name)
        }
        comparisons = compare(native, read_result(self._parts.folder))
        self._console.head("Publisher, and subscriber tables rebuilt in Delta Lake")
        for comparison in comparisons:
            self._console.say("\n".join(_both(publisher, comparison)))
        for comparison in comparisons:
            for line in comparison.differences():
                self._console.say(line)
        self._console.say(summary(comparisons))
        return 0 if comparisons and all(c.equal for c in comparisons) else 1

    def _wait_until(
        self, condition: Callable[[], bool], what: str, *, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._console.wait_until(condition, what, timeout_s=timeout_s, check=self._parts.check)

    def _read_up_to(self, watcher: Watcher, lsn: Lsn) -> None:
        def reached() -> bool:
            watcher.poll()
            return watcher.published(lsn)

        self._wait_until(reached, f"the topics up to {format_lsn(lsn)}")


def rebuilt(warehouse: Path) -> set[str]:
    """Return the tables that the Spark job has begun to write, as subscription.schema.table."""
    commits = warehouse.glob("*/*/*/_delta_log/*.json")
    return {".".join(commit.relative_to(warehouse).parts[:3]) for commit in commits}


def _play(publisher: Connection, step: scenario.Step) -> Lsn:
    """Play one transaction; return an LSN at or after its end."""
    with publisher.transaction(force_rollback=step.rolled_back):
        for statement in step.statements:
            execute(publisher, statement)
    return _current_lsn(publisher)


def _current_lsn(publisher: Connection) -> Lsn:
    row = publisher.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(str(row[0]))


def _both(publisher: Connection, comparison: Comparison) -> list[str]:
    """Lines of the publisher's table beside the rebuilt one."""
    _, schema, table = comparison.key
    rebuilt = comparison.rebuilt or TableRows((), ())
    order = sorted(rebuilt.rows, key=_sort_key)
    left = format_table(
        f"{scenario.PUBLISHER}: {schema}.{table}",
        read_table(publisher, schema, table),
        most_rows=_SHOWN_ROWS,
    )
    verdict = "equal to native" if comparison.equal else "NOT equal to native"
    right = format_table(
        f"{comparison.name} ({verdict})",
        TableRows(rebuilt.columns, tuple(order)),
        most_rows=_SHOWN_ROWS,
    )
    return ["", *side_by_side(left, right)]


def _sort_key(row: Row) -> list[tuple[bool, float, str]]:
    """Numbers by value, text by code point, NULL last: nearly PostgreSQL's order, for show."""
    return [
        (value is None, float(value) if value and value.lstrip("-").isdigit() else 0.0, value or "")
        for value in row
    ]
