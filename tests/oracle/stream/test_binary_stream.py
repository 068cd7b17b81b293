"""A binary stream and a text stream of the same transactions make the same records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from schemas.settings.tables import TYPE_CHOICES
from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProject, Read, TopicReader
from tests.support.run.majors import alternating
from tests.support.workloads.dml import FIRST, PUBLICATIONS, TABLES, Workload

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'so so');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE typed (
    id bigint, at timestamptz, n numeric, n2 numeric(12,3), f real, d double precision,
    ok boolean, day date, t time, tz timetz, ts timestamp, i interval, u uuid, b bytea,
    v varchar(20), c char(5), j json, jb jsonb, net inet, mac macaddr, bits varbit, p point,
    m mood, pr pair, dom positive, ints int[], words text[], spans interval[],
    r int4range, mr datemultirange,
    vec tsvector, acl aclitem, cash money, big text,
    PRIMARY KEY (id, at, n)
);
ALTER TABLE typed ALTER COLUMN big SET STORAGE EXTERNAL;
CREATE TABLE typed_whole (LIKE typed);
ALTER TABLE typed_whole DROP COLUMN cash, REPLICA IDENTITY FULL;
"""

PUBLISHED = (
    "id, at, n, n2, f, d, ok, day, t, tz, ts, i, u, b, v, c, j, jb, net, mac, bits, p, m, pr, dom,"
    " ints, words, spans, r, mr, vec, acl, big"
)

TYPED_PUBLICATIONS = f"""
CREATE PUBLICATION pt FOR TABLE typed ({PUBLISHED})
    WHERE (n > 2.5 AND at >= '2024-01-03 00:00+00');
CREATE PUBLICATION pw FOR TABLE typed_whole
    WHERE (d < 0.5 OR ts IS NULL OR day > '2024-02-10' OR c = 'abc');
"""

# money cannot be read in binary format: it is left out of the column list.
ROWS = """
INSERT INTO typed
SELECT i, timestamptz '2024-01-01 UTC' + i * interval '7 hours 0.001 seconds', i * 1.10,
    i / 7.0, i / 3.0, 1 / (i + 0.5), i % 2 = 0, date '2024-02-01' + i,
    time '00:00' + i * interval '17.25 min', time '12:00' + i * interval '1 min',
    CASE WHEN i % 5 > 0 THEN timestamp '0001-01-01' + i * interval '100 years' END,
    make_interval(months => i - 20, days => 10 - i, secs => i * 0.5), md5(i::text)::uuid,
    decode(md5(i::text), 'hex'), 'value ' || i, 'abc', '{"a" : 1}', '{"b": [1, null]}',
    inet '10.0.0.0/8' + i, '08:00:2b:01:02:03', i::bit(9)::varbit, point(i, -i / 3.0),
    CASE i % 2 WHEN 0 THEN 'sad' ELSE 'so so' END::mood, ROW(i, 'it"s')::pair, i + 1,
    ARRAY[i, NULL], ARRAY['a b', 'NULL', ''],
    ARRAY[make_interval(days => -i), NULL], int4range(i, i + 5),
    '{[2024-01-01,2024-02-01),[2024-03-01,)}', 'a:1A b:2', '=r/postgres', i, repeat('x', i * 200)
FROM generate_series(1, 40) AS i;
"""

WHOLE = f"""
INSERT INTO typed_whole ({PUBLISHED}) SELECT {PUBLISHED} FROM typed;
UPDATE typed SET v = 'changed' WHERE id % 3 = 0;
UPDATE typed SET n = n - 3 WHERE id % 4 = 0;
UPDATE typed SET id = id + 100, cash = 7 WHERE id % 7 = 0;
UPDATE typed_whole SET d = d + 0.25, words = NULL WHERE id % 3 = 0;
UPDATE typed_whole SET ts = NULL, c = 'x' WHERE id % 5 = 1;
DELETE FROM typed WHERE id % 6 = 1;
DELETE FROM typed_whole WHERE id % 6 = 1;
"""

NAMES = ("keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted")


def comparable(record: Read, subscription: str) -> Read:
    """The record without what differs between two gateways: where it stands and when it was made.

    Offsets differ because the ends of Kafka's transactions take some, too.
    """
    value: dict[str, Any] | None = record.value
    if value is not None:
        value = {name: part for name, part in value.items() if name != "ts_ms"}
    return replace(record, topic=record.topic.removeprefix(subscription), offset=0, value=value)


def last_lsn(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


@alternating(__name__, 16, 18)
def test_binary_and_text_streams_make_the_same_records(
    database: Database, kafka: str, registry: str, tmp_path: Path
) -> None:
    projects = {}
    published = ", ".join((*FIRST, "pt", "pw"))
    with database.connect() as connection:
        connection.execute(f"{TABLES} {TYPES}".encode())
        for binary in ("true", "false"):
            name = f"{'binary' if binary == 'true' else 'text'}_{database.name}"
            folder = tmp_path / name
            folder.mkdir()
            projects[name] = GatewayProject(
                folder,
                database.dsn,
                kafka,
                registry,
                name,
                f"{PUBLICATIONS} {TYPED_PUBLICATIONS}"
                f"CREATE SUBSCRIPTION {name} CONNECTION '' PUBLICATION {published}"
                f" WITH (copy_data = false, binary = {binary});",
                {"gateway": {"name": "same"}, "types": dict.fromkeys(TYPE_CHOICES, "native")},
            )
        try:
            for name, project in projects.items():
                gateway = project.start()
                gateway.wait_until_copied()
                assert f"binary={name.startswith('binary')}" in gateway.log()
                gateway.kill()
            Workload(connection, 1).run(60)
            connection.execute(ROWS.encode())
            connection.execute(WHOLE.encode())
            Workload(connection, 2).run(20)
            end = last_lsn(connection)
            for project in projects.values():
                project.run_to(end)
        finally:
            for project in projects.values():
                project.stop_all()

    with TopicReader(kafka, registry) as reader:
        first, second = projects
        for table in (*NAMES, "typed", "typed_whole"):
            binary_records, text_records = (
                [comparable(r, name) for r in reader.read(f"{name}.public.{table}")]
                for name in (first, second)
            )
            assert binary_records == text_records, table
            assert text_records, table
