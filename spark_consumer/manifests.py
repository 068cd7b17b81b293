"""What belongs together: for each cut the version of every Delta table.

A state is one small JSON file in ``<warehouse>/<subscription>/.pgsluice``, named by LSN, time and
marker at which it begins; a cut that changes no table only moves the end inside the file. So the
newest file whose name is at or before an LSN, or a time, is the state then, and its tables read
together by these versions show the source at that point. It is written after the tables: a crash in
between leaves the state before as the newest one, and the next start finds what the tables have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from spark_consumer.errors import FatalConsumerError, TransientConsumerError
from spark_consumer.files import Folder
from spark_consumer.markers import Copy
from spark_consumer.names import part

__all__ = ["Aside", "Manifest", "Manifests", "TableState", "manifest_folder"]

_FORMAT: Final = 3
_ENDED: Final = ("missing", "gone")
_TRIES: Final = 20
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class TableState:
    """A table in a manifest.

    Attributes:
        version: Of the Delta table.
        topic: Where it comes from.
    """

    version: int
    topic: str


@dataclass(frozen=True, slots=True)
class Aside:
    """Why a table is set aside: it stays as it is while the others go on.

    Attributes:
        reason: What is wrong.
        hint: What to do.
        end_lsn: Up to where the table is complete; None when there is none of it.
    """

    reason: str
    hint: str | None
    end_lsn: int | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of a subscription's tables after a cut.

    Attributes:
        journal: Id of the marker topic.
        marker: Offset of the cut's last marker; -1 before the first.
        since_lsn: The ``end_lsn`` of the last marker that changed a table: the state began there.
        since_time: Its commit time, microseconds since 1970; 0 when not known.
        since_marker: Its offset.
        end_lsn: The ``end_lsn`` up to which the tables have not changed.
        commit_time: The source's commit time then, where it is known.
        tables: By ``schema.table``, both as in names of folders and topics.
        aside: By ``schema.table``, or by topic while the table is not known.
        copies: By ``schema.table``, the state of the copy. Tables that are not published any more
            are not among them; their last state is in `tables`.
        held: By ``schema.table``, why the gateway holds it: until it is copied, changes of it are
            missing.
        fenced: Topics whose table comes from another topic now.
    """

    journal: str
    marker: int = -1
    since_lsn: int = 0
    since_time: int = 0
    since_marker: int = -1
    end_lsn: int = 0
    commit_time: int | None = None
    tables: Mapping[str, TableState] = field(default_factory=dict)
    aside: Mapping[str, Aside] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    fenced: tuple[str, ...] = ()

    def after(self, copies: Iterable[Copy]) -> Manifest:
        """Return the manifest in which `copies` have come to other states."""
        states, held = dict(self.copies), dict(self.held)
        aside = dict(self.aside)
        for copy in copies:
            states.pop(copy.table, None)
            held.pop(copy.table, None)
            if copy.state == "held":
                held[copy.table] = copy.reason
            elif copy.state in _ENDED:
                aside.pop(copy.table, None)
            else:
                states[copy.table] = copy.state
        return replace(self, copies=states, held=held, aside=aside)

    @property
    def complete_lsn(self) -> int | None:
        """All tables hold everything up to this ``end_lsn``; None when some do not."""
        return None if self.marker < 0 or self.missing() else self.end_lsn

    @property
    def in_trouble(self) -> bool:
        """Whether some table will not be complete before somebody does something."""
        return bool(self.aside or self.held)

    def missing(self) -> list[str]:
        """What keeps the tables from being complete, a line each."""
        copying = [
            f"table {table}: its copy is {state}"
            for table, state in sorted(self.copies.items())
            if state != "ready"
        ]
        held = [
            f"table {table} is held by the gateway: {reason}"
            for table, reason in sorted(self.held.items())
        ]
        return [*copying, *held] + [
            f"table {table} is set aside: {aside.reason}"
            for table, aside in sorted(self.aside.items())
        ]

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.since_lsn:016X}.{self.since_time:016X}.{self.since_marker + 1:016X}.json"


def manifest_folder(warehouse: str, subscription: str) -> str:
    """Where the manifests of a subscription are."""
    # A point never occurs in a table's folder, so this one cannot be mistaken for a schema.
    return f"{warehouse.rstrip('/')}/{part(subscription)}/.pgsluice"


class Manifests:
    """The manifests of one subscription."""

    def __init__(self, spark: SparkSession, warehouse: str, subscription: str) -> None:
        self._folder = Folder(spark, manifest_folder(warehouse, subscription))

    def newest(self) -> Manifest | None:
        """The state now; None when there is none.

        Raises:
            FatalConsumerError: it cannot be understood.
            TransientConsumerError: the file system fails.
        """
        names = self._names()
        return self._read(names[-1]) if names else None

    def at(self, *, lsn: int | None = None, moment: int | None = None) -> Manifest | None:
        """The newest state at or before an LSN, or a commit time in microseconds since 1970."""
        found = None
        for name in self._names():
            since_lsn, since_time = (int(text, 16) for text in name.split(".")[:2])
            if (lsn is None or since_lsn <= lsn) and (moment is None or 0 < since_time <= moment):
                found = name
        return None if found is None else self._read(found)

    def store(self, manifest: Manifest, before: Manifest) -> Manifest:
        """Keep a state; one that has the same tables as `before` prolongs that one's file."""
        if before.since_marker >= 0 and _same(before, manifest):
            manifest = replace(
                manifest,
                since_lsn=before.since_lsn,
                since_time=before.since_time,
                since_marker=before.since_marker,
            )
        self._folder.replace(manifest.name, _to_json(manifest))
        return manifest

    def prune(self, keep_hours: float) -> None:
        """Remove states that ended longer ago: all before the last one that is as old."""
        times = self._folder.times()
        limit = (time.time() - keep_hours * 3600) * 1000
        old = [name for name in self._names() if times.get(name, limit) < limit]
        for name in old[:-1]:
            self._folder.remove(name)

    def _names(self) -> list[str]:
        return [name for name in self._folder.names() if name.endswith(".json") and name[0] != "."]

    def _text(self, name: str) -> str | None:
        """Read a file that the job may be replacing.

        A local file system does that in steps: the old file goes, the new one comes, and its
        checksum last.
        """
        for _ in range(_TRIES - 1):
            with suppress(TransientConsumerError):
                if (text := self._folder.read(name)) is not None:
                    return text
            time.sleep(_PAUSE_S)
        return self._folder.read(name)

    def _read(self, name: str) -> Manifest:
        place = f"{self._folder.path}/{name}"
        hint = f"remove {place}: it is made again from the tables and the topics"
        text = self._text(name)
        try:
            found = json.loads(text or "")
            if (known := found.pop("format")) != _FORMAT:
                raise FatalConsumerError(f"{place} has format {known}, not {_FORMAT}", hint=hint)
            return Manifest(
                **{
                    **found,
                    "tables": {n: TableState(**state) for n, state in found["tables"].items()},
                    "fenced": tuple(found["fenced"]),
                    "aside": {n: Aside(**aside) for n, aside in found["aside"].items()},
                }
            )
        except (ValueError, KeyError, TypeError) as error:
            raise FatalConsumerError(f"{place} cannot be read as a manifest", hint=hint) from error


def _same(one: Manifest, other: Manifest) -> bool:
    return all(
        getattr(one, name) == getattr(other, name) for name in ("tables", "aside", "copies", "held")
    )


def _to_json(manifest: Manifest) -> str:
    return json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1)
