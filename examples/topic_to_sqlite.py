"""Keep a table of a SQLite file equal to a topic: a consumer that may be killed at any time.

    python examples/topic_to_sqlite.py localhost:9092 http://localhost:8081 s1.public.t1 copy.db
    python examples/topic_to_sqlite.py --config pgsluice.toml s1.public.t1 copy.db

`pip install 'confluent-kafka[avro,schemaregistry]'` has all that it imports. `--config` connects
as [kafka] and [registry] of a file say, with their passwords.

Rows and the offset behind them are in one SQLite transaction, so nothing is lost or done twice. The
table `row` has the key and the row as JSON. What each record means is in docs/envelope.md. This one
is for topics of one partition, and refuses those in which several rows can have one key.
"""

import argparse
import functools
import json
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def text(datum: Any) -> str:
    """As JSON, the same for the same datum."""
    return json.dumps(datum, default=str, sort_keys=True)


def identifies(key: Any, value: Any) -> bool:
    """Whether no two rows have the same key, by the schemas of key and value."""
    if "pg_identity" in value:  # the key was chosen, and the row is identified by these
        names = {field["name"] for field in key["fields"]}
        return bool(value["pg_identity"]) and names.issuperset(value["pg_identity"])
    # The whole row is the key, which equal rows share, where its fields can be null.
    return not any(isinstance(field["type"], list) for field in key["fields"])


def apply(db: sqlite3.Connection, key: Any, change: Any, rekey: object, moved: Any) -> Any | None:
    """Do what a record says; return the old row where its key is about to change."""
    op = change["op"]
    found = db.execute("SELECT row FROM row WHERE key = ?", [text(key)]).fetchone()
    old = None if found is None else json.loads(found[0])
    if op == "t":
        db.execute("DELETE FROM row")
    elif op == "d":
        db.execute("DELETE FROM row WHERE key = ?", [text(key)])
        return old if rekey == b"old" else None
    else:
        before = moved if rekey == b"new" else old
        # An update of a row that is not here is skipped, as in PostgreSQL, a key's change too.
        if before is None and (op == "u" or rekey == b"new"):
            return None
        row = json.loads(text(change["after"]))
        row |= {name: before[name] for name in change["unchanged"] if before}
        db.execute("INSERT OR REPLACE INTO row VALUES (?, ?)", [text(key), text(row)])
    return None


def main() -> None:
    """Follow the topic."""
    parser = argparse.ArgumentParser(description="a topic into a SQLite file")
    for name in ("bootstrap", "registry"):
        parser.add_argument(name, nargs="?")
    for name in ("topic", "file"):
        parser.add_argument(name)
    parser.add_argument("--config", help="a pgsluice.toml, instead of bootstrap and registry")
    parser.add_argument("--to-end", action="store_true", help="stop at what is there now")
    given = parser.parse_args()
    if given.config:
        config = tomllib.loads(Path(given.config).read_text())
    elif given.registry:
        config = {
            "kafka": {"bootstrap.servers": given.bootstrap},
            "registry": {"url": given.registry},
        }
    else:
        parser.error("give bootstrap and registry, or --config")

    db = sqlite3.connect(given.file)
    db.execute("CREATE TABLE IF NOT EXISTS row (key TEXT PRIMARY KEY, row TEXT)")
    db.execute("CREATE TABLE IF NOT EXISTS position (next_offset INTEGER)")
    stored = db.execute("SELECT next_offset FROM position").fetchone()

    registry = SchemaRegistryClient(config["registry"])
    avro = AvroDeserializer(registry)

    @functools.cache
    def schema(prefix: bytes) -> Any:
        """The schema that a record names in its first five bytes."""
        return json.loads(registry.get_schema(int.from_bytes(prefix[1:], "big")).schema_str or "")

    consumer = Consumer(
        {
            **config["kafka"],
            "group.id": "topic_to_sqlite",  # asked for; offsets are kept in the file
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.list_topics(given.topic, timeout=30)  # without an answer, poll would wait for ever
    except KafkaException as failure:
        raise SystemExit(
            f"no broker answers; passwords need --config: {failure.args[0].str()}"
        ) from None
    consumer.assign([TopicPartition(given.topic, 0, stored[0] if stored else OFFSET_BEGINNING)])
    moved = None
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if error := record.error():
            if error.code() != KafkaError._PARTITION_EOF:
                raise SystemExit(str(error))
            if given.to_end:
                break
            continue
        if record.value() is not None:  # else a tombstone, which says what the record before said
            key = avro(record.key(), SerializationContext(given.topic, MessageField.KEY))
            change = avro(record.value(), SerializationContext(given.topic, MessageField.VALUE))
            prefixes = [(wire or b"")[:5] for wire in (record.key(), record.value())]
            identified = key and identifies(*map(schema, prefixes))
            if not identified and change["op"] != "t":
                raise SystemExit(
                    "several rows can have the same key, or none: see docs/envelope.md"
                )
            moved = apply(db, key, change, dict(record.headers() or ()).get("rekey"), moved)
        if moved is None:  # both halves of a change of the key belong together
            with db:
                db.execute("DELETE FROM position")
                db.execute("INSERT INTO position VALUES (?)", [(record.offset() or 0) + 1])
    consumer.close()
    db.close()


if __name__ == "__main__":
    main()
