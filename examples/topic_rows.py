"""The rows of one table from its topic, without pgsluice's client: fifteen lines, and their rules.

    python examples/topic_rows.py localhost:9092 http://localhost:8081 s1.public.t1
    python examples/topic_rows.py --config pgsluice.toml s1.public.t1

`pip install 'confluent-kafka[avro,schemaregistry]'` has all that it imports. It reads to the end of
the topic and prints its rows as JSON. `--config` connects as [kafka] and [registry] of a file say,
with their passwords. What it leaves to docs/reading.md: topics of several partitions, whole
transactions over several tables, positions, texts in keys that PostgreSQL regards as equal although
they differ (1.0 and 1.00 as numeric, blanks in char(n)), and rows from before a column was added,
renamed or dropped: in a table without a key, later changes do not find them.
"""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

Rows = dict[str, list[dict[str, Any]]]
"""Rows by key; without a key, equal rows by themselves."""


def text(datum: Any) -> str:
    """As JSON, the same for the same datum."""
    return json.dumps(datum, default=str, sort_keys=True)


def apply(rows: Rows, key: Any, change: Any, rekey: object, moved: Any, *, keyed: bool) -> Any:
    """Do what a record says; return the old row of a change of the key, for its other half."""
    if change["op"] == "t":  # 1. empties the table: a truncate, or the beginning of a copy
        return rows.clear()
    old, after = moved, change["after"]
    if rekey != b"new" and (change["op"] in "ud" or keyed):  # 2. c and r replace, if there is a key
        equal = rows.get(text(key if keyed else change["before"]), [])  # in a key, arrays are text
        old = equal.pop() if equal else None
    if rekey == b"old":  # 3. the halves of a change of the key are one update
        return old
    if change["op"] == "u" or rekey == b"new":
        if old is None:  # 4. an update of a row that is not here is skipped
            return None
        after |= {name: old[name] for name in change["unchanged"]}  # 5. null there says nothing
    if after is not None:
        rows.setdefault(text(key if keyed else after), []).append(after)


def main() -> None:
    """Read the topic."""
    parser = argparse.ArgumentParser(description="the rows of a table, from its topic")
    for name in ("bootstrap", "registry"):
        parser.add_argument(name, nargs="?")
    parser.add_argument("topic")
    parser.add_argument("--config", help="a pgsluice.toml, instead of bootstrap and registry")
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

    registry = SchemaRegistryClient(config["registry"])
    avro = AvroDeserializer(registry)
    consumer = Consumer(
        {
            **config["kafka"],
            "group.id": "topic_rows",  # asked for; nothing is stored
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
    consumer.assign([TopicPartition(given.topic, 0, OFFSET_BEGINNING)])
    rows: Rows = {}
    moved = None
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if error := record.error():
            if error.code() != KafkaError._PARTITION_EOF:
                raise SystemExit(str(error))
            break
        if (wire := record.key()) is None:
            key, keyed = None, False
        else:
            key = avro(wire, SerializationContext(given.topic, MessageField.KEY))
            # The fields of a real key are not nullable; else it is a whole row, of a table without.
            schema = registry.get_schema(int.from_bytes(wire[1:5])).schema_str or ""
            keyed = '"null"' not in schema
        if value := record.value():  # else a tombstone, which says what the record before said
            change = avro(value, SerializationContext(given.topic, MessageField.VALUE))
            written = registry.get_schema(int.from_bytes(value[1:5])).schema_str or ""
            identity = json.loads(written).get("pg_identity")
            if identity is not None and change["op"] != "t":  # the key does not say which row it is
                old, new = change["before"], change["after"]
                row = new if change["op"] in "cr" else old or new
                key, keyed = {name: row[name] for name in identity or row}, bool(identity)
            rekey = dict(record.headers() or ()).get("rekey")
            moved = apply(rows, key, change, rekey, moved, keyed=keyed)
    consumer.close()
    for equal in rows.values():
        for row in equal:
            print(text(row))


if __name__ == "__main__":
    main()
