"""Check that the stream continues the history that Kafka has.

Everything that ends at or before the watermark is dropped as known. On a server that was restored
from a copy of its files the WAL has passed the watermark again with other transactions; system
identifier and timeline are the same there, and those would be dropped without a word. The
watermark therefore has the last transaction that changed rows, and two things must hold for the
beginning of a stream:

1. It comes again, with its xid and its time, unless it was confirmed: a slot sends every
   transaction whose commit record begins at or after its confirmed position.
2. No other transaction that changes rows lies between it and the watermark.

A transaction in Kafka that is not in this stream violates the first, one in this stream that is not
in Kafka, although the watermark covers it, the second. One commit record at one LSN with one xid
and time identifies a history; no digest of all transactions is needed.

Source: SnapBuildXactNeedsSkip in PostgreSQL's snapbuild.c.
"""

from __future__ import annotations

from gateway.core.errors import SlotError
from gateway.core.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.core.watermark import LastCommit, Watermark
from gateway.transactions import Transaction

__all__ = ["HistoryCheck"]


class HistoryCheck:
    """Watches a stream from its beginning.

    Args:
        watermark: Watermark that Kafka has.
        confirmed_lsn: The slot's position at the stream's start; None: the slot is new.

    Attributes:
        reached_lsn: How far the stream has come and continues what Kafka has. Nothing beyond may be
            confirmed, whatever the watermark says.
    """

    __slots__ = ("_expected", "_last_lsn", "_watermark_lsn", "reached_lsn")

    def __init__(self, watermark: Watermark, confirmed_lsn: Lsn | None) -> None:
        last = watermark.last
        self._watermark_lsn = watermark.end_lsn
        self._last_lsn = ZERO_LSN if last is None else last.commit_lsn
        comes_again = (
            last is not None and confirmed_lsn is not None and last.commit_lsn >= confirmed_lsn
        )
        self._expected = last if comes_again else None
        self.reached_lsn = watermark.end_lsn if confirmed_lsn is None else confirmed_lsn

    def check(self, transaction: Transaction) -> None:
        """Check the next transaction of the stream.

        Raises:
            SlotError: the server that Kafka has changes of would send another one, or none.
        """
        if transaction.commit_lsn == self._last_lsn:
            if self._expected not in (None, _identity(transaction)):
                raise _refusal("its WAL does not have", self._expected)
            self._expected = None
        elif self._expected is not None and transaction.commit_lsn > self._expected.commit_lsn:
            raise _refusal("its WAL does not have", self._expected)
        elif (
            self._last_lsn < transaction.commit_lsn
            and transaction.end_lsn <= self._watermark_lsn
            and transaction.changes_rows
        ):
            raise _refusal("only its WAL has", _identity(transaction))
        self.reach(transaction.end_lsn)

    def begins_after(self, commit_lsn: Lsn) -> bool:
        """Whether it is enough to `reach` the ends of transactions from `commit_lsn` on."""
        return commit_lsn > max(self._watermark_lsn, self._last_lsn)

    def reach(self, lsn: Lsn) -> None:
        """Note that everything that ends at or before `lsn` has been received.

        Raises:
            SlotError: the last transaction that Kafka has should have been among it.
        """
        if self._expected is not None and lsn > self._expected.commit_lsn:
            raise _refusal("its WAL does not have", self._expected)
        self.reached_lsn = max(self.reached_lsn, lsn)


def _refusal(what: str, commit: LastCommit | None) -> SlotError:
    assert commit is not None
    return SlotError(
        f"the changes in Kafka are not from this source server: {what} transaction "
        f"{commit.xid}, which committed at {format_lsn(commit.commit_lsn)}, before the watermark",
        hint="it was restored from a backup and has diverged since. Point source.dsn at "
        "the right server; or, when this one is to stay, `pgsluice slot drop`, then `pgsluice run` "
        "copies all tables again",
    )


def _identity(transaction: Transaction) -> LastCommit:
    return LastCommit(transaction.commit_lsn, transaction.xid, transaction.commit_time)
