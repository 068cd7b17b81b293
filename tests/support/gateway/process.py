"""The gateway as its own process, and what it has written, read back as another team would."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Self

import fastavro
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

from schemas.headers import DEBEZIUM_HEADERS
from schemas.registry_trust import without_unused_authorities
from tests.support.backends.broker import SETTLING, delete_topics, ends
from tests.support.gateway.warm_start import ForkedProcess, needs_own_start
from tests.support.run.waiting import WITNESSES, wait_until

TIMEOUT_S = 60.0
PROMPT: Final[Mapping[str, int]] = {"reconnect.backoff.ms": 20}
"""For Kafka clients of tests: a new one connects to the broker half of this after the bootstrap."""
_POLL_S = 0.01
_LAST_WORDS: Final = 20
_LOG_BYTES: Final = 1 << 20
_EMPTY_POLLS = 6000
_COMMIT_S: Final = 3.0
"""Seconds for which a Kafka transaction may be on its way to its end: a broker ends it after it has
answered the commit, and a gateway confirms, reports and ends when it has that answer."""


@dataclass
class GatewayProject:
    """A configuration on disk, and the processes that were started with it."""

    folder: Path
    dsn: str
    bootstrap: str
    registry: str
    slot: str
    definitions: str
    extra: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    processes: list[GatewayProcess] = field(default_factory=list)

    def write(self) -> Path:
        """Write the files; the path of the configuration."""
        _replace(self.folder / "replication.sql", self.definitions)
        tables: dict[str, dict[str, Any]] = {
            "source": {"dsn": self.dsn, "slot": self.slot},
            "definitions": {"file": "replication.sql"},
            "kafka": {"bootstrap.servers": self.bootstrap},
            "registry": {"url": self.registry},
            "gateway": {"name": self.slot},
            "topics": {"progress": f"{self.slot}.progress"},
            "limits": {"progress_interval_s": 0.2},
        }
        for table, values in self.extra.items():
            tables.setdefault(table, {}).update(values)
        lines = []
        for table, values in tables.items():
            lines.append(f"[{table}]")
            lines += [f"{json.dumps(key)} = {_toml(value)}" for key, value in values.items()]
        path = self.folder / "pgsluice.toml"
        _replace(path, "\n".join(lines) + "\n")
        return path

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> GatewayProcess:
        """Start ``pgsluice run`` with further arguments."""
        process = GatewayProcess(["run", "--config", str(self.write()), *arguments], environment)
        self.processes.append(process)
        return process

    def run_to(self, endpos: str) -> GatewayProcess:
        """Run until `endpos`; the process must end with 0."""
        process = self.start("--endpos", endpos)
        assert process.wait() == 0, process.log()
        return process

    def stop_all(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            process.close()


class GatewayProcess:
    """A started command; its standard error is its log."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = ""
        # A character may come in two pieces, and tests ask from several threads.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._reading = threading.Lock()
        # It tells us how it is as it tells systemd: docs/monitoring.md.
        self._supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._supervisor.bind("")
        self._said: list[str] = []
        notify = f"@{self._supervisor.getsockname()[1:].decode()}"
        self._process = _start(
            arguments, {**os.environ, "NOTIFY_SOCKET": notify, **(environment or {})}
        )
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        # A gateway stands still when its log is full. Some tests read that in the end only.
        with suppress(OSError):  # no larger than the system lets this user have it
            fcntl.fcntl(self._process.stderr.fileno(), fcntl.F_SETPIPE_SZ, _LOG_BYTES)
        WITNESSES.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def log(self) -> str:
        """Return its output so far."""
        with self._reading:
            while data := self._read():
                self._log += self._decoder.decode(data)
            return self._log

    def account(self) -> str:
        """How it ended and its last words; empty while it runs, or when the test has closed it."""
        if self._process.stderr is None or self._process.stderr.closed or not self.ended():
            return ""
        last = "\n".join(self.log().splitlines()[-_LAST_WORDS:])
        return f"a gateway has ended with {self._process.returncode}; the end of its log:\n{last}"

    def _read(self) -> bytes:
        assert self._process.stderr is not None
        try:
            return os.read(self._process.stderr.fileno(), 1 << 16)
        except (BlockingIOError, ValueError):
            return b""

    def wait_for(self, text: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until its log has `text`; fail when it ends before that."""

        def said() -> bool:
            ended = self._process.poll() is not None
            if text in self.log():
                return True
            assert not ended, f"ended with {self._process.returncode}:\n{self.log()}"
            return False

        try:
            wait_until(said, timeout_s, f"{text!r} in the log of the gateway")
        except AssertionError as error:
            raise AssertionError(f"{error}; the log:\n{self.log()}") from None

    def wait_until_copied(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it streams and says that all tables are copied that are not held."""
        self._wait_for_status(_is_copied, timeout_s, "to have copied all tables")

    def wait_until_doing(self, what: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until its status, as systemd shows it, begins so; fail when it ends before that."""
        self._wait_for_status(lambda status: status.startswith(what), timeout_s, f"to be {what!r}")

    def is_copied(self) -> bool:
        """Whether it has said since it was asked last that all tables are copied."""
        return any(map(_is_copied, self._statuses()))

    def is_doing(self, what: str) -> bool:
        """Whether its status has begun so since it was asked last."""
        return any(status.startswith(what) for status in self._statuses())

    def _wait_for_status(self, wanted: Callable[[str], bool], timeout_s: float, what: str) -> None:
        def does() -> bool:
            ended = self.ended()
            if any(map(wanted, self._statuses())):
                return True
            assert not ended, f"ended with {self._process.returncode}:\n{self.log()}"
            return False

        self._statuses()  # what it said earlier
        try:
            wait_until(does, timeout_s, f"the gateway {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}; the log:\n{self.log()}") from None

    def _statuses(self) -> list[str]:
        """Return the states that it has reported to systemd since the last call."""
        self._listen()
        found, self._said = self._said, []
        return found

    def _listen(self) -> None:
        """Receive what it says of itself: it waits a second when its messages are not received."""
        while True:
            try:
                message = self._supervisor.recv(4096).decode()
            except BlockingIOError:
                return
            self._said += [
                line.removeprefix("STATUS=")
                for line in message.splitlines()
                if line.startswith("STATUS=")
            ]

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for its end; the exit code."""

        wait_until(self.ended, timeout_s, "the gateway to end")
        self.log()
        assert self._process.returncode is not None
        return self._process.returncode

    def ended(self) -> bool:
        """Whether it has ended."""
        self.log()  # or a full pipe would keep it from ending
        self._listen()
        return self._process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, and wait for it to be gone."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it, if it has not."""
        if self._process.poll() is None:
            self.kill()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._supervisor.close()


def _replace(path: Path, text: str) -> None:
    """Write a file that a process may be reading, or another thread of the tests writing."""
    new = path.with_name(f"{path.name}.{threading.get_ident()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        entries = (f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{{', '.join(entries)}}}"
    return json.dumps(value)


def _is_copied(status: str) -> bool:
    """Whether a gateway that says so has nothing to copy."""
    if status == "streaming, all tables copied":
        return True
    counts = re.match(r"streaming, (\d+) of (\d+) tables copied", status)
    others = sum(map(int, re.findall(r", (\d+) (?:held|missing)", status)))
    return counts is not None and int(counts[1]) + others == int(counts[2])


def _start(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes] | ForkedProcess:
    if arguments[0] == "run" and not needs_own_start(environment):
        return ForkedProcess(arguments, environment)
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )


@dataclass(frozen=True)
class Read:
    """A record as a consumer with ``read_committed`` sees it."""

    topic: str
    partition: int
    offset: int
    key: dict[str, Any] | None
    value: dict[str, Any] | None
    headers: dict[str, str]

    @property
    def op(self) -> str:
        """The operation header."""
        return self.headers["op"]

    @property
    def position(self) -> tuple[str, int]:
        """Position, which orders everything."""
        return self.headers["commit_lsn"], int(self.headers["seq"])


class TopicReader:
    """Reads whole topics with nothing but public clients: the contract seen from outside."""

    def __init__(self, bootstrap: str, registry: str, **properties: str) -> None:
        self._bootstrap = bootstrap
        self._registry = SchemaRegistryClient(
            without_unused_authorities({"url": registry, **properties})
        )
        self._schemas: dict[int, Any] = {}
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None
        self._read_before: dict[str, tuple[dict[int, int], list[Read]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End its connections."""
        self._registry.close()
        self._admin = None  # it has no `close`
        if self._consumer is not None:
            self._consumer.close()

    def topics(self, prefix: str) -> list[str]:
        """Names of the topics that begin with `prefix`."""
        listed = self._administrator().list_topics(timeout=60).topics
        return sorted(topic for topic in listed if topic.startswith(prefix))

    def has(self, topic: str) -> bool:
        """Whether a topic exists; the cost does not depend on how many others do."""
        error = self._administrator().list_topics(topic, timeout=60).topics[topic].error
        return error is None or error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART

    def delete(self, topic: str) -> None:
        """Delete a topic, and forget what was read of it: it may be made again."""
        delete_topics(self._administrator(), [topic])
        self._read_before.pop(topic, None)

    def read(self, topic: str) -> list[Read]:
        """Every committed record, partition by partition; tombstones included.

        A Kafka transaction that is open is waited for `_COMMIT_S` seconds: it may be committed.
        What was read before is not asked for again: a topic only grows, or is deleted by `delete`.
        """
        starts, before = self._read_before.get(topic, ({}, []))
        consumer = self._consumer = self._consumer or Consumer(
            {
                **PROMPT,
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": False,
                # What asks for a topic's end waits for a fetch that is under way.
                "fetch.wait.max.ms": 10,
            }
        )
        try:
            ends = self._ends(consumer, topic)
            grown = {p: end for p, end in ends.items() if end > starts.get(p, 0)}
            consumer.assign([TopicPartition(topic, p, starts.get(p, 0)) for p in grown])
            found = [*before, *self._consume(consumer, grown)]
        finally:
            consumer.unassign()
        found.sort(key=lambda r: (r.partition, r.offset))
        self._read_before[topic] = (ends, found)
        return list(found)

    def _ends(self, consumer: Consumer, topic: str) -> dict[int, int]:
        """Each partition's last stable offset: that of a consumer with ``read_committed``."""
        found: dict[int, int] = {}
        written: dict[int, int] = {}
        open_until = time.monotonic() + _COMMIT_S

        def all_found() -> bool:
            # The leader of a partition that is new, or whose broker is back, settles in a moment.
            try:
                for p in consumer.list_topics(topic, timeout=60).topics[topic].partitions:
                    if p not in written:
                        written[p] = self.uncommitted_end(topic, p)
                    found[p] = consumer.get_watermark_offsets(TopicPartition(topic, p), 60)[1]
            except KafkaException as error:
                assert error.args[0].code() in SETTLING, error
                return False
            is_settled = all(found[p] >= end for p, end in written.items())
            return is_settled or time.monotonic() > open_until

        wait_until(all_found, TIMEOUT_S, f"the end of topic {topic}", poll_s=0.01)
        return found

    def uncommitted_end(self, topic: str, partition: int) -> int:
        """A partition's end offset, records of open transactions included."""
        place = TopicPartition(topic, partition)
        return ends(self._administrator(), [place], IsolationLevel.READ_UNCOMMITTED)[place]

    def _administrator(self) -> AdminClient:
        self._admin = self._admin or AdminClient({**PROMPT, "bootstrap.servers": self._bootstrap})
        return self._admin

    def _consume(self, consumer: Consumer, ends: dict[int, int]) -> Iterator[Read]:
        def done() -> bool:
            positions = consumer.position([TopicPartition(t.topic, t.partition) for t in assigned])
            return all(p.offset >= ends[p.partition] for p in positions)

        assigned = consumer.assignment()
        empty_polls = 0
        while assigned and empty_polls < _EMPTY_POLLS:
            message = consumer.poll(_POLL_S)
            if message is None:
                # Control records at the end move the position, but give no message.
                if done():
                    return
                empty_polls += 1
                continue
            assert message.error() is None, message.error()
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            if offset >= ends[partition]:
                # Came since, and is read the next time. There may be no end of them.
                if done():
                    return
                continue
            yield Read(
                topic,
                partition,
                offset,
                self.decode(message.key()),
                self.decode(message.value()),
                dict(map(_text_header, message.headers() or [])),
            )
        assert not assigned or empty_polls < _EMPTY_POLLS, "the topic could not be read to its end"

    def decode(self, wire: str | bytes | None) -> dict[str, Any] | None:
        """The datum of a key or value in Confluent's wire format."""
        if wire is None:
            return None
        assert isinstance(wire, bytes) and wire[0] == 0
        schema_id = int.from_bytes(wire[1:5])
        if schema_id not in self._schemas:
            self._schemas[schema_id] = fastavro.parse_schema(self.schema(schema_id))
        schema = self._schemas[schema_id]
        datum = fastavro.schemaless_reader(BytesIO(wire[5:]), schema, schema)
        assert isinstance(datum, dict)
        return datum

    def schema(self, schema_id: int) -> dict[str, Any]:
        """The registry's schema of an id."""
        text = self._registry.get_schema(schema_id).schema_str
        assert text is not None
        return dict(json.loads(text))


def _text_header(header: Any) -> tuple[str, str]:
    name, value = header
    assert isinstance(value, bytes)
    return name, value.hex() if name in DEBEZIUM_HEADERS else value.decode()
