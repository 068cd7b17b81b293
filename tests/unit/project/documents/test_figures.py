"""Figures in the documents are the constants that they stand for."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from gateway.commands.check import values
from gateway.commands.verify import judge
from gateway.definitions.tables import labels
from gateway.envelope import bounds
from gateway.monitor import http_server, watch
from gateway.monitor.page import document
from gateway.rowfilter.server import pushdown
from gateway.runtime.lifecycle import standby
from gateway.runtime.loop import pipeline, shutdown_keepalives
from gateway.sink.clients import properties
from gateway.sink.delivery import outage, topic_identity
from gateway.source.session import connection, session
from gateway.transactions import buffer, spool
from schemas import kafka_errors, types
from schemas.settings import text_files
from spark_consumer.apply.driver import writer as small_writer
from spark_consumer.formats.delta import files as delta_files
from spark_consumer.formats.delta import merge
from spark_consumer.job import maintenance
from spark_consumer.observe import bounded_http
from spark_consumer.observe import health as job_health
from spark_consumer.spark import session as spark_session
from spark_consumer.spark import tuning
from spark_consumer.values import conversions
from spark_consumer.verify import text

DOCS = Path(__file__).resolve().parents[4] / "docs"
WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
KIB, MIB = 1 << 10, 1 << 20
N = r"(\d[\d,.]*\d|\d|two|three|four|five|ten)"
"""A number in digits, or as a word."""

FIGURES = [
    (
        "monitoring.md",
        f"At most {N} connections are open, each for one request and for {N} seconds, with {N} KiB",
        (http_server.CONNECTIONS, http_server.REQUEST_S, http_server._HEADER_BYTES / KIB),
    ),
    (
        "monitoring.md",
        f"the page refreshes every {N} seconds",
        (int(re.findall(r"setTimeout\(refresh, (\d+)\)", document.SCRIPT)[-1]) / 1000,),
    ),
    ("monitoring.md", f"Every {N} seconds, a second connection asks", (watch._LOOK_S,)),
    ("monitoring.md", f"Asked every {N} seconds when nothing is written", (outage._PAUSE_S,)),
    (
        "operations.md",
        f"no device, and at most {N} MiB, of a value {N} MiB",
        (text_files.LONGEST_FILE / MIB, text_files.LONGEST_SECRET / MIB),
    ),
    ("operations.md", f"has more than {N} values", (bounds.MOST_VALUES,)),
    ("operations.md", f"with those in force every {N} seconds", (standby._LOOK_S,)),
    (
        "operations.md",
        rf"`statement_timeout` \({N} s\) plus {N} s; for a chunk of a copy {N} s",
        (
            signature(connection.connect).parameters["statement_timeout_s"].default,
            connection._GRACE_S,
            session.DEFAULT_SILENCE_S,
        ),
    ),
    ("protocol.md", f"payload and {N} bytes for each", (buffer.FRAME_OVERHEAD,)),
    (
        "protocol.md",
        f"read back about {N} frames or {N} MiB at a time",
        (spool.CHUNK_FRAMES, spool.CHUNK_BYTES / MIB),
    ),
    (
        "protocol.md",
        f"less than {N} s after our answer, for more than {N} s",
        (shutdown_keepalives.GAP_S, shutdown_keepalives.PATIENCE_S),
    ),
    ("protocol.md", f"because {N} MiB of committed transactions", (pipeline.AHEAD_BYTES / MIB,)),
    ("delivery.md", f"for {N} seconds \\(librdkafka waits", (topic_identity._TIMEOUT_S,)),
    (
        "delivery.md",
        f'{N} seconds \\(`"socket.timeout.ms"` and `"request.timeout.ms"`',
        (int(properties._PRODUCER_DEFAULTS["socket.timeout.ms"]) / 1000,),
    ),
    ("delivery.md", f"refuse the connection \\| {N} seconds", (kafka_errors.PATIENCE_S,)),
    ("row-filters.md", f"The filters have {N} alternatives", (pushdown.LIMIT,)),
    (
        "spark.md",
        f"may claim to hold \\({N} MB; {N} elements",
        (
            spark_session._AVRO_LIMITS["org.apache.avro.limits.bytes.maxLength"] / MIB,
            spark_session._AVRO_LIMITS["org.apache.avro.limits.collectionItems.maxLength"],
        ),
    ),
    ("types.md", f"for at most {N} seconds, and all", (values._TABLE_S,)),
    ("envelope.md", f"more than {N} bytes as JSON", (labels.MOST_BYTES,)),
    ("types.md", f"or of more than {N} items", (types.MOST_ITEMS,)),
    ("spark.md", f"an array of more than {N} items", (conversions.MOST_LITERALS,)),
    ("spark.md", f"seen of the job in the last {N} minutes", (job_health._STALE_S / 60,)),
    (
        "spark.md",
        f"there are {N} connections at most, and a request may take {N} seconds and {N} KiB",
        (bounded_http.CONNECTIONS, bounded_http.REQUEST_S, bounded_http.HEADER_BYTES / KIB),
    ),
    (
        "spark.md",
        f"{N} or more files of less than {N} MB on average",
        (maintenance._MANY_FILES, maintenance._SMALL_FILE_BYTES / MIB),
    ),
    ("spark.md", f"read {N} times; then it is `not compared`", (judge._ROUNDS,)),
    ("spark.md", f"values longer than {N} bytes as MD5", (text.LONG_BYTES,)),
    (
        "spark.md",
        f"at most {N} records and {N} MB, table up to {N} MB",
        (tuning._MOST_RECORDS, tuning.SMALL_BYTES / MIB, small_writer.LARGEST_BYTES / MIB),
    ),
    ("spark.md", f"of up to {N} kB together", (small_writer.TAIL_BYTES / KIB,)),
    (
        "spark.md",
        f"is written as a whole by it up to {N} MB",
        (small_writer.SMALL_TABLE_BYTES / MIB,),
    ),
    ("spark.md", f"beside up to {N} of them", (small_writer._MOST_FILES,)),
    ("spark.md", f"or with more than {N} files", (delta_files._MOST_FILES,)),
    ("spark.md", f"table of more than {N} MB", (merge.VECTOR_BYTES / MIB,)),
    (
        "spark.md",
        f"Of at most {N} records and {N} MB, and a table of up to {N} MB",
        (tuning._MOST_RECORDS, tuning.SMALL_BYTES / MIB, tuning._TABLE_BYTES / MIB),
    ),
]


@pytest.mark.parametrize(("name", "sentence", "numbers"), FIGURES)
def test_a_documented_figure_is_the_constant(
    name: str, sentence: str, numbers: tuple[float, ...]
) -> None:
    page_text = " ".join((DOCS / name).read_text(encoding="utf-8").split())
    found = re.search(sentence, page_text)

    assert found is not None, f"docs/{name} has no such sentence"
    assert tuple(map(_number, found.groups())) == numbers


def test_the_page_has_the_history_of_an_hour() -> None:
    assert "lag over the last hour" in (DOCS / "monitoring.md").read_text(encoding="utf-8")
    assert watch._KEPT * watch._LOOK_S == 3600


def _number(figure: str) -> float:
    return WORDS.get(figure) or float(figure.replace(",", ""))
