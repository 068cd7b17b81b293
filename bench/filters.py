"""What a row costs for ten typical filters, here and asked: ``python -m bench.filters``.

For each filter: the gateway's CPU for a row here; and for a row in batches of 1,000 by the server,
the gateway's CPU and the time that the server takes. The last line is the crossover: how dear an
evaluation here would have to be before asking is cheaper for the gateway.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import psycopg

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.descriptors import wait_readable
from gateway.definitions.model import Collation, Column
from gateway.pgtypes.catalog import TYPES
from gateway.rowfilter import AskedColumn, Question, place_filter
from gateway.source.filters.evaluator import ServerEvaluator

ROWS = 1_000
ROUNDS = 30
KINDS = {"id": "int4", "region": "text", "price": "numeric", "at": "timestamptz", "f": "float8",
         "tags": "_text", "doc": "jsonb", "ok": "bool"}  # fmt: skip
FILTERS = (
    "(id > 500)",
    "(region = 'EU'::text)",
    "(region = ANY (ARRAY['EU'::text, 'US'::text, 'JP'::text]))",
    "((id >= 100) AND (id <= 900) AND ok)",
    "(price > 99.5)",
    "((price * 1.2) > 99.5)",
    "(at >= '2024-06-01 00:00:00+00'::timestamp with time zone)",
    "(region ~~ 'E%'::text)",
    "((region ~~* 'e%'::text) OR (f > '0.5'::double precision))",
    "((doc @> '{\"a\": 1}'::jsonb) AND (tags && '{x,y}'::text[]))",
)


def main() -> int:
    """Print the table."""
    columns = [_column(name, kind) for name, kind in KINDS.items()]
    rows = [_row(number) for number in range(ROWS)]
    print(f"{'filter':62} {'here':>8} {'asking':>8} {'server':>8}   (microseconds a row)")
    asked_costs = []
    with EmbeddedPostgres(18) as server:
        evaluator = ServerEvaluator(server.dsn(), timeout_s=60, source_dsn=server.dsn())
        with closing(evaluator), psycopg.connect(server.dsn(), autocommit=True):
            for text in FILTERS:
                filter_ = place_filter(text, columns)
                here = "-"
                if filter_.refused is None:
                    passes = filter_.bind(list(KINDS))
                    here = f"{_cost(lambda: [passes(row) for row in rows]):.2f}"  # noqa: B023
                cpu, elapsed = _asked(evaluator, text, columns, rows)
                asked_costs.append(cpu)
                print(f"{text[:62]:62} {here:>8} {cpu:8.2f} {elapsed:8.2f}")
            one = [_alone(evaluator, FILTERS[-1], columns, rows[0]) for _ in range(200)]
    print(f"\none row alone, asked: median {statistics.median(one):.0f} us")
    print(f"crossover: asking costs the gateway {statistics.median(asked_costs):.2f} us a row")
    return 0


def _column(name: str, kind: str) -> Column:
    oid = TYPES[kind.removeprefix("_")][kind.startswith("_")]
    collation = Collation("default", True, False) if kind.endswith("text") else None
    return Column(name, 1, oid, -1, kind, oid, -1, "b", False, "", collation)


def _row(number: int) -> tuple[bytes, ...]:
    region = (b"EU", b"US", b"JP", b"CN")[number % 4]
    return (
        b"%d" % number,
        region,
        b"%d.%02d" % (number % 200, number % 100),
        b"2024-%02d-%02d 12:34:56.%06d+00" % (number % 12 + 1, number % 28 + 1, number + 1),
        b"0.%d" % number,
        b"{x,z}" if number % 2 else b"{}",
        b'{"a": %d, "b": "text"}' % (number % 3),
        b"t" if number % 3 else b"f",
    )


def _cost(work: Callable[[], object]) -> float:
    """Microseconds of CPU for a row, the best of some rounds."""
    found = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return min(found) / ROWS * 1e6


def _asked(
    evaluator: ServerEvaluator,
    text: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[bytes]],
) -> tuple[float, float]:
    """The gateway's CPU and the time until the answer, for a row."""
    question, values = _question(text, columns, rows)
    cpu, elapsed = [], []
    for _ in range(ROUNDS):
        cpu_before, before = time.process_time(), time.perf_counter()
        _answer(evaluator, question, values)
        elapsed.append(time.perf_counter() - before)
        cpu.append(time.process_time() - cpu_before)
    return min(cpu) / ROWS * 1e6, min(elapsed) / ROWS * 1e6


def _alone(
    evaluator: ServerEvaluator, text: str, columns: Sequence[Column], row: Sequence[bytes]
) -> float:
    question, values = _question(text, columns, [row])
    before = time.perf_counter()
    _answer(evaluator, question, values)
    return (time.perf_counter() - before) * 1e6


def _question(
    text: str, columns: Sequence[Column], rows: Sequence[Sequence[bytes]]
) -> tuple[Question, list[list[bytes]]]:
    read = place_filter(text, columns).columns
    places = [place for place, column in enumerate(columns) if column.name in read]
    asked = tuple(AskedColumn(columns[p].name, columns[p].type_oid, None) for p in places)
    return Question(asked, (text,)), [[row[place] for place in places] for row in rows]


def _answer(
    evaluator: ServerEvaluator, question: Question, values: Sequence[Sequence[bytes]]
) -> None:
    evaluator.ask(question, values)
    while evaluator.collect() is None:
        wait_readable([evaluator.fileno()], 1)


if __name__ == "__main__":
    sys.exit(main())
