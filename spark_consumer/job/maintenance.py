"""Maintenance of tables between two cuts: compaction and removal of unused files.

Small files are merged, and files that no kept state needs are removed. Nothing else writes to the
tables meanwhile, so neither can conflict with a cut. `ConsumerSettings.keep_hours` holds: a file
that a younger state has is not removed. While a table has a version that no state names, nothing of
it is removed: the version of the newest state would look as if it had been replaced long ago.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_consumer.display import logger
from spark_consumer.errors import ConsumerError
from spark_consumer.formats.commit_metadata import Version
from spark_consumer.formats.protocol import Table
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import TableTransientError, cause, every_table
from spark_consumer.spark.files import Folder
from spark_consumer.states.manifests import TableState, manifest_folder

__all__ = ["Maintenance"]

_log: Final = logger(__name__)
_DONE: Final = "maintained"
"""File in the folder of the manifests: the last maintenance, by table."""
_MANY_FILES: Final = 16
"""Number of a table's files from which they are merged, if they are small on average."""
_SMALL_FILE_BYTES: Final = 32 * 1024 * 1024
_SLACK_HOURS: Final = 1.0
"""Hours between the replacement of files and the state that has the new ones."""


@dataclass(frozen=True, slots=True)
class _Tidied:
    """Result of the maintenance of a table.

    Attributes:
        version: Version of the table after the maintenance.
        old_until: Time from which the last files of older versions can be removed, in seconds
            since 1970; None if they have been.
    """

    version: Version
    old_until: float | None


class Maintenance:
    """Maintenance of one subscription's tables.

    Args:
        settings: Settings of the job.
        spark: Session that nothing else uses meanwhile.
        subscription: Name of the subscription.
        tables: Tables of the subscription.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        subscription: str,
        tables: SubscriberTables,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._subscription = subscription
        self._tables = tables
        self._folder = Folder(spark, manifest_folder(settings.warehouse, subscription))
        self._due_at: float | None = None

    def is_due(self) -> bool:
        """Whether `maintenance_hours` have passed since the last maintenance, by any process."""
        hours = self._settings.maintenance_hours
        if hours <= 0:
            return False
        if self._due_at is None:
            last = self._folder.time(_DONE)
            # The first time is as long after the first start.
            if last is None:
                self._folder.replace(_DONE, "{}")
                last = int(time.time() * 1000)
            self._due_at = last / 1000 + hours * 3600
        return time.time() >= self._due_at

    def tidy(self, tables: Mapping[str, TableState]) -> dict[str, TableState]:
        """Maintain tables that have changed, and those that still have files of old versions.

        A table whose maintenance fails is left for the next time.

        Args:
            tables: Tables of the newest manifest.

        Returns:
            Tables that have a new version now, with the same rows.

        Raises:
            TransientConsumerError: the file system fails.
        """
        begun = time.monotonic()
        known: dict[str, Any] = json.loads(self._folder.read(_DONE) or "{}")
        moved: dict[str, TableState] = {}
        done: dict[str, _Tidied] = {}
        for name, state in sorted(tables.items()):
            before = _Tidied(**known[name]) if name in known else None
            try:
                after = self._tidy_table(name, state.version, before)
            except Exception as error:  # whatever it is, it is this table's
                if not isinstance(error, ConsumerError) and (every := every_table(error)):
                    raise every from error
                _log.warning("maintenance failed: table=%s: %s", name, cause(error))
                continue
            done[name] = after
            if after.version != state.version:
                moved[name] = TableState(after.version, state.topic)
        self._folder.replace(_DONE, json.dumps({name: asdict(one) for name, one in done.items()}))
        self._due_at = time.time() + self._settings.maintenance_hours * 3600
        _log.info(
            "tables maintained: subscription=%s rewritten=%d seconds=%.1f",
            self._subscription,
            len(moved),
            time.monotonic() - begun,
        )
        return moved

    def _tidy_table(self, name: str, version: Version, before: _Tidied | None) -> _Tidied:
        """Maintain one table, if there is something to do."""
        hours = self._settings.keep_hours + _SLACK_HOURS
        if before is not None and before.version != version:
            before = None
        if before is not None and (before.old_until is None or time.time() < before.old_until):
            return before
        newest = self._tables.unchanged_since(self._spark, name, version)
        if newest != version:
            # By a job that was stopped before it stored a state with it, or by another program.
            return _Tidied(newest or version, time.time() + hours * 3600)
        table = self._tables.table(self._spark, name)
        if before is not None:
            table.vacuum(hours)
            return _Tidied(version, None)
        table.keep_history(hours)
        # Before files are put together: if it fails, there is no version that no state has.
        table.vacuum(hours)
        found = self._tables.read(name, version)
        if found is not None and _has_small_files(table):
            table.compact(found.commit, small=_SMALL_FILE_BYTES)
        newest = self._tables.unchanged_since(self._spark, name, version)
        if newest is None:
            raise TableTransientError(f"{table.label}: another process has written to it")
        return _Tidied(newest, time.time() + hours * 3600)


def _has_small_files(table: Table) -> bool:
    files, size = table.files(), table.bytes()
    if files is None or size is None or files < _MANY_FILES:
        return False
    return size / files < _SMALL_FILE_BYTES
