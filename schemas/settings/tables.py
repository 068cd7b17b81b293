"""Every setting with its type, range, default and meaning, by the tables of the file.

The string below a field is its line in the reference of docs/operations.md, in Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from schemas.settings.consumer import ConsumerTable, TableFormatName
from schemas.settings.fields import Properties, Rule, address, command
from schemas.settings.publishing import (
    TYPE_CHOICES,
    ChosenColumns,
    ColumnsTable,
    Envelope,
    EnvelopeFormat,
    EnvelopeTable,
    MessagesTable,
    TopicsTable,
    TypeMode,
    TypesTable,
)

__all__ = [
    "TYPE_CHOICES",
    "ChosenColumns",
    "ColumnsTable",
    "ConsumerTable",
    "CopyTable",
    "DefinitionsTable",
    "Envelope",
    "EnvelopeFormat",
    "EnvelopeTable",
    "FiltersTable",
    "GatewayTable",
    "HttpTable",
    "LimitsTable",
    "LogTable",
    "MessagesTable",
    "MonitorTable",
    "OnErrorTable",
    "Settings",
    "SourceTable",
    "TableFormatName",
    "TopicsTable",
    "TypeMode",
    "TypesTable",
]

_Unfit: TypeAlias = Literal["filter", "value", "size", "schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """``[source]``: the PostgreSQL server."""

    dsn: str
    """libpq connection string or URI of the database that has the tables."""

    password_command: Annotated[str | None, Rule(check=command)] = None
    """A command whose output is the password: it runs for each connection, without a shell, within
    30 seconds, and its output is not logged; for tokens of managed services:
    [managed-services.md](managed-services.md)."""

    slot: str = "pgsluice"
    """The replication slot; also the prefix of the gateway's own publications; one daemon per
    slot."""

    connect_timeout_s: Annotated[int, Rule(least=1)] = 10
    """For each connection to each host, in seconds; libpq takes 1 for 2; a `connect_timeout` in the
    DSN wins."""

    receiver_timeout_s: Annotated[float | None, Rule(least=0)] = None
    """A stream that has been silent for this many seconds is given up and started again; after half
    that time the server is asked for a reply; `0`: never; not set: the server's
    `wal_sender_timeout`."""

    on_lost_slot: Literal["stop", "resync"] = "stop"
    """The behaviour of a start when the changes since the watermark can no longer be read (the slot
    was dropped, invalidated or moved): `stop`, or `resync` with a new slot, which copies all tables
    again."""

    allow_untested: bool = False
    """Also read a server that is newer than those which this release is tested with (14 to 18)."""

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subscriptions shared out among several slots, each with a process of its own: see "Several
    gateways" in docs/operations.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionsTable:
    """``[definitions]``: the publications and subscriptions."""

    file: Annotated[Path, Rule(path=True)]
    """The file with the publications and subscriptions."""

    missing_identity: Literal["refuse", "insert_only"] = "refuse"
    """A table whose updates or deletes are published, but that has no usable replica identity:
    `refuse` to start, or `insert_only`."""

    on_table_error: Literal["hold", "stop"] = "hold"
    """A published table was altered so that it can no longer be published: its filter needs a
    column that is gone or no longer part of the replica identity, for example. `hold` it and go on
    with all others, or `stop`. The same for a table that comes in by FOR ALL TABLES, IN SCHEMA or a
    publication of the database, and for one that may not be read."""

    watch_interval_s: Annotated[float, Rule(least=0)] = 5.0
    """How often the source's catalog is checked for altered publications and for new tables and
    partitions, in seconds; `0`: only at a reload, and every few minutes while a subscription is
    held because its markers cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnErrorTable:
    """``[on_error]``: ``stop`` at a change that cannot be published, or ``quarantine`` it."""

    filter: Literal["stop", "quarantine"] = "stop"
    """A change on which a row filter fails (division by zero, overflow): `stop`, as PostgreSQL
    does, or `quarantine` it in the topic `<gateway>.error` and go on; see
    [envelope.md](envelope.md#changes-that-cannot-be-published)."""

    value: Literal["stop", "quarantine"] = "stop"
    """The same for a value that its Avro type cannot carry (NaN in `numeric(p,s)`, for
    example: see [types.md](types.md)), and with `copy_data = false` for old values that
    `topics.keys` or `topics.partition_by` need and that were not logged."""

    size: Literal["stop", "quarantine"] = "stop"
    """The same for a record that is larger than the producer or the topic takes, and for a logical
    message; it counts without compression."""

    schema: Literal["stop", "quarantine"] = "stop"
    """The same for a table whose schema the registry refuses: it is held until the schema is
    accepted, then copied again."""

    @property
    def quarantined(self) -> frozenset[_Unfit]:
        """Kinds of changes that go to the error topic."""
        kinds: tuple[_Unfit, ...] = get_args(_Unfit)
        return frozenset(kind for kind in kinds if getattr(self, kind) == "quarantine")


