"""Moves of one outer table: what is unsettled, and its reads; the package has the proof."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gateway.copy import CopiedRow, Row, Snapshot, row_of
from gateway.copy.unseen import Change, Later, Op, UnseenChanges
from gateway.core.copy_progress import Key
from gateway.pgoutput.messages import UNCHANGED
from gateway.subselects.formula import (
    Formula,
    Members,
    RowView,
    SetTest,
    Subselect,
    Truth,
    evaluate,
    holds,
    is_shortened,
    set_tests_of,
    subselects_of,
)
from gateway.subselects.moves.progress import ProgressOfMoves
from gateway.subselects.moves.reads import MoveChunk, MoveRequest, SliceRead
from gateway.subselects.moves.state import MoveState, Slice
from gateway.subselects.sets.changes import SetChange, affected_values

__all__ = ["MOST_UNSETTLED", "TRIES", "MovedRow", "TableMoves"]

TRIES: Final = 3
"""Number of times that a slice's chunks are voided before it is read as one chunk."""
MOST_UNSETTLED: Final = 10_000
"""Number of slices, and of keys, beyond which the table is copied again instead."""
_MOST_VALUES: Final = 100
"""Number of slices that are read together, and of keys."""


class MovedRow(NamedTuple):
    """A row as it is now, for one subscription; whether it is to have it (``r``) or not (``d``)."""

    subscription: str
    row: CopiedRow
    key: Key
    wanted: bool


