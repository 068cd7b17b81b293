"""Limit of the confirmed flush LSN while prepared transactions wait. Pure.

Once the LSN of a PREPARE is confirmed, PostgreSQL does not send its rows again, not even at COMMIT
PREPARED. The rows that we hold are not durable, and a durable spool of them would have to be moved
and recovered with the gateway. Nothing at or beyond the oldest PREPARE is therefore confirmed until
its COMMIT PREPARED is committed in Kafka. After a crash the slot then sends the PREPARE with its
rows again, and everything since; what Kafka has already is dropped by its ``end_lsn``. The
watermark itself goes on meanwhile.

Source: SnapBuildXactNeedsSkip in snapbuild.c (a record is decoded when it starts at or after the
confirmed position), ReorderBufferFinishPrepared in reorderbuffer.c.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.lsn import Lsn

__all__ = ["PrepareHolds"]


@dataclass(slots=True)
class _Hold:
    """`committed_end_lsn` is that of the COMMIT PREPARED, once it has come."""

    prepare_lsn: Lsn
    committed_end_lsn: Lsn | None = None


class PrepareHolds:
    """PREPAREs that must not be confirmed yet."""

    def __init__(self) -> None:
        # By xid as well: a gid can be used again before its first transaction is durable.
        self._holds: dict[tuple[str, int], _Hold] = {}

    def prepare(self, gid: str, xid: int, prepare_lsn: Lsn) -> None:
        """Hold back the position of a PREPARE."""
        self._holds[gid, xid] = _Hold(prepare_lsn)

    def commit(self, gid: str, xid: int, end_lsn: Lsn) -> None:
        """Hold back a PREPARE until `end_lsn`, that of its COMMIT PREPARED, is durable."""
        if (hold := self._holds.get((gid, xid))) is not None:
            hold.committed_end_lsn = end_lsn

    def roll_back(self, gid: str, xid: int) -> None:
        """Release a PREPARE: nothing of it will be published."""
        self._holds.pop((gid, xid), None)

    def flush_lsn(self, durable: Lsn) -> Lsn:
        """Return the LSN that may be confirmed when everything until `durable` is in Kafka."""
        for key, hold in list(self._holds.items()):
            if hold.committed_end_lsn is not None and hold.committed_end_lsn <= durable:
                del self._holds[key]
        return min([durable, *(hold.prepare_lsn for hold in self._holds.values())])
