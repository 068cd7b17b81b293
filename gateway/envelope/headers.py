"""The headers of a record: ASCII text, so that any Kafka client can read and order them."""

from __future__ import annotations

from functools import cache
from typing import Final

from gateway.core.lsn import header_lsn
from gateway.core.records import Header
from schemas.headers import HEADERS

__all__ = ["HeaderMaker"]

_NAMES: Final = list(HEADERS)
_SHARED: Final = [name for name in _NAMES if HEADERS[name].scope != "record"]
_BEFORE_SEQ: Final = _NAMES.index("seq") - 1
"""Number of the shared headers that stand after the first; all others come last."""

if ["lsn", *_SHARED[:_BEFORE_SEQ], "seq", "op", "rekey", *_SHARED[_BEFORE_SEQ:]] != _NAMES or {
    name for name in _SHARED if HEADERS[name].scope == "transaction"
} != {"commit_lsn", "xid", "origin", "gid"}:
    raise AssertionError("schemas/headers.toml declares headers that HeaderMaker does not make")

_CONSTANTS: Final[list[Header | None]] = [
    (name, HEADERS[name].value.encode()) if HEADERS[name].scope == "constant" else None
    for name in _SHARED
]
_LAST: Final = [one for one in _CONSTANTS[_BEFORE_SEQ:] if one is not None]
_COMMIT_LSN, _XID, _ORIGIN, _GID = map(_SHARED.index, ("commit_lsn", "xid", "origin", "gid"))
_OPS: Final = {op.encode(): ("op", op.encode()) for op in HEADERS["op"].values.values()}
_REKEY: Final = {
    half.encode(): ("rekey", half.encode()) for half in HEADERS["rekey"].values.values()
}
_SEQ: Final = [("seq", b"%d" % seq) for seq in range(4096)]


@cache
def _low_format(high: int) -> bytes:
    return b"%08X/%%08X" % high


class HeaderMaker:
    """Maker of the headers of the records of one transaction.

    Args:
        commit_lsn: LSN of the commit; for copied rows, the consistent point.
        xid: None for copied rows and for messages outside transactions.
        origin: Name of the replication origin, if any.
        gid: GID of a prepared transaction, or None.
    """

    __slots__ = ("_after_rekey", "_before_seq", "_high", "_low_format", "_shared")

    def __init__(
        self, commit_lsn: int, xid: int | None, origin: str | None = None, gid: str | None = None
    ) -> None:
        self._shared = shared = _CONSTANTS.copy()
        shared[_COMMIT_LSN] = ("commit_lsn", header_lsn(commit_lsn))
        if xid is not None:
            shared[_XID] = ("xid", b"%d" % xid)
        if origin is not None:
            shared[_ORIGIN] = ("origin", origin.encode())
        if gid is not None:
            shared[_GID] = ("gid", gid.encode())
        self._before_seq = list(filter(None, shared[:_BEFORE_SEQ]))
        self._after_rekey = _LAST
        if origin is not None or gid is not None:
            self._after_rekey = list(filter(None, shared[_BEFORE_SEQ:]))
        # Changes lie close to their commit: the high half is nearly always the same.
        self._high = commit_lsn >> 32
        self._low_format = _low_format(self._high)

    @property
    def shared(self) -> tuple[Header | None, ...]:
        """Headers of all records of the transaction, as declared; None where they lack one."""
        return tuple(self._shared)

    def make(self, lsn: int, seq: int, op: bytes, rekey: bytes | None = None) -> list[Header]:
        """Return a new list of headers, to be shared but not changed.

        Args:
            lsn: LSN of the change.
            seq: See docs/envelope.md.
            op: One of ``c u d t r``, ``m`` for a logical message, or a marker's kind.
            rekey: ``old`` or ``new`` on the halves of a key change.
        """
        text = self._low_format % (lsn & 0xFFFFFFFF) if lsn >> 32 == self._high else header_lsn(lsn)
        headers: list[Header] = [
            ("lsn", text),
            *self._before_seq,
            _SEQ[seq] if seq < 4096 else ("seq", b"%d" % seq),
            _OPS.get(op) or ("op", op),
        ]
        if rekey is not None:
            headers.append(_REKEY[rekey])
        if self._after_rekey:
            headers += self._after_rekey
        return headers
