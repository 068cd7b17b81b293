"""The tables of the configuration file, as values with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from gateway.core.errors import UnfitKind

__all__ = [
    "ConsumerTable",
    "CopyTable",
    "DefinitionsTable",
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
    "TopicsTable",
    "TypesTable",
]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """``[source]``: the PostgreSQL server.

    Attributes:
        dsn: libpq connection string or URI, with `connect_timeout_s` when it has none of its own.
        slot: Name of the replication slot; also the prefix of the gateway's own publications.
        connect_timeout_s: For each connection, host and address.
        receiver_timeout_s: A stream on which nothing has come for so long is given up; the server
            is asked for a word at half of it. 0: never. None: the server's wal_sender_timeout.
        on_lost_slot: What a start does when changes since the watermark cannot be read any more
            (slot dropped, invalidated or moved): ``stop``, or ``resync`` with a new slot, which
            copies all tables anew.
        allow_untested: Also read a server that is newer than those which this release is tested
            with.
        groups: Names of subscriptions by the name of their group, to share the work of decoding
            among several slots and processes: each subscription in exactly one. Empty: one slot for
            all.
    """

    dsn: str
    slot: str = "pgsluice"
    connect_timeout_s: int = 10
    receiver_timeout_s: float | None = None
    on_lost_slot: Literal["stop", "resync"] = "stop"
    allow_untested: bool = False
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DefinitionsTable:
    """``[definitions]``: the publications and subscriptions.

    Attributes:
        on_table_error: What becomes of a table that was published and cannot be any more, because
            it was altered: ``hold`` it and go on with all others, or ``stop``.
        watch_interval_s: How often the source's catalog is looked at for altered publications and
            for tables and partitions made later; 0: only at a reload.
    """

    file: Path
    missing_identity: Literal["refuse", "insert_only"] = "refuse"
    on_table_error: Literal["hold", "stop"] = "hold"
    watch_interval_s: float = 5.0


@dataclass(frozen=True, slots=True)
class OnErrorTable:
    """``[on_error]``: ``stop`` at a change that cannot be published, or ``quarantine`` it.

    Attributes:
        filter: A row filter raises on it: division by zero and the like.
        value: Its Avro type cannot carry a value: NaN in numeric(p, s) and the like.
        size: Its record is larger than Kafka takes.
        schema: The registry refuses the schema of its table.
    """

    filter: Literal["stop", "quarantine"] = "stop"
    value: Literal["stop", "quarantine"] = "stop"
    size: Literal["stop", "quarantine"] = "stop"
    schema: Literal["stop", "quarantine"] = "stop"

    @property
    def quarantined(self) -> frozenset[UnfitKind]:
        """What goes to the error topic."""
        kinds: tuple[UnfitKind, ...] = get_args(UnfitKind)
        return frozenset(kind for kind in kinds if getattr(self, kind) == "quarantine")


@dataclass(frozen=True, slots=True)
class FiltersTable:
    """``[filters]``: who evaluates row filters that the gateway does not evaluate itself.

    Attributes:
        server: ``on``: a server; ``off``: nobody, they are refused.
        dsn: Of that server, None: the source. Another one must be of the same major version, with
            the same collations and time zones; a standby is.
        timeout_s: How long it may work on one statement.
        pushdown: The walsender leaves out what no subscription takes, where that is exact
            (`gateway.rowfilter.server.pushdown`).
    """

    server: Literal["on", "off"] = "on"
    dsn: str | None = None
    timeout_s: float = 30.0
    pushdown: bool = False


@dataclass(frozen=True, slots=True)
class GatewayTable:
    """``[gateway]``: this daemon. `spool_directory` takes what does not fit into memory."""

    name: str = "pgsluice"
    spool_directory: Path | None = None


@dataclass(frozen=True, slots=True)
class TopicsTable:
    """``[topics]``: how topics are made.

    Attributes:
        partitions: Of a table's topic when it is created.
        replication_factor: -1 leaves it to the broker.
        names: Overrides, from ``subscription.schema.table`` to the topic's name.
        tombstones: Follow each ``d`` record by a tombstone, where there is a key.
        truncate: ``publish``, or ``skip`` to leave ``t`` records of the stream out.
        on_rename: A renamed table goes to the topic of its new name (``follow``), or goes on in the
            one it had (``keep``).
        on_lost_records: What becomes of a table whose topic, or the marker topic beside it, has
            lost records (deleted, or cut by an unclean election): it is copied again (``copy``), or
            held until somebody asks for its copy (``stop``).
        config: Further topic settings at creation.
    """

    partitions: int = 1
    replication_factor: int = -1
    names: Mapping[str, str] = field(default_factory=dict)
    tombstones: bool = True
    truncate: Literal["publish", "skip"] = "publish"
    on_rename: Literal["follow", "keep"] = "follow"
    on_lost_records: Literal["copy", "stop"] = "copy"
    progress: str = "pgsluice.progress"
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TypesTable:
    """``[types]``: choices in the mapping to Avro. See docs/envelope.md."""

    numeric: Literal["decimal", "string"] = "decimal"


@dataclass(frozen=True, slots=True)
class MessagesTable:
    """``[messages]``: which ``pg_logical_emit_message`` prefixes are published."""

    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """``[limits]``: memory, time and the size of group commits.

    Attributes:
        max_buffer_bytes: Undecoded bytes of open transactions kept in memory; more goes to disk.
        max_batch_records: A Kafka transaction is committed when it has this many records,
            max_batch_bytes: or bytes,
            max_batch_ms: or is this old; and at once when the stream has nothing more to give.
            While only rows of copies come it may have eight times as many; while more waits,
            1,000 for each of ten partitions or more, whatever its age, up to about two seconds.
            Up to three times as many are gathered where they are for many partitions.
        progress_interval_s: At most one PROGRESS marker per subscription in this time.
        feedback_interval_s: A standby status update at least this often.
        shutdown_timeout_s: What is complete is committed within this time after SIGTERM.
        retry_for_s: Give up with exit code 75 when nothing has worked for this long.
    """

    max_buffer_bytes: int = 16 << 20
    max_batch_records: int = 5_000
    max_batch_bytes: int = 8 << 20
    max_batch_ms: int = 200
    progress_interval_s: float = 1.0
    feedback_interval_s: float = 5.0
    shutdown_timeout_s: float = 10.0
    retry_for_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class CopyTable:
    """``[copy]``: how tables are copied while the stream goes on.

    Attributes:
        parallel: Connections that read, of several tables or of ranges of one large table.
        chunk_rows: Rows that are read in one transaction at most.
        chunk_bytes: The same in bytes, as far as the rows of the chunk before tell.
        rows_per_second: Of all tables together; 0: as fast as it goes.
    """

    parallel: int = 2
    chunk_rows: int = 5_000
    chunk_bytes: int = 4 << 20
    rows_per_second: int = 0


@dataclass(frozen=True, slots=True)
class HttpTable:
    """``[http]``: metrics, health and status. See docs/monitoring.md.

    Attributes:
        listen: ``host:port``; None for nowhere.
        hosts: Names under which requests may come, besides that of `listen`, localhost and all
            addresses; ``*`` for any.
    """

    listen: str | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MonitorTable:
    """``[monitor]``: when a gateway counts as not doing its work. See docs/monitoring.md.

    Attributes:
        max_lag_s: ``/readyz`` and the page say so when the oldest change waits for longer than this
            many seconds; 0: never.
    """

    max_lag_s: float = 300.0


@dataclass(frozen=True, slots=True)
class LogTable:
    """``[log]``: how log lines look: for people, or one JSON object each."""

    format: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class ConsumerTable:
    """``[consumer]``: the Spark job.

    Attributes:
        warehouse: Delta tables stand at ``<warehouse>/<subscription>/<schema>/<table>``.
        checkpoint: Spark's, one folder below it per subscription.
        trigger_interval_s: Time between micro-batches.
        max_batch_records: Records that are applied together at most.
        min_partitions: In how many pieces a large batch is read at least; None: one for
            50,000 records, and twice the cores at most.
        parallel_tables: How many tables are written side by side.
        keep_hours: For how long states of the past are kept.
        maintenance_hours: Between two times that tables are looked after; 0 for never.
        metrics_listen: ``host:port`` at which Prometheus reads the job's figures; None for nowhere.
        metrics_hosts: Names under which `metrics_listen` is asked, beside its host, localhost and
            any address; ``*`` is any name.
        shutdown_timeout_s: How long a stop waits for what is being written; None for
            `LimitsTable.shutdown_timeout_s`.
        kafka_java: Properties of Spark's Kafka client under their Java names.
        spark: Further Spark properties for a session that `pgsluice consume` makes itself.
    """

    warehouse: str = "warehouse"
    checkpoint: str = "checkpoint"
    trigger_interval_s: float = 5.0
    max_batch_records: int = 1_000_000
    min_partitions: int | None = None
    parallel_tables: int = 2
    keep_hours: float = 168.0
    maintenance_hours: float = 24.0
    metrics_listen: str | None = None
    metrics_hosts: tuple[str, ...] = ()
    shutdown_timeout_s: float | None = None
    kafka_java: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
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
    kafka: Mapping[str, str]
    registry: Mapping[str, str]
    on_error: OnErrorTable = OnErrorTable()
    filters: FiltersTable = FiltersTable()
    gateway: GatewayTable = GatewayTable()
    topics: TopicsTable = field(default_factory=TopicsTable)
    types: TypesTable = TypesTable()
    messages: MessagesTable = MessagesTable()
    limits: LimitsTable = LimitsTable()
    copy: CopyTable = CopyTable()
    http: HttpTable = HttpTable()
    monitor: MonitorTable = MonitorTable()
    log: LogTable = LogTable()
    consumer: ConsumerTable = field(default_factory=ConsumerTable)
    warnings: tuple[str, ...] = ()
    group: str | None = None
