"""Manifests: the versions of all tables that belong together, by cut.

States are numbered. In ``<warehouse>/<subscription>/.pgsluice`` the newest one is in ``newest.0``
or ``newest.1``, whichever was written later: a store overwrites the older of the two, so one of
them is whole at any moment, on every file system, and after every crash; see `Manifests.newest`. A
cut that changes no table only extends the newest state. When the next state begins, the previous
one is written to ``states/<number>`` with its end, and does not change again. No folder is ever
listed: a past state is found by binary search, in O(log n) reads.

A state is written after the tables. A crash in between leaves the previous state as the newest, and
the next start reads the positions of the tables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from schemas.topic_names import topic_identifier, topic_part
from spark_consumer.errors import FatalConsumerError
from spark_consumer.formats.commit_metadata import NO_VERSION, Version
from spark_consumer.kafka.markers import Copy, Owner
from spark_consumer.names import history_name
from spark_consumer.spark.files import Folder
from spark_consumer.spark.local_folder import ReadableFolder

__all__ = [
    "HistoryState",
    "Hold",
    "Manifest",
    "ManifestReader",
    "Manifests",
    "TableState",
    "manifest_folder",
]

_FORMAT: Final = 5
_ENDED: Final = ("missing", "gone")
_NEWEST: Final = ("newest.0", "newest.1")
_TRIES: Final = 50
_PAUSE_S: Final = 0.02
_PRUNED: Final = 500
"""Maximum number of states that are removed at once."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table in a manifest.

    Attributes:
        version: Version of the table.
        topic: Topic whose changes it has.
    """

    version: Version
    topic: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Reason for which the job holds a table, which stays as it is while others are updated.

    Attributes:
        reason: Failure.
        hint: Remedy, or None.
        end_lsn: LSN until which the table is complete; None if it does not exist.
    """

    reason: str
    hint: str | None
    end_lsn: int | None


@dataclass(frozen=True, slots=True)
class HistoryState:
    """The history of a table in a manifest.

    Attributes:
        version: Version of the history.
        end_lsn: LSN until which it is complete.
        held: Reason for which it is not written; None while it is.
    """

    version: Version
    end_lsn: int
    held: Hold | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of a subscription's tables after a cut.

    Attributes:
        marker_topic_id: ID of the marker topic.
        marker: Offset of the cut's last marker; -1 before the first.
        since_lsn: LSN of the last marker that changed a table, at which the state began.
        since_time: Commit time of that marker, microseconds since 1970; 0 if not known.
        since_marker: Offset of that marker.
        end_lsn: LSN until which the tables have not changed since.
        commit_time: The source's commit time of the last transaction until `end_lsn` of which one
            is known, microseconds since 1970; None if there is none.
        tables: Versions by ``schema.table``, each part as in names of folders and topics.
        held_by_job: Reasons by ``schema.table``, or by topic while the table is not known.
        copies: States of copies by ``schema.table``. Tables that are no longer published are not
            among them; their last state is in `tables`.
        held_by_gateway: Reasons by ``schema.table``; changes of the table are missing until it is
            copied.
        fenced: Former topics of tables that another topic feeds now.
        owner: Writer of the markers; None if not known.
        unread: Reason for which the markers after `marker` cannot be read; None while they can.
        histories: Histories by the name of their table, those included that are not written any
            more.
        number: Number of the state, one more than the previous one's.
        store: Number of times that a state was stored, this time included.
        highest_lsn: Greatest `since_lsn` of this state and all previous ones.
        highest_time: Greatest `since_time` of this state and all previous ones.
    """

    marker_topic_id: str
    marker: int = -1
    since_lsn: int = 0
    since_time: int = 0
    since_marker: int = -1
    end_lsn: int = 0
    commit_time: int | None = None
    tables: Mapping[str, TableState] = field(default_factory=dict)
    held_by_job: Mapping[str, Hold] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    held_by_gateway: Mapping[str, str] = field(default_factory=dict)
    fenced: tuple[str, ...] = ()
    owner: Owner | None = None
    unread: Hold | None = None
    histories: Mapping[str, HistoryState] = field(default_factory=dict)
    number: int = 0
    store: int = 0
    highest_lsn: int = 0
    highest_time: int = 0

    def after(self, copies: Iterable[Copy]) -> Manifest:
        """Return the manifest with the state changes of `copies` applied."""
        states, by_gateway = dict(self.copies), dict(self.held_by_gateway)
        by_job = dict(self.held_by_job)
        for copy in copies:
            states.pop(copy.table, None)
            by_gateway.pop(copy.table, None)
            if copy.state == "held":
                by_gateway[copy.table] = copy.reason
            elif copy.state in _ENDED:
                by_job.pop(copy.table, None)
            else:
                states[copy.table] = copy.state
        return replace(self, copies=states, held_by_gateway=by_gateway, held_by_job=by_job)

    def without_replaced_histories(self) -> Manifest:
        """Return the manifest without former histories whose folders tables have now."""
        histories = {
            name: one
            for name, one in self.histories.items()
            if one.version == NO_VERSION or history_name(name) not in self.tables
        }
        return replace(self, histories=histories)

    def every_table(self) -> dict[str, TableState]:
        """Return tables and histories, the latter by the name of their folder.

        A table that has the folder of a former history is the one that is there.
        """
        histories = {
            history_name(name): TableState(one.version, "")
            for name, one in self.histories.items()
            if one.version != NO_VERSION
        }
        return {**histories, **self.tables}

    def moved(self, tables: Mapping[str, TableState]) -> Manifest:
        """Return the manifest with other versions of some of `every_table`, with the same rows."""
        histories = {
            name: replace(one, version=tables[history_name(name)].version)
            for name, one in self.histories.items()
            if history_name(name) in tables and history_name(name) not in self.tables
        }
        mine = {name: state for name, state in tables.items() if name in self.tables}
        return replace(
            self, tables={**self.tables, **mine}, histories={**self.histories, **histories}
        )

    def known_tables(self) -> set[str]:
        """Return the tables that the subscription is known to have, written or not."""
        return {*self.tables, *self.held_by_job, *self.held_by_gateway, *self.copies}

    @property
    def complete_lsn(self) -> int | None:
        """LSN until which all tables are complete; None if some table is not."""
        return None if self.marker < 0 or self._lacking() else self.end_lsn

    @property
    def has_held_tables(self) -> bool:
        """Whether a table is held, by the job or by the gateway, or a history."""
        return bool(self.held_by_job or self.held_by_gateway or self._held_histories())

    def missing(self) -> list[str]:
        """Return the reasons for which the tables are incomplete, or not updated, a line each."""
        unread = [] if self.unread is None else [f"subscription is held: {self.unread.reason}"]
        return [*unread, *self._lacking()]

    def _lacking(self) -> list[str]:
        copying = [
            f"table {topic_identifier(table)}: its copy is {state}"
            for table, state in sorted(self.copies.items())
            if state != "ready"
        ]
        held = [
            f"table {topic_identifier(table)} is held by the gateway: {reason}"
            for table, reason in sorted(self.held_by_gateway.items())
        ]
        by_job = [
            f"table {topic_identifier(table)} is held by the job: {hold.reason}"
            for table, hold in sorted(self.held_by_job.items())
        ]
        return [*copying, *held, *by_job, *self._held_histories()]

    def _held_histories(self) -> list[str]:
        # Nothing waits for tables that are no longer published.
        return [
            f"history of table {topic_identifier(table)} is held: {history.held.reason}"
            for table, history in sorted(self.histories.items())
            if history.held is not None and (not self.copies or table in self.copies)
        ]


def manifest_folder(warehouse: str, subscription: str) -> str:
    """Return the folder of a subscription's manifests."""
    # A point never occurs in a table's folder, so this one cannot be mistaken for a schema.
    return f"{warehouse.rstrip('/')}/{topic_part(subscription)}/.pgsluice"