class TableMoves:
    """Moves of one table, for all subscriptions whose filters on it have sub-selects.

    Not thread-safe. All rows have the columns of the chunks, in their order.

    Args:
        key: Positions of the key's columns in a row.
        formulas: Filter of each subscription.
        members: Returns the set of a sub-select, as of the position that was published last.
        view: Makes what filters see of a row; columns that decide are known in every row.
        state: State that was committed last.

    Attributes:
        filtered_by: Subscriptions by the sub-selects of their filters, nested ones included.
        revision: Number that changes whenever other slices are unsettled than before.
        progress: For each subscription since when rows move, and how many have.
    """

    def __init__(
        self,
        key: Sequence[int],
        formulas: Mapping[str, Formula],
        members: Callable[[Subselect], Members],
        view: Callable[[Row], RowView],
        state: MoveState,
    ) -> None:
        self.formulas = dict(formulas)
        self.tests = {name: tuple(set_tests_of(formula)) for name, formula in formulas.items()}
        self._tested = {test.columns for tests in self.tests.values() for test in tests}
        self._testing: dict[Subselect, list[tuple[str, SetTest]]] = {}
        for name, tests in self.tests.items():
            for test in dict.fromkeys(tests):
                self._testing.setdefault(test.subselect, []).append((name, test))
        self.filtered_by: dict[Subselect, list[str]] = {}
        for name, formula in formulas.items():
            for subselect in dict.fromkeys(subselects_of(formula)):
                self.filtered_by.setdefault(subselect, []).append(name)
        self.members = members
        self.view = view
        self.unseen = UnseenChanges(key)
        self.progress = ProgressOfMoves(state.progress)
        self.key_of = self.unseen.key_of
        self.whole = set(state.whole & self.formulas.keys())
        # Subscriptions and tests that there are no more leave nothing to read.
        self._slices = {
            slice_: known
            for slice_, of in state.slices.items()
            if slice_.columns in self._tested and (known := set(of & self.formulas.keys()))
        }
        # With the transaction that put it there; None: one that every snapshot sees.
        self._keys: dict[Key, dict[str, int | None]] = {
            key: dict.fromkeys(listed)
            for key, of in state.keys.items()
            if (listed := of & self.formulas.keys())
        }
        self._tries: dict[Slice, int] = {}
        self._reads: dict[int, SliceRead] = {}
        self._key_reads: dict[int, MoveRequest] = {}
        self._number = 0
        self.revision = 0
        self._known = {
            name
            for of in (*state.slices.values(), *state.keys.values(), state.whole)
            for name in of
        }
        self._begun_copies: set[str] = set()
        self._waiting: dict[str, set[Subselect]] = {}  # for sets whose tables are read once more

    @property
    def state(self) -> MoveState:
        """State, to be committed with everything that has been published so far."""
        return MoveState(
            {found: frozenset(of) for found, of in self._slices.items() if of},
            {found: frozenset(of) for found, of in self._keys.items() if of},
            frozenset(self.whole),
            dict(self.progress.known),
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing is unsettled."""
        return not (self._slices or self._keys or self.whole or self._waiting)

    @property
    def has_reads(self) -> bool:
        """Whether slices or keys are unsettled: rows are to be read, or being read."""
        return bool(self._slices or self._keys)

    # What is unsettled

    @property
    def has_listed(self) -> bool:
        """Whether a key is unsettled, or whole subscriptions are."""
        return bool(self._keys or self.whole)

    def unsettled_columns(self) -> set[tuple[str, ...]]:
        """Return the columns of the slices that are unsettled."""
        return {slice_.columns for slice_ in self._slices}

    def is_unsettled_for_any(self, slice_: Slice) -> bool:
        """Whether a slice is unsettled for any subscription."""
        return slice_ in self._slices

    def unsettled_subscriptions(self) -> Iterator[str]:
        """Yield each subscription as often as there are slices and keys unsettled for it.

        One whose table has to be copied again comes once, and one that waits for a set once more.
        """
        for of in self._slices.values():
            yield from of
        for listed in self._keys.values():
            yield from listed
        yield from self.whole
        yield from self._waiting

    def note_progress(self, now_ms: int) -> None:
        """Note how far the moves are at a time, in milliseconds since 1970, for the next state."""
        self.progress.note(set(self.unsettled_subscriptions()), now_ms)

    def wait_for(self, subselect: Subselect) -> None:
        """Note that nothing is settled for the subscriptions of a set until its table is read."""
        for name in self.filtered_by.get(subselect, ()):
            self._waiting.setdefault(name, set()).add(subselect)

    def end_wait(self, subselect: Subselect) -> None:
        """Note that the table of a set was read."""
        for name in self.filtered_by.get(subselect, ()):
            if (awaited := self._waiting.get(name)) is not None:
                awaited.discard(subselect)
                if not awaited:
                    del self._waiting[name]

    def note_waited(self, subselect: Subselect) -> None:
        """Note that the state that was read back says of a set that it was waited for."""
        self._known.update(self.filtered_by.get(subselect, ()))

    def was_unsettled(self, subscription: str) -> bool:
        """Whether something was unsettled for a subscription by the state that was read back."""
        return subscription in self._known

    def pop_begun_copies(self) -> set[str]:
        """Return the subscriptions for which a copy has begun since the last call."""
        found, self._begun_copies = self._begun_copies, set()
        return found

    def listed(self, key: Key) -> Collection[str]:
        """Return the subscriptions for which a key is unsettled."""
        return self._keys.get(key, ())

    def list_key(self, key: Key, subscription: str, xid: int | None) -> None:
        """Make a key unsettled, by a row that transaction `xid` has left without all values."""
        if subscription in self.whole:
            return
        self._keys.setdefault(key, {})[subscription] = xid
        if len(self._keys) > MOST_UNSETTLED:
            self.copy_again(subscription)

    def settle_key(self, key: Key, subscription: str) -> None:
        """Note that the subscriber has what it is to have under a key."""
        if (found := self._keys.get(key)) is not None:
            found.pop(subscription, None)
            if not found:
                del self._keys[key]

    def is_unsettled(self, slice_: Slice, subscription: str) -> bool:
        """Whether nobody knows which rows of a slice the subscriber has."""
        return subscription in self._slices.get(slice_, ())

    def unsettled_for(self, view: RowView) -> set[str]:
        """Return the subscriptions for which a slice of a row is unsettled."""
        if not self._slices:
            return set()
        slices = (Slice(columns, view.value(columns)) for columns in self._tested)
        return {name for slice_ in slices for name in self._slices.get(slice_, ())}

    def unsettle(self, changes: Mapping[Subselect, SetChange]) -> None:
        """Make the slices unsettled for which the sets of a transaction have changed a test."""
        for subselect, change in changes.items():
            for subscription, test in self._testing.get(subselect, ()):
                if subscription in self.whole:
                    continue
                values = affected_values(test.kind, change)
                if (
                    values is None
                    or len(values) + len(self._slices) > MOST_UNSETTLED
                    or any(map(is_shortened, values))
                ):
                    self.copy_again(subscription)
                    continue
                for value in values:
                    self._unsettle(Slice(test.columns, value), subscription)

    def _unsettle(self, slice_: Slice, subscription: str) -> None:
        self.revision += 1
        self._slices.setdefault(slice_, set()).add(subscription)
        for read in self._reads.values():
            if read.void(slice_, subscription):
                self._tries[slice_] = self._tries.get(slice_, 0) + 1

    def copy_again(self, subscription: str) -> None:
        """Give the subscription's rows up: they are right once the table is copied again."""
        self._forget(subscription)
        self.whole.add(subscription)

    def begin_copy(self, subscription: str) -> None:
        """Note that a copy begins: the subscriber has no row."""
        self._forget(subscription)
        self.progress.restart(subscription)
        self.whole.discard(subscription)
        self._begun_copies.add(subscription)

    def truncate(self) -> None:
        """Note that no row is left, as a record for all subscribers says."""
        self.revision += 1
        self._slices.clear()
        self._keys.clear()
        self._tries.clear()
        self._reads.clear()
        self._key_reads.clear()

    def _forget(self, subscription: str) -> None:
        for slice_ in list(self._slices):
            self._settle(slice_, {subscription})
        for key in list(self._keys):
            self.settle_key(key, subscription)
        for read in self._reads.values():
            for of in (read.open or {}).values():
                of.discard(subscription)

    def _settle(self, slice_: Slice, subscriptions: Collection[str]) -> None:
        if (found := self._slices.get(slice_)) is not None:
            found.difference_update(subscriptions)
            if not found:
                self.revision += 1
                del self._slices[slice_]
                self._tries.pop(slice_, None)

    # Judgement

    def truth(self, subscription: str, view: RowView, test: Callable[[SetTest], Truth]) -> Truth:
        """Return what the subscription's filter says of a row."""
        return evaluate(self.formulas[subscription], view.plain, test)

    def wants(self, subscription: str, view: RowView) -> bool:
        """Whether the subscriber is to have a row, by the sets as they are."""

        def test(each: SetTest) -> Truth:
            found = holds(each.kind, view.value(each.columns), self.members(each.subselect))
            return Truth.YES if found else Truth.NO

        return self.truth(subscription, view, test) is Truth.YES

    # Reads

    def request(self) -> MoveRequest | None:
        """Return what to read next; None if nothing is left that is not being read."""
        for number, read in list(self._reads.items()):
            if not read.is_out and read.is_void:
                del self._reads[number]
            elif not read.is_out:
                read.is_out = True
                return read.request
        out = {key for request in self._key_reads.values() for key in request.keys}
        if keys := [key for key in self._keys if key not in out][:_MOST_VALUES]:
            request = MoveRequest(self._next_number(), keys=tuple(keys))
            self._key_reads[request.number] = request
            return request
        return self._request_slices()

    def _request_slices(self) -> MoveRequest | None:
        read = {found for each in self._reads.values() for found in each.slices}
        first: Slice | None = None
        values = []
        whole = False
        for slice_ in self._slices:
            if slice_ in read:
                continue
            is_whole = self._tries.get(slice_, 0) >= TRIES
            if first is None:
                first, whole = slice_, is_whole
            if (slice_.columns, is_whole) == (first.columns, whole):
                values.append(slice_.value)
                if whole or len(values) == _MOST_VALUES:
                    break
        if first is None:
            return None
        request = MoveRequest(self._next_number(), first.columns, tuple(values), whole=whole)
        self._reads[request.number] = SliceRead(request)
        return request

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def release(self, request: MoveRequest) -> None:
        """Note that a request was not read: its connection is lost."""
        self._key_reads.pop(request.number, None)
        if (read := self._reads.get(request.number)) is not None:
            read.is_out = False

    def release_all(self) -> None:
        """Note that nothing is being read: the readers are others from now on."""
        self._key_reads.clear()
        for read in self._reads.values():
            read.is_out = False

    def forget(self, snapshots: Collection[Snapshot]) -> None:
        """Drop the changes that are visible to everything still to be placed.

        Args:
            snapshots: A snapshot whose transactions everything read from now on sees, and those of
                the chunks that wait to be placed.
        """
        self.unseen.forget(snapshots)

    def place(self, chunk: MoveChunk) -> Iterator[MovedRow]:
        """Place a chunk after everything published so far, at or after its `insert_lsn`.

        Returns:
            The rows to publish, as they are at this position. Exhaust it before anything else.
        """
        if chunk.request.number in self._key_reads:
            yield from self._place_keys(chunk)
        elif (read := self._reads.get(chunk.request.number)) is not None:
            yield from self._place_slices(chunk, read)

    def _place_keys(self, chunk: MoveChunk) -> Iterator[MovedRow]:
        request = self._key_reads.pop(chunk.request.number)
        entries = self.unseen.unseen_by(chunk.snapshot)
        _, rows = self.unseen.separate(chunk.rows, entries, set(request.keys))
        incomplete = self.unseen.make_up_for(rows, entries, all_known=False)
        for key in request.keys:
            row = rows.get(key)
            for subscription, xid in list(self._keys.get(key, {}).items()):
                if row is not None:
                    yield from self._moved(subscription, row, key)
                elif key in incomplete:
                    self._keys[key][subscription] = incomplete[key].xid
                elif xid is None or chunk.snapshot.sees(xid):
                    self.settle_key(key, subscription)  # the row is gone, and its d was published

    def _place_slices(self, chunk: MoveChunk, read: SliceRead) -> Iterator[MovedRow]:
        if read.open is None:
            read.open = {found: set(self._slices.get(found, ())) for found in read.slices}
        columns = read.request.columns
        entries = self.unseen.unseen_by(chunk.snapshot)
        others, rows = self.unseen.separate(chunk.rows, entries, set())
        incomplete = self.unseen.make_up_for(rows, entries, all_known=False)
        for copied in (*others, *rows.values()):
            row = row_of(copied)
            slice_ = Slice(columns, self.view(row).value(columns))
            for subscription in sorted(read.open.get(slice_, ())):
                yield from self._moved(subscription, copied, self.key_of(row))
        for key, (xid, row) in incomplete.items():
            slice_ = Slice(columns, self.view(row).value(columns))
            for subscription in sorted(read.open.get(slice_, ())):
                self.list_key(key, subscription, xid)
        if chunk.end:
            for slice_, subscriptions in read.open.items():
                self._settle(slice_, subscriptions)
            del self._reads[chunk.request.number]
            return
        read.is_out = False
        read.request = replace(read.request, after=self.unseen.key_of_copied(chunk.rows[-1]))

    def _moved(self, subscription: str, copied: CopiedRow, key: Key) -> Iterator[MovedRow]:
        self.settle_key(key, subscription)
        self.progress.count(subscription)
        yield MovedRow(
            subscription, copied, key, self.wants(subscription, self.view(row_of(copied)))
        )

    # Changes

    def note(self, xid: int, change: Change | Later) -> None:
        """Note a change, or how to make some, for reads that do not see it."""
        self.unseen.note(xid, change)

    def inserted(self, new: Row) -> Change:
        """Return an INSERT as it is noted."""
        return Change(Op.MOVE if UNCHANGED in new else Op.PUT, (), new)

    def updated(self, old: Row | None, new: Row) -> Change:
        """Return an UPDATE; without an old row, no column that decides has changed, nor the key."""
        if old is None or self.key_of(old) == self.key_of(new):
            return Change(Op.SET, (), new)
        return Change(Op.MOVE, old, new)

    def deleted(self, old: Row) -> Change:
        """Return a DELETE as it is noted."""
        return Change(Op.DELETE, old, ())

    def note_truncate(self, xid: int) -> None:
        """Note a TRUNCATE."""
        self.unseen.note(xid, Change(Op.TRUNCATE, (), ()))
