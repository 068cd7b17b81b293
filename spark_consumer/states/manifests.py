"""What belongs together: for each cut the version of every table.

States are numbered. In ``<warehouse>/<subscription>/.pgsluice`` the newest one is in ``newest.0``
or ``newest.1``, whichever was written later: a store writes over the older of the two, so one of
them is whole at any moment, on every file system, and after every crash; see `Manifests.newest`. A
cut that changes no table only moves the end of the newest state. When the next state begins, the
one before is written to ``states/<number>`` with its end, and stays as it is. No folder is ever
listed: a past state is found by halving, in as many reads as its number has binary digits.

A state is written after the tables. A crash in between leaves the one before as the newest, and the
next start finds what the tables have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from spark_consumer.errors import FatalConsumerError
from spark_consumer.formats.commit_metadata import Version
from spark_consumer.kafka.markers import Copy, Owner
from spark_consumer.names import part
from spark_consumer.spark.files import Folder

__all__ = ["Aside", "Manifest", "Manifests", "TableState", "manifest_folder"]

_FORMAT: Final = 4
_ENDED: Final = ("missing", "gone")
_NEWEST: Final = ("newest.0", "newest.1")
_TRIES: Final = 50
_PAUSE_S: Final = 0.02
_PRUNED: Final = 500
"""States that are removed at once, at most."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table in a manifest.

    Attributes:
        version: Of the table.
        topic: Where it comes from.
    """

    version: Version
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
        owner: Who writes the markers; None when not known.
        unread: Why the markers from `marker` on cannot be read; None while they can.
        number: Of the state; each has one more than the state before.
        store: How many times a state was stored, this time included.
        highest_lsn: The greatest `since_lsn` of this state and all before.
        highest_time: The greatest `since_time` of this state and all before.
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
    owner: Owner | None = None
    unread: Aside | None = None
    number: int = 0
    store: int = 0
    highest_lsn: int = 0
    highest_time: int = 0

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
        return None if self.marker < 0 or self._lacking() else self.end_lsn

    @property
    def in_trouble(self) -> bool:
        """Whether some table will not be complete before somebody does something."""
        return bool(self.aside or self.held)

    def missing(self) -> list[str]:
        """What keeps the tables from being complete, and going on, a line each."""
        unread = [] if self.unread is None else [f"subscription is held: {self.unread.reason}"]
        return [*unread, *self._lacking()]

    def _lacking(self) -> list[str]:
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


def manifest_folder(warehouse: str, subscription: str) -> str:
    """Where the manifests of a subscription are."""
    # A point never occurs in a table's folder, so this one cannot be mistaken for a schema.
    return f"{warehouse.rstrip('/')}/{part(subscription)}/.pgsluice"


class Manifests:
    """The manifests of one subscription. One process stores; any number read meanwhile."""

    def __init__(self, spark: SparkSession, warehouse: str, subscription: str) -> None:
        self._folder = Folder(spark, manifest_folder(warehouse, subscription))
        self._past = Folder(spark, f"{self._folder.path}/states")
        self._first = 0

    def newest(self) -> Manifest | None:
        """The state now; None when there is none. Never an earlier one than a call before gave.

        Of the two files the older one may be half written. Then the other is the newest, provided
        that it was read afterwards: the writer goes on to it only when this one is whole.

        Raises:
            FatalConsumerError: it is of another version of the job.
            TransientConsumerError: the file system fails.
        """
        for trial in range(_TRIES):
            if trial:
                time.sleep(_PAUSE_S)
            found = [self._newest(name) for name in _NEWEST]
            # Read again, for it was read before the other was seen to be half written.
            if found[0] is not None and found[1] is None:
                found[0] = self._newest(_NEWEST[0])
            whole = [one for one in found if one is not None]
            if whole:
                return max(whole, key=lambda one: one.store)
            if all(self._folder.time(name) is None for name in _NEWEST):
                return None
        # Both were broken by something else: all is found out again from tables and topics.
        return None

    def at(self, *, lsn: int | None = None, moment: int | None = None) -> Manifest | None:
        """The newest state at or before an LSN, or a commit time in microseconds since 1970."""

        def is_at(state: Manifest) -> bool:
            by_lsn = lsn is None or state.highest_lsn <= lsn
            return by_lsn and (moment is None or state.highest_time <= moment)

        found = self.newest()
        if found is not None and not is_at(found):
            end = found.number
            # Only the first ones are ever removed.
            number = last(0, end, lambda n: (one := self._state(n)) is None or is_at(one))
            found = None if number is None else self._state(number)
        if found is not None and moment is not None and not found.highest_time:
            return None
        return found

    def store(self, manifest: Manifest, before: Manifest) -> Manifest:
        """Keep a state; one that has the same tables as `before` only moves the end of that.

        Args:
            manifest: the state.
            before: what was stored before, as it was returned; or anything, before the first store.
        """
        goes_on = before.since_marker >= 0 and _same(before, manifest)
        begun = before if goes_on else manifest
        manifest = replace(
            manifest,
            since_lsn=begun.since_lsn,
            since_time=begun.since_time,
            since_marker=begun.since_marker,
            number=before.number if goes_on or not before.store else before.number + 1,
            store=before.store + 1,
            highest_lsn=max(begun.since_lsn, before.highest_lsn),
            highest_time=max(begun.since_time, before.highest_time),
        )
        if manifest.number > before.number:
            self._past.write(_file(before.number), _to_json(before))
        self._folder.write(_NEWEST[manifest.store % 2], _to_json(manifest))
        return manifest

    def prune(self, keep_hours: float, newest: Manifest, most: int = _PRUNED) -> int:
        """Remove states that ended longer ago, the oldest first; how many have gone.

        A state ended when its file was written. They go in the order of their numbers, and the
        search begins where the last one has ended, so each is looked at once.

        Args:
            keep_hours: how long ago.
            newest: the state now.
            most: the most states to remove.
        """
        limit = (time.time() - keep_hours * 3600) * 1000
        if self._first == 0:
            # What is missing was removed: that is where the rest begins.
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

    def _state(self, number: int) -> Manifest | None:
        """A past state; None when it has been removed."""
        name = _file(number)
        text = self._past.read(name)
        return None if text is None else self._parsed(self._past, name, text)

    def _newest(self, name: str) -> Manifest | None:
        """One of the two; None when it is not there, or half written."""
        try:
            text = self._folder.read(name)
            return None if text is None else self._parsed(self._folder, name, text)
        except _HalfWrittenError:
            return None

    def _parsed(self, folder: Folder, name: str, text: str) -> Manifest:
        place = f"{folder.path}/{name}"
        hint = f"remove {place}: it is made again from the tables and the topics"
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
                    "aside": {n: Aside(**aside) for n, aside in found["aside"].items()},
                    "unread": Aside(**unread) if (unread := found.get("unread")) else None,
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _HalfWrittenError(f"{place} cannot be read as a manifest", hint=hint) from error


class _HalfWrittenError(FatalConsumerError):
    """A file that is no manifest, or not all of one."""


def last(begin: int, end: int, holds: Callable[[int], bool]) -> int | None:
    """The last number from `begin` on and before `end` for which something holds; None for none.

    Args:
        begin: the first number.
        end: the number behind the last one.
        holds: it holds for all numbers up to one, and for none from there on.
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
    return all(
        getattr(one, name) == getattr(other, name) for name in ("tables", "aside", "copies", "held")
    )


def _to_json(manifest: Manifest) -> str:
    return json.dumps({"format": _FORMAT, **asdict(manifest)}, separators=(",", ":"))
