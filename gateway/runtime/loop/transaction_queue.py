"""What has come and is not routed yet: whole transactions and the like, in order, up to endpos.

It decides what is taken at all: nothing that Kafka has already, nothing that ends behind endpos,
nor behind the point at which other definitions take over.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.runtime.loop.group_commit import GroupCommit
from gateway.runtime.loop.history_check import Continuity
from gateway.runtime.loop.receiver import Intake
from gateway.runtime.ports import Copier, Switch, TransactionRouter
from gateway.transactions import (
    Assembler,
    KeepaliveEvent,
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)
from gateway.transactions.holds import PrepareHolds

__all__ = ["Arrivals"]

_Item: TypeAlias = Transaction | StandaloneMessage | PreparedTransaction | RolledBack
_Waiting: TypeAlias = _Item | Series


class Arrivals:
    """The queue between receiving and routing.

    Args:
        intake: Its requests for an answer are met.
        started_at: What ends at or before it is in Kafka.
        endpos: As in `gateway.runtime.loop.pipeline.Pipeline`.

    Attributes:
        memory: Bytes that wait.
        heard: Everything that commits before it has been received.
        passed: Everything up to endpos is here; nothing more is taken.
        switched: Endpos is where other definitions take over.
    """

    def __init__(
        self,
        intake: Intake,
        assembler: Assembler,
        router: TransactionRouter,
        commits: GroupCommit,
        continuity: Continuity,
        started_at: Lsn,
        endpos: Lsn | None,
    ) -> None:
        self._intake = intake
        self._assembler = assembler
        self._router = router
        self._commits = commits
        self._continuity = continuity
        self._started_at = started_at
        self._endpos = endpos
        self._copier: Copier | None = None
        self._switch: Switch | None = None
        self._holds = PrepareHolds()
        self._waiting: deque[_Waiting] = deque()
        self.memory = 0
        self.heard = started_at
        self.passed = False
        self.switched = False

    def begin(self, copier: Copier | None, switch: Switch | None) -> None:
        """Go on with other ones: see `gateway.runtime.loop.pipeline.Pipeline`."""
        self._copier, self._switch = copier, switch

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return sum(len(item) if isinstance(item, Series) else 1 for item in self._waiting)

    @property
    def series(self) -> Series | None:
        """Short transactions that are next; `settle` tells that some of them were taken."""
        item = self._waiting[0] if self._waiting else None
        return item if isinstance(item, Series) else None

    def settle(self, series: Series) -> None:
        """Forget what is next when nothing of it is left."""
        if not series:
            self._waiting.popleft()
            self.memory -= series.memory

    def pop(self) -> _Item:
        """Take out what is to be routed next."""
        item = self._waiting[0]
        if isinstance(item, Series):
            transaction = item.pop()
            self.settle(item)
            return transaction
        self._waiting.popleft()
        if isinstance(item, Transaction):
            self.memory -= item.memory
        return item

    @property
    def upto(self) -> Lsn:
        """Everything that commits before it has been taken out, or is not there."""
        return _position_of(self._waiting[0]) if self._waiting else self.heard

    @property
    def oldest(self) -> int | None:
        """When the first transaction that waits was, at the source."""
        waiting = (item for item in self._waiting if isinstance(item, Transaction | Series))
        return next((item.commit_time for item in waiting), None)

    def held(self) -> bool:
        """Whether receiving must wait until the switch has chosen its point; take it over then."""
        if self._switch is None or self.switched:
            return False
        point = self._switch.point()
        if point is None:
            return self._switch.holds()
        # What is here already was received before the point was chosen, so it ends before it.
        if self._endpos is None or point < self._endpos:
            self.switched, self._endpos = True, point
        return False

    def take(self, event: _Waiting | KeepaliveEvent) -> None:
        """Take what the assembler has made."""
        match event:
            case Transaction():
                self._take_transaction(event)
            case Series():
                self._take_series(event)
            case KeepaliveEvent():
                self._take_keepalive(event)
            case StandaloneMessage():
                # It can come again after a restart, like a transaction; it has no end_lsn, and
                # the byte behind its position serves as one.
                if event.message.lsn + 1 > self._started_at:
                    self._waiting.append(event)
            case PreparedTransaction():
                self._holds.prepare(event.gid, event.xid, event.prepare_lsn)
                self._take_mark(event)
            case RolledBack():
                self._holds.roll_back(event.gid, event.xid)
                self._take_mark(event)

    def _take_mark(self, mark: PreparedTransaction | RolledBack) -> None:
        """Queue what only a marker tells of; it has its place in the order like a transaction."""
        if self._is_beyond_endpos(mark.end_lsn):
            self._pass_endpos(ZERO_LSN)  # where its record begins is not told
        if self.passed:
            return
        if mark.end_lsn > self._started_at:
            self._waiting.append(mark)
            if isinstance(mark, PreparedTransaction):
                self._router.foresee(mark)
        elif isinstance(mark, PreparedTransaction):
            self._router.learn(mark)

    def _is_beyond_endpos(self, end_lsn: Lsn) -> bool:
        return self._endpos is not None and end_lsn > self._endpos and not self._is_copying()

    def _is_copying(self) -> bool:
        """Whether tables have to be copied before the loop may end at endpos."""
        return self._copier is not None and not self.switched and self._copier.unfinished

    def pass_reached_endpos(self) -> None:
        """End the loop at endpos also when it was reached while tables were copied."""
        if self._endpos is None or self.passed or self._is_copying():
            return
        beyond = [each for each in self._waiting if _end_of(each) > self._endpos]
        if beyond or self._commits.position >= self._endpos:
            self._pass_endpos(ZERO_LSN)
        for item in beyond:
            self._waiting.remove(item)
            if isinstance(item, Transaction):
                self.memory -= item.memory
                item.release()
            elif isinstance(item, Series):
                self.memory -= item.memory

    def _pass_endpos(self, next_lsn: Lsn | None = None) -> None:
        """Note that everything up to endpos is here; `next_lsn` is where the next commit begins.

        A position inside a commit record must never be confirmed: after a restart the server
        skips a transaction whose commit record begins before the confirmed position.

        Source: SnapBuildXactNeedsSkip, which is given the start of the commit record.
        """
        assert self._endpos is not None
        self.passed = True
        self._commits.promised = self._endpos
        position = self._endpos if next_lsn is None else min(self._endpos, next_lsn)
        self._commits.position = max(self._commits.position, position)

    def _take_transaction(self, transaction: Transaction) -> None:
        self._continuity.take(transaction)
        self.heard = max(self.heard, transaction.end_lsn)
        if transaction.gid is not None:
            self._holds.commit(transaction.gid, transaction.xid, transaction.end_lsn)
        if self._is_beyond_endpos(transaction.end_lsn):
            self._pass_endpos(transaction.commit_lsn)
        if self.passed:
            transaction.release()
            return
        if transaction.end_lsn <= self._started_at:
            # Sent again by the slot after a restart. The server will not announce its relations
            # once more, so that they have to be learnt from it.
            self._router.learn(transaction)
            transaction.release()
            return
        self._waiting.append(transaction)
        self.memory += transaction.memory
        self._router.foresee(transaction)

    def _take_series(self, series: Series) -> None:
        """Take short transactions as they are, where none of them needs a decision of its own."""
        commit_lsn = series.commit_lsn
        if (
            self.passed
            or (self._endpos is not None and series.end_lsn > self._endpos)
            or commit_lsn <= self._started_at
            or not self._continuity.begins_behind(commit_lsn)
        ):
            while series:
                self._take_transaction(series.pop())
            return
        self._continuity.reach(series.end_lsn)
        self.heard = max(self.heard, series.end_lsn)
        self._waiting.append(series)
        self.memory += series.memory

    def _take_keepalive(self, keepalive: KeepaliveEvent) -> None:
        wal_end = keepalive.wal_end
        self._continuity.reach(wal_end)
        self.heard = max(self.heard, wal_end)
        if not self._assembler.has_open_transactions and not self.passed:
            if self._is_beyond_endpos(Lsn(wal_end + 1)):
                self._pass_endpos()
            else:
                self._commits.position = max(self._commits.position, wal_end)
        if keepalive.reply_requested:
            self._intake.answer(wal_end, self.flush_lsn())

    def awaits_endpos(self) -> bool:
        """Whether the server is to be asked often how far it is."""
        return self._endpos is not None and not self.passed and not self._is_copying()

    def flush_lsn(self) -> Lsn:
        """What is safe in Kafka, as far as this server has sent it."""
        flush_lsn = self._holds.flush_lsn(self._commits.durable.end_lsn)
        return min(flush_lsn, self._continuity.reached_lsn)


def _position_of(item: _Waiting) -> Lsn:
    """Everything that commits before it stands before `item` in the stream."""
    match item:
        case Transaction() | Series():
            return item.commit_lsn
        case StandaloneMessage():
            return item.message.lsn
        case PreparedTransaction():
            return item.prepare_lsn
        case RolledBack():
            return item.prepare_end_lsn


def _end_of(item: _Waiting) -> Lsn:
    return Lsn(item.message.lsn + 1) if isinstance(item, StandaloneMessage) else item.end_lsn