@dataclass(frozen=True, slots=True, kw_only=True)
class FiltersTable:
    """``[filters]``: who evaluates row filters that the gateway does not evaluate itself."""

    server: Literal["on", "off"] = "on"
    """`on`: a server evaluates the row filters that the gateway does not evaluate itself
    ([row-filters.md](row-filters.md)); `off`: they are refused."""

    dsn: str | None = None
    """The server that evaluates them; the source when not set. Another one must be of the same
    major version, with the same collations and time zones, as a standby is."""

    password_command: Annotated[str | None, Rule(check=command)] = None
    """As `source.password_command`, for `filters.dsn`."""

    timeout_s: Annotated[float, Rule(above=0)] = 30.0
    """How long it may take for one statement (up to a few thousand rows), in seconds. A filter that
    takes this long for one row, twice, fails from then on, as `on_error.filter` says."""

    pushdown: bool = False
    """The walsender leaves out rows that no subscription takes, where that is exact; read
    [row-filters.md](row-filters.md), "Push-down", first: it can make writes of the application
    fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTable:
    """``[gateway]``: this daemon."""

    name: str = "pgsluice"
    """The name in `source.name` of every record, and of the message and error topics."""

    spool_directory: Annotated[Path | None, Rule(path=True)] = None
    """The folder of transactions that do not fit into memory; the system's temporary folder when
    not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsTable:
    """``[limits]``: memory, time and the size of group commits."""

    max_buffer_bytes: Annotated[int, Rule(least=1, most=1 << 40)] = 16 << 20
    """Bytes of open transactions in memory; more goes to the spool."""

    max_batch_records: Annotated[int, Rule(least=1)] = 5_000
    """A Kafka transaction is committed when it has this many records; eight times as many while
    there are only rows of copies; in a backlog with ten partitions or more, up to 1,000 for each of
    them, or about two seconds. With fewer than 80 for each partition, up to three times as many
    are gathered in memory."""

    max_batch_bytes: Annotated[int, Rule(least=1, most=1 << 40)] = 8 << 20
    """The same for this many bytes."""

    max_batch_ms: Annotated[int, Rule(least=1)] = 200
    """The same for its age in milliseconds, unless there are few records for each of many
    partitions and more waits. When the stream has nothing more to offer, it is committed at once,
    or at most 10 ms after the commit before."""

    progress_interval_s: Annotated[float, Rule(above=0)] = 1.0
    """At most one PROGRESS marker in this time per subscription that gets no records."""

    feedback_interval_s: Annotated[float, Rule(above=0)] = 5.0
    """A status update to PostgreSQL at least this often; less than `wal_sender_timeout`."""

    shutdown_timeout_s: Annotated[float, Rule(above=0)] = 10.0
    """After SIGTERM, what is complete is committed within this time."""

    retry_for_s: Annotated[float, Rule(above=0)] = 3600.0
    """Give up with exit code 75 when nothing has worked for this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTable:
    """``[copy]``: how tables are copied while the stream goes on."""

    parallel: Annotated[int, Rule(least=1)] = 2
    """Connections that read, of several tables or of ranges of one large table."""

    chunk_rows: Annotated[int, Rule(least=1)] = 5_000
    """Rows that are read at once; changes to other tables are published in between. Up to two more
    chunks of a table are read ahead."""

    chunk_bytes: Annotated[int, Rule(least=1, most=1 << 40)] = 4 << 20
    """The same in bytes, estimated from the rows before."""

    rows_per_second: Annotated[int, Rule(least=0)] = 0
    """The most rows per second, over all tables; `0`: as fast as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTable:
    """``[http]``: metrics, health and status. See docs/monitoring.md."""

    listen: Annotated[str | None, Rule(check=address)] = None
    """`host:port` at which `run` serves metrics, health and status
    ([monitoring.md](monitoring.md)); with port 0 it takes a free port and logs it."""

    hosts: tuple[str, ...] = ()
    """Further names under which the endpoints are asked, beside that of `http.listen`, localhost
    and any address: a request for another name is refused (421); `*` is any name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorTable:
    """``[monitor]``: when a gateway is not doing its work, and where it reports what it does."""

    max_lag_s: Annotated[float, Rule(least=0)] = 300.0
    """`/readyz` and the page say so when the oldest change waits for longer than this, in seconds;
    `0`: never."""

    opentelemetry: bool = False
    """Metrics, and a trace for each Kafka transaction, are sent by OTLP; where to, the variables of
    OpenTelemetry say: [monitoring.md](monitoring.md#opentelemetry)."""

    openlineage: bool = False
    """Which table goes into which topic is reported to a server of OpenLineage; where it is, the
    variables of OpenLineage's client say: [monitoring.md](monitoring.md#openlineage)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable:
    """``[log]``: how log lines look: for people, or one JSON object each."""

    format: Literal["text", "json"] = "text"
    """Log lines as `text`, or as `json`, one object each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of the configuration.

    Attributes:
        kafka: librdkafka properties.
        registry: ``url`` and further properties of Confluent's registry client.
        warnings: Lines for the log about doubtful settings.
        group: One of `source.groups`, whose gateway is meant; see `gateway.config.groups`.
    """

    source: SourceTable
    definitions: DefinitionsTable
    kafka: Annotated[Mapping[str, str], Properties("bootstrap.servers", "127.0.0.1:9092")]
    registry: Annotated[Mapping[str, str], Properties("url", "http://127.0.0.1:8081")]
    on_error: OnErrorTable = field(default_factory=OnErrorTable)
    filters: FiltersTable = field(default_factory=FiltersTable)
    gateway: GatewayTable = field(default_factory=GatewayTable)
    topics: TopicsTable = field(default_factory=TopicsTable)
    types: TypesTable = field(default_factory=TypesTable)
    envelope: EnvelopeTable = field(default_factory=EnvelopeTable)
    columns: ColumnsTable = field(default_factory=ColumnsTable)
    messages: MessagesTable = field(default_factory=MessagesTable)
    limits: LimitsTable = field(default_factory=LimitsTable)
    copy: CopyTable = field(default_factory=CopyTable)
    http: HttpTable = field(default_factory=HttpTable)
    monitor: MonitorTable = field(default_factory=MonitorTable)
    log: LogTable = field(default_factory=LogTable)
    consumer: ConsumerTable = field(default_factory=ConsumerTable)
    warnings: tuple[str, ...] = ()
    group: str | None = None