def _past_folder(path: str) -> str:
    return f"{path}/states"


class ManifestReader:
    """Reader of the manifests of one subscription.

    Args:
        folder: Folder of the newest state.
        past: Folder of past states.
    """

    def __init__(self, folder: ReadableFolder, past: ReadableFolder) -> None:
        self._newest_states = folder
        self._past_states = past

    @classmethod
    def opened(
        cls, open_folder: Callable[[str], ReadableFolder], warehouse: str, subscription: str
    ) -> ManifestReader:
        """Return the reader of a subscription's manifests."""
        path = manifest_folder(warehouse, subscription)
        return ManifestReader(open_folder(path), open_folder(_past_folder(path)))

    def newest(self) -> Manifest | None:
        """Return the newest state, never an older one than an earlier call; None if there is none.

        The older of the two files may be half written. Then the other is the newest, provided
        that it was read afterwards: the writer turns to it only when this one is whole.

        Raises:
            FatalConsumerError: it is of another version of the job.
            TransientConsumerError: the file system fails.
        """
        for trial in range(_TRIES):
            if trial:
                time.sleep(_PAUSE_S)
            found = [self._newest(name) for name in _NEWEST]
            # Read again: it was read before the other one turned out to be half written.
            if found[0] is not None and found[1] is None:
                found[0] = self._newest(_NEWEST[0])
            whole = [one for one in found if one is not None]
            if whole:
                return max(whole, key=lambda one: one.store)
            if all(self._newest_states.time(name) is None for name in _NEWEST):
                return None
        # Both are damaged, which no crash does: the state is rebuilt from tables and topics.
        return None

    def at(self, *, lsn: int | None = None, commit_time: int | None = None) -> Manifest | None:
        """Return the newest state at or before an LSN, or a commit time in µs since 1970."""

        def is_at(state: Manifest) -> bool:
            by_lsn = lsn is None or state.highest_lsn <= lsn
            return by_lsn and (commit_time is None or state.highest_time <= commit_time)

        found = self.newest()
        if found is not None and not is_at(found):
            end = found.number
            # States are only ever removed from the front.
            number = last(0, end, lambda n: (one := self._state(n)) is None or is_at(one))
            found = None if number is None else self._state(number)
        if found is not None and commit_time is not None and not found.highest_time:
            return None
        return found

    def oldest(self) -> Manifest | None:
        """Return the oldest state that is kept; None if there is none."""
        found = self.newest()
        if found is None:
            return None
        removed = last(0, found.number, lambda n: self._state(n) is None)
        return self._state(0 if removed is None else removed + 1) or found

    def _state(self, number: int) -> Manifest | None:
        """Return a past state; None if it has been removed."""
        name = _file(number)
        text = self._past_states.read(name)
        return None if text is None else self._parsed(self._past_states, name, text)

    def _newest(self, name: str) -> Manifest | None:
        """Read one of the two files; return None if it does not exist, or is half written."""
        try:
            text = self._newest_states.read(name)
            return None if text is None else self._parsed(self._newest_states, name, text)
        except _HalfWrittenError:
            return None

    def _parsed(self, folder: ReadableFolder, name: str, text: str) -> Manifest:
        place = f"{folder.path}/{name}"
        hint = f"remove {place}: it is recreated from the tables and the topics"
        try:
            found = json.loads(text)
            if (known := found.pop("format")) != _FORMAT:
                raise FatalConsumerError(f"{place} has format {known}, not {_FORMAT}", hint=hint)
            return Manifest(
                **{
                    **found,
                    "tables": {n: TableState(**state) for n, state in found["tables"].items()},
                    "fenced": tuple(found["fenced"]),
                    "owner": found["owner"] and tuple(found["owner"]),
                    "held_by_job": {n: Hold(**h) for n, h in found["held_by_job"].items()},
                    "histories": {
                        n: HistoryState(**{**h, "held": h["held"] and Hold(**h["held"])})
                        for n, h in found.get("histories", {}).items()
                    },
                    "unread": Hold(**unread) if (unread := found.get("unread")) else None,
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _HalfWrittenError(f"{place} cannot be read as a manifest", hint=hint) from error


class Manifests(ManifestReader):
    """Manifests of one subscription; one process stores, any number read meanwhile."""

    def __init__(self, spark: SparkSession, warehouse: str, subscription: str) -> None:
        self._folder = Folder(spark, manifest_folder(warehouse, subscription))
        self._past = Folder(spark, _past_folder(self._folder.path))
        self._first = 0
        super().__init__(self._folder, self._past)

    def store(self, manifest: Manifest, before: Manifest) -> Manifest:
        """Store a state; one that has the same tables as `before` only extends that one.

        Args:
            manifest: State to store.
            before: Return value of the previous call; any manifest before the first one.
        """
        extends = before.since_marker >= 0 and _same(before, manifest)
        begun = before if extends else manifest
        manifest = replace(
            manifest,
            since_lsn=begun.since_lsn,
            since_time=begun.since_time,
            since_marker=begun.since_marker,
            number=before.number if extends or not before.store else before.number + 1,
            store=before.store + 1,
            highest_lsn=max(begun.since_lsn, before.highest_lsn),
            highest_time=max(begun.since_time, before.highest_time),
        )
        if manifest.number > before.number:
            self._past.write(_file(before.number), _to_json(before))
        self._folder.write(_NEWEST[manifest.store % 2], _to_json(manifest))
        return manifest

    def prune(self, keep_hours: float, newest: Manifest, most: int = _PRUNED) -> int:
        """Remove states that ended more than `keep_hours` ago; return their number.

        A state ended when its file was written. States are removed in order, and each search
        continues after the last one, so each state is examined once.

        Args:
            keep_hours: Time for which past states are kept.
            newest: Current state.
            most: Maximum number of states to remove.
        """
        limit = (time.time() - keep_hours * 3600) * 1000
        if self._first == 0:
            # Numbers without a state were removed: the others follow them.
            gone = last(0, newest.number, lambda n: self._past.time(_file(n)) is None)
            self._first = 0 if gone is None else gone + 1
        begin = self._first
        while self._first < min(newest.number, begin + most):
            written = self._past.time(_file(self._first))
            if written is not None and written >= limit:
                break
            self._past.remove(_file(self._first))
            self._first += 1
        return self._first - begin


class _HalfWrittenError(FatalConsumerError):
    """A file that is not a complete manifest."""


def last(begin: int, end: int, holds: Callable[[int], bool]) -> int | None:
    """Return the last number from `begin` on and before `end` for which `holds` is true, or None.

    Args:
        begin: First number.
        end: Number after the last one.
        holds: Predicate that is true before some number and false from there on.
    """
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low - 1 if low > begin else None


def _file(number: int) -> str:
    return f"{number:012d}.json"


def _same(one: Manifest, other: Manifest) -> bool:
    parts = ("tables", "held_by_job", "copies", "held_by_gateway")
    alike = all(getattr(one, name) == getattr(other, name) for name in parts)
    return alike and _written(one) == _written(other)


def _written(manifest: Manifest) -> dict[str, tuple[Version, Hold | None]]:
    return {name: (one.version, one.held) for name, one in manifest.histories.items()}


def _to_json(manifest: Manifest) -> str:
    content = {"format": _FORMAT, **asdict(manifest)}
    # Earlier releases of the job do not know it.
    if not manifest.histories:
        del content["histories"]
    return json.dumps(content, separators=(",", ":"))
