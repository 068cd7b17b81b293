"""The headers of a record: ASCII text, so that any Kafka client can read and order them."""

from __future__ import annotations

from functools import cache
from typing import Final

from gateway.core.lsn import header_lsn
from gateway.core.records import Header

__all__ = ["HeaderMaker"]

_OPS: Final = {op: ("op", op) for op in (b"c", b"u", b"d", b"t", b"r", b"m")}
_REKEY: Final = {half: ("rekey", half) for half in (b"old", b"new")}
_SEQ: Final = [("seq", b"%d" % seq) for seq in range(4096)]


@cache
def _low_format(high: int) -> bytes:
    return b"%08X/%%08X" % high


class HeaderMaker:
    """Makes the headers of the records of one transaction.

    Args:
        commit_lsn: Of the transaction; of a snapshot record, its consistent point.
        xid: None for snapshot records and for messages outside transactions.
        origin: Name of the replication origin, if any.
        gid: Of a prepared transaction, if it was one.
    """

    __slots__ = ("_commit", "_extra", "_high", "_low_format", "_xid")

    def __init__(
        self, commit_lsn: int, xid: int | None, origin: str | None = None, gid: str | None = None
    ) -> None:
        self._commit: Header = ("commit_lsn", header_lsn(commit_lsn))
        self._xid: Header | None = None if xid is None else ("xid", b"%d" % xid)
        extra: list[Header] = []
        if origin is not None:
            extra.append(("origin", origin.encode()))
        if gid is not None:
            extra.append(("gid", gid.encode()))
        self._extra = extra
        # Changes lie close to their commit: the high half is nearly always the same.
        self._high = commit_lsn >> 32
        self._low_format = _low_format(self._high)

    @property
    def shared(self) -> tuple[Header, Header | None, tuple[Header, ...]]:
        """``commit_lsn``, ``xid``, and what comes last: the same in every record."""
        return self._commit, self._xid, tuple(self._extra)

    def make(self, lsn: int, seq: int, op: bytes, rekey: bytes | None = None) -> list[Header]:
        """Return a new list of headers, to be shared but not changed.

        Args:
            lsn: Of the change.
            seq: See docs/envelope.md.
            op: One of ``c u d t r``, ``m`` for a logical message, or a marker's kind.
            rekey: ``old`` or ``new`` on the halves of a key change.
        """
        text = self._low_format % (lsn & 0xFFFFFFFF) if lsn >> 32 == self._high else header_lsn(lsn)
        headers: list[Header] = [("lsn", text), self._commit]
        if self._xid is not None:
            headers.append(self._xid)
        headers.append(_SEQ[seq] if seq < 4096 else ("seq", b"%d" % seq))
        headers.append(_OPS.get(op) or ("op", op))
        if rekey is not None:
            headers.append(_REKEY[rekey])
        if self._extra:
            headers += self._extra
        return headers
