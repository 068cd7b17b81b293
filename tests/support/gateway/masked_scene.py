"""Tables with values that must not be seen, and a search for them in all that a gateway writes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Connection

__all__ = [
    "KEY",
    "ROW",
    "VARIABLE",
    "assert_hidden",
    "hashed",
    "key_file",
    "source",
    "written",
]

VARIABLE = "PGSLUICE_COLUMNS__HASH_KEY_FILE"

KEY = "a key of the tests, of forty characters."
TABLES = """
CREATE TABLE people (ssn text PRIMARY KEY, name text, mail varchar(80), born date, salary int,
    level int, code char(8));
ALTER TABLE people REPLICA IDENTITY FULL;
CREATE TABLE notes (id text PRIMARY KEY, body text, n int);
ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;
CREATE TABLE bag (secret text, n int);
ALTER TABLE bag REPLICA IDENTITY FULL;
"""
ROW = """
INSERT INTO people SELECT 'ssn-secret-' || n, 'name-secret-' || n, 'mail-secret-' || n % 2,
    '9999-12-31', 1987654321, 1, 'CD-' || n
FROM generate_series({0}, {1}) AS n;
INSERT INTO notes SELECT 'note-secret-' || n, repeat('life-secret-' || n || ' ', 800), 1
FROM generate_series({0}, {1}) AS n;
"""
SALARY, BORN = 1987654321, date(9999, 12, 31)


def forms(number: int) -> list[bytes]:
    """A number in Avro, in PostgreSQL's binary format, and as text."""
    avro = BytesIO()
    fastavro.schemaless_writer(avro, "int", number)
    return [avro.getvalue(), number.to_bytes(4, "big"), b"%d" % number]


SECRETS = (
    *(b"-secret", b"CD-", b"9999-12-31"),
    *forms(SALARY),
    *forms((BORN - date(1970, 1, 1)).days),
    *forms((BORN - date(2000, 1, 1)).days),
)
"""Parts of the masked values, of four bytes and more, in every form that a record could have."""


def hashed(text: str) -> str:
    """The definition, by Python's own modules."""
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        yield connection


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hash.key"
    path.write_text(f"{KEY}\n")
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def written(kafka: str, registry: str, slot: str) -> dict[str, bytes]:
    """All bytes of all of the gateway's topics, open and aborted transactions too, and schemas."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"all-{slot}",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    pieces: dict[str, list[bytes]] = {}
    try:
        topics = consumer.list_topics(timeout=60).topics
        names = sorted(name for name in topics if name.startswith(slot))
        places = [
            TopicPartition(n, p, OFFSET_BEGINNING) for n in names for p in topics[n].partitions
        ]
        pieces = {name: [] for name in names}
        consumer.assign(places)
        open_places = {(place.topic, place.partition) for place in places}
        while open_places:
            message = consumer.poll(60)
            assert message is not None, f"no end of {sorted(open_places)}"
            topic = message.topic() or ""
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_places.discard((topic, message.partition() or 0))
                continue
            headers: Any = message.headers() or []
            of_topic = pieces[topic]
            of_topic += [message.key() or b"", message.value() or b""]
            of_topic += [value or b"" for _, value in headers]
    finally:
        consumer.close()
    found = {name: b"\n".join(of_topic) for name, of_topic in pieces.items()}
    client = SchemaRegistryClient({"url": registry})
    # The registry lists no more than a thousand subjects, those of other tests included.
    for subject in [f"{name}-{part}" for name in found for part in ("key", "value")]:
        try:
            schema = client.get_latest_version(subject).schema.schema_str
        except SchemaRegistryError as error:
            assert error.http_status_code == 404, subject
        else:
            found[f"subject {subject}"] = (schema or "").encode()
    return found


def assert_hidden(found: dict[str, bytes]) -> None:
    for name, data in found.items():
        assert [secret for secret in SECRETS if secret in data] == [], name
