"""What a row costs to encode, beside fastavro in the same run: ``python -m bench.encode``.

A row of seven columns (int8, text, text, int4, numeric(10,2), timestamptz, bool) in PostgreSQL's
text format. "fastavro" is the slow way to the same bytes: text to Python values (`reference`), the
envelope as a dict, fastavro's writer with nullable unions. Times are the best of several rounds;
only the ratios mean something on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro

from gateway.envelope.envelope import EnvelopeEncoder, TransactionContext
from gateway.envelope.headers import HeaderMaker
from tests.unit.envelope.columns import EnvelopeColumn
from tests.unit.envelope.reference import row_datum

ROUNDS = 9
ROWS = 5_000

COMMIT_LSN = 0x16_B374D848
CONTEXT = TransactionContext(
    gateway="pgsluice",
    db="shop",
    version="0.1.0",
    xid=745,
    commit_lsn=COMMIT_LSN,
    commit_time=771_234_567_890_123,
    origin=None,
    snapshot="false",
    ts_ms=1_717_171_717_171,
)
COLUMNS = [
    ("id", 20, -1, "bigint"),
    ("name", 25, -1, "text"),
    ("note", 25, -1, "text"),
    ("quantity", 23, -1, "integer"),
    ("price", 1700, (10 << 16 | 2) + 4, "numeric(10,2)"),
    ("changed_at", 1184, -1, "timestamp with time zone"),
    ("active", 16, -1, "boolean"),
]


def make_rows() -> list[tuple[bytes, ...]]:
    """Rows that differ from each other in every column."""
    return [
        (
            b"%d" % (10_000_000 + n * 7919),
            b"customer number %d" % n,
            b"a note of some forty characters, row %d" % n,
            b"%d" % (n % 1000),
            b"%d.%02d" % (n * 31 % 100_000, n % 100),
            b"2024-%02d-%02d %02d:%02d:%02d.%06d+00"
            % (n % 12 + 1, n % 28 + 1, n % 24, n % 60, n * 7 % 60, n * 104_729 % 1_000_000),
            b"t" if n % 3 else b"f",
        )
        for n in range(ROWS)
    ]


def best_us(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of CPU per row of each work's fastest round; the works take turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
    return {name: min(rounds) / ROWS * 1e6 for name, rounds in times.items()}


def main() -> None:
    """Measure and print."""
    encoder = EnvelopeEncoder(
        "public",
        "orders",
        [EnvelopeColumn(n, oid, mod, text, oid, mod, "b") for n, oid, mod, text in COLUMNS],
        key=("id",),
        identity=("id",),
        replica_identity="d",
        indexes=range(len(COLUMNS)),
    )
    rows = make_rows()
    parsed = fastavro.parse_schema(encoder.value_schema)
    prefix = encoder.begin(CONTEXT)
    encode_row, value = encoder.encode_row, encoder.value
    encode_key, canonical = encoder.encode_key, encoder.canonical_key
    assert encode_key is not None
    assert canonical is not None
    headers = HeaderMaker(COMMIT_LSN, 745)

    def ours() -> list[bytes]:
        return [
            value(b"c", None, encode_row(row), prefix, COMMIT_LSN - 64, n, n, n)
            for n, row in enumerate(rows, 1)
        ]

    empty = fastavro.schemaless_reader(BytesIO(ours()[0]), parsed, parsed)
    assert isinstance(empty, dict)

    def slowly() -> list[bytes]:
        envelopes = []
        for n, row in enumerate(rows, 1):
            datum: dict[str, Any] = {
                **empty,
                "after": row_datum(encoder.schema, range(len(COLUMNS)), row),
                "source": {**empty["source"], "seq": n},
                "transaction": {
                    **empty["transaction"],
                    "total_order": n,
                    "data_collection_order": n,
                },
            }
            out = BytesIO()
            fastavro.schemaless_writer(out, parsed, datum)
            envelopes.append(out.getvalue())
        return envelopes

    assert ours() == slowly(), "the two ways differ"
    measured = best_us(
        {
            "row and envelope, fastavro": slowly,
            "row and envelope, generated": ours,
            "  the row alone": lambda: [encode_row(row) for row in rows],
            "key": lambda: [encode_key(row) for row in rows],
            "canonical key": lambda: [canonical(row) for row in rows],
            "headers": lambda: [headers.make(COMMIT_LSN - 64, n, b"c") for n in range(ROWS)],
        }
    )
    base = measured["row and envelope, fastavro"]
    for name, us in measured.items():
        print(f"{name:30} {us:8.2f} us/row   1/{base / us:.1f} of fastavro")


if __name__ == "__main__":
    main()
