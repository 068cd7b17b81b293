"""Every setting with its type, range, default and meaning, by the tables of the file.

The string below a field is its line in the reference of docs/operations.md, in Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

from schemas.settings.fields import Properties, Rule, address
from schemas.settings.masks import check_hash_key, check_masks

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


def _replication_factor(value: int) -> None:
    if value < 1 and value != -1:
        raise ValueError("must be -1 or at least 1", None)


def _columns_of_tables(value: Mapping[str, tuple[str, ...]]) -> None:
    for table, names in value.items():
        if "." not in table:
            raise ValueError(f"{table!r} does not name a table", "it is schema.table")
        if not names or len(set(names)) < len(names):
            raise ValueError(f"{table} has no columns, or one twice", "list each column once")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """``[source]``: the PostgreSQL server."""

    dsn: str
    """libpq connection string or URI of the database that has the tables."""

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
    """What happens at a start when the changes since the watermark can no longer be read (the slot
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
    partitions, in seconds; `0`: only at a reload."""


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
        """What goes to the error topic."""
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
    """Where transactions that do not fit into memory are stored; the system's temporary folder when
    not set."""


@dataclass(frozen=True, slots=True)
class ChosenColumns:
    """Columns of a table that ``[topics]`` names, in place of those of its replica identity.

    Attributes:
        key: Columns of the record key, in its order; empty for the default.
        partition: Columns by which the partition is chosen; empty for those of the record key.
    """

    key: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsTable:
    """``[topics]``: how topics are made."""

    partitions: Annotated[int, Rule(least=1)] = 1
    """Partitions of a table's topic when it is created; the Spark job reads any number."""

    replication_factor: Annotated[int, Rule(check=_replication_factor)] = -1
    """Replication factor of a topic when it is created; -1 leaves it to the broker."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Other names for topics: from `subscription.schema.table` to the topic. A table whose topic
    changes is copied to the new one."""

    keys: Annotated[Mapping[str, tuple[str, ...]], Rule(check=_columns_of_tables)] = field(
        default_factory=dict
    )
    """Columns of the record key, from `schema.table` to a list, where it is not to be the replica
    identity; see [envelope.md](envelope.md#other-keys-and-partitions). A table whose key changes is
    copied again, but for `copy_data = false`: that needs a new subscription."""

    partition_by: Annotated[Mapping[str, tuple[str, ...]], Rule(check=_columns_of_tables)] = field(
        default_factory=dict
    )
    """The same for the columns by which the partition is chosen, where it is not to be the key."""

    tombstones: bool = True
    """Follow each `d` record by a tombstone, where there is a key that identifies the row."""

    truncate: Literal["publish", "skip"] = "publish"
    """`publish` TRUNCATE, or `skip` it."""

    on_rename: Literal["follow", "keep"] = "follow"
    """A renamed table (`ALTER TABLE ... RENAME`, `SET SCHEMA`) is copied: `follow` to the topic of
    its new name, `keep` to the one it had, after a `t`; unless another table bears that name, or
    `topics.names` has the new one."""

    on_lost_records: Literal["copy", "stop"] = "copy"
    """A topic that lacks what was written to it (deleted, or cut by an unclean election): `copy`
    its table again, or `stop` that table (it is held) until somebody asks for its copy; with
    `definitions.on_table_error = "stop"`, the gateway."""

    progress: str = "pgsluice.progress"
    """The topic of the watermark; compacted."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Further settings of a table's topic at its creation."""

    def chosen(self, table: str) -> ChosenColumns:
        """Return the columns chosen for a table, ``schema.table``."""
        return ChosenColumns(self.keys.get(table, ()), self.partition_by.get(table, ()))


TypeMode: TypeAlias = Literal["native", "text"]
"""Whether columns of a type are carried as an Avro type of their own, or as PostgreSQL's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypesTable:
    """``[types]``: columns as an Avro type of their own, or as text. See docs/types.md."""

    numeric: TypeMode = "native"
    """`numeric(p, s)` as Avro `decimal`, or as text; see [types.md](types.md)."""

    date: TypeMode = "native"
    """`date` as Avro `date`, or as text."""

    timestamp: TypeMode = "native"
    """`timestamp` as Avro `local-timestamp-micros`, or as text."""

    timestamptz: TypeMode = "native"
    """`timestamptz` as Avro `timestamp-micros`, or as text."""

    uuid: TypeMode = "native"
    """`uuid` as Avro `uuid`, or as text without that mark."""

    time: TypeMode = "text"
    """`time` as Avro `time-micros`, which has no 24:00, or as text."""

    arrays: TypeMode = "text"
    """Arrays as Avro arrays, which have one dimension, or as text."""

    interval: TypeMode = "text"
    """`interval` as an Avro record of months, days and microseconds, which has no infinity, or as
    text."""

    ranges: TypeMode = "text"
    """The built-in ranges as Avro records of two bounds, or as text."""

    hstore: TypeMode = "text"
    """`hstore` as an Avro map of nullable texts, or as text."""

    vectors: TypeMode = "text"
    """pgvector's `vector`, `halfvec` as Avro arrays of `float` and `sparsevec` as a record, or as
    text."""

    columns: Mapping[str, TypeMode] = field(default_factory=dict, hash=False)
    """Single columns that differ from the above: from `schema.table.column` to `native` or
    `text`."""

    def native_of(self, column: str, always: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the settings that are ``native`` for a column, ``schema.table.column``.

        Args:
            column: The column.
            always: Settings that are ``native`` for every column which is not named itself.
        """
        return _NATIVE[self.columns[column]] if column in self.columns else self._native | always

    @property
    def _native(self) -> frozenset[str]:
        return frozenset(name for name in TYPE_CHOICES if getattr(self, name) == "native")


TYPE_CHOICES: Final = frozenset(one.name for one in fields(TypesTable)) - {"columns"}
"""Settings of ``[types]`` that stand for types."""

_NATIVE: Final[Mapping[TypeMode, frozenset[str]]] = {"native": TYPE_CHOICES, "text": frozenset()}


EnvelopeFormat: TypeAlias = Literal["pgsluice", "debezium", "row"]
"""Layout of the values of a subscription's table topics."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """How one subscription gets its changes.

    Attributes:
        connect_times: Whether dates and times are Connect's logical types, in milliseconds.
        truncates: Whether there are ``t`` records, of a TRUNCATE and before a copy.
    """

    format: EnvelopeFormat = "pgsluice"
    connect_times: bool = False
    truncates: bool = True

    @property
    def always(self) -> frozenset[str]:
        """Settings of ``[types]`` that are ``native`` for every column which is not named there."""
        return frozenset({"time"} if self.format == "debezium" else ())

    def __str__(self) -> str:
        return f"{self.format} connect" if self.connect_times else self.format


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeTable:
    """``[envelope]``: the values of table topics. See docs/envelope.md."""

    format: EnvelopeFormat = "pgsluice"
    """Layout of the values: `pgsluice`, `debezium` (with Debezium's semantic types, for its
    consumers) or `row` (the row alone, for sinks that know no envelope); see
    [envelope.md](envelope.md#formats). A table whose format changes is copied again, but for
    `copy_data = false`: that needs a new subscription."""

    subscriptions: Mapping[str, EnvelopeFormat] = field(default_factory=dict, hash=False)
    """Subscriptions with another format: from the name to the format."""

    time_precision: Literal["microseconds", "connect"] = "microseconds"
    """Dates and times in the format `debezium`, by Debezium's modes of these names: `microseconds`,
    as `io.debezium.time.*`, or `connect`, as Connect's logical types in milliseconds."""

    without_truncates: tuple[str, ...] = ()
    """Subscriptions that get no `t` record, neither of a TRUNCATE nor before a copy, for consumers
    that stop at one; see [debezium.md](debezium.md#without-t-records) for what that costs. Those of
    the format `row` never get one."""

    def of(self, subscription: str) -> Envelope:
        """Return how a subscription gets its changes."""
        kind = self.subscriptions.get(subscription, self.format)
        return Envelope(
            kind,
            connect_times=kind == "debezium" and self.time_precision == "connect",
            truncates=kind != "row" and subscription not in self.without_truncates,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsTable:
    """``[columns]``: columns whose values do not leave the gateway. See docs/envelope.md."""

    masks: Annotated[Mapping[str, str], Rule(check=check_masks)] = field(default_factory=dict)
    """Masks of columns, from `subscription.schema.table.column` to `hash` (HMAC-SHA-256 with
    `columns.hash_key`), `null` or `truncate(n)` (the first n characters of a text); a table whose
    masks change is copied again: see [envelope.md](envelope.md#masked-columns)."""

    hash_key: Annotated[str | None, Rule(check=check_hash_key)] = field(default=None, repr=False)
    """The key of `hash`, a secret of 32 bytes or more; set `PGSLUICE_COLUMNS__HASH_KEY_FILE`
    instead. With another key, the tables that have a `hash` are copied again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesTable:
    """``[messages]``: which ``pg_logical_emit_message`` prefixes are published."""

    prefixes: tuple[str, ...] = ()
    """Prefixes of `pg_logical_emit_message` that are published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsTable:
    """``[limits]``: memory, time and the size of group commits."""

    max_buffer_bytes: Annotated[int, Rule(least=1, most=1 << 40)] = 16 << 20
    """Bytes of open transactions in memory; more goes to the spool."""

    max_batch_records: Annotated[int, Rule(least=1)] = 5_000
    """A Kafka transaction is committed when it has this many records; eight times as many while
    there are only rows of copies; in a backlog with ten partitions or more, up to 1,000 for each of
    them, or about two seconds. Where there are fewer than 80 for each partition, up to three times
    as many are gathered in memory."""

    max_batch_bytes: Annotated[int, Rule(least=1, most=1 << 40)] = 8 << 20
    """The same for this many bytes."""

    max_batch_ms: Annotated[int, Rule(least=1)] = 200
    """The same for its age in milliseconds, unless there are few records for each of many
    partitions and more waits; and immediately when the stream has nothing more to offer."""

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
    """``[monitor]``: when a gateway counts as not doing its work. See docs/monitoring.md."""

    max_lag_s: Annotated[float, Rule(least=0)] = 300.0
    """`/readyz` and the page say so when the oldest change waits for longer than this, in seconds;
    `0`: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable:
    """``[log]``: how log lines look: for people, or one JSON object each."""

    format: Literal["text", "json"] = "text"
    """Log lines as `text`, or as `json`, one object each."""


TableFormatName: TypeAlias = Literal["delta", "iceberg"]
"""Format of the tables that the Spark job rebuilds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTable:
    """``[consumer]``: the Spark job."""

    subscriptions: tuple[str, ...] = ()
    """Names of the subscriptions to consume; each gets a streaming query of its own. `pgsluice
    consume` takes all that are defined when not set."""

    warehouse: Annotated[str, Rule(path=True)] = "warehouse"
    """Tables are at `<warehouse>/<subscription>/<schema>/<table>`; any Hadoop file system for
    Delta, a local disk or HDFS for Iceberg."""

    format: TableFormatName = "delta"
    """Format of the rebuilt tables: `delta` or `iceberg`; see [spark.md](spark.md#iceberg). Tables
    are not converted: another format needs another warehouse, and a copy."""

    formats: Mapping[str, TableFormatName] = field(default_factory=dict)
    """Subscriptions with another format: from the name to the format."""

    checkpoint: Annotated[str, Rule(path=True)] = "checkpoint"
    """Spark's checkpoints, one folder below it per subscription."""

    topics: tuple[str, ...] = ()
    """Names of tables' topics that do not begin with `<subscription>.`; `pgsluice consume` adds
    those of `topics.names`. Markers that name any other topic are passed over."""

    trigger_interval_s: Annotated[float, Rule(least=0)] = 5.0
    """How often the Spark job looks for new markers, in seconds."""

    max_batch_records: Annotated[int, Rule(least=1)] = 1_000_000
    """The most records that the Spark job applies together, unless a single Kafka transaction has
    more."""

    min_partitions: Annotated[int | None, Rule(least=1)] = None
    """The least number of pieces in which the Spark job reads a large batch; by default one for
    50,000 records, at most twice the number of cores."""

    parallel_tables: Annotated[int, Rule(least=1)] = 2
    """How many tables the Spark job writes side by side; the small ones of a cut are shared among
    this many workers."""

    keep_hours: Annotated[float, Rule(least=0)] = 168.0
    """How long past states of the rebuilt tables are kept."""

    maintenance_hours: Annotated[float, Rule(least=0)] = 24.0
    """Time between two rounds of maintenance of the rebuilt tables; 0 for never."""

    delta_private: Literal["auto", "never"] = "auto"
    """`never` makes the Spark job use Delta by its public interface alone, which is slower. `auto`
    does so only where Delta's own classes differ from those that the job knows."""

    metrics_listen: Annotated[str | None, Rule(check=address)] = None
    """`host:port` at which the Spark job serves `/metrics` for Prometheus, and its health."""

    metrics_hosts: tuple[str, ...] = ()
    """Further names under which `metrics_listen` is asked, beside its own, localhost and any
    address: a request for another name is refused (421); `*` is any name."""

    shutdown_timeout_s: Annotated[float | None, Rule(above=0)] = None
    """How long a stop of the Spark job waits for what is being written; what takes longer is
    abandoned and read again by the next start. When not set: `limits.shutdown_timeout_s` for
    `pgsluice consume`, 10 seconds for `pgsluice-consume`."""

    kafka_java: Mapping[str, str] = field(default_factory=dict)
    """Properties of Spark's Kafka client under their Java names, beside what is translated from
    `[kafka]`."""

    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark properties of a session that the job makes itself."""

    def format_of(self, subscription: str) -> TableFormatName:
        """Return the format of a subscription's tables."""
        return self.formats.get(subscription, self.format)


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
