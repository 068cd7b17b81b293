"""How far the loop is in the stream, and where it ends. Pure; the pipeline's own.

A position inside a commit record must never be confirmed: after a restart the server skips a
transaction whose commit record begins before the confirmed position. An endpos can lie there, and
so can the LSN at which other definitions take over; what is confirmed then is where the first
commit record after it begins, or less. What comes later in the stream does not change that.

Source: SnapBuildXactNeedsSkip, which is given the start of the commit record.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.lsn import ZERO_LSN, Lsn

__all__ = ["StreamPosition"]


@dataclass(slots=True)
class StreamPosition:
    """Position of one loop.

    Attributes:
        reached: Everything that ends at or before it has been received; it can be committed when
            nothing waits to be routed.
        endpos: No transaction that ends after it is published; None: there is no end.
        passed: Whether everything up to endpos has been received; nothing more is accepted.
        switched: Whether endpos is where other definitions take over.
        promised: Published as complete, although the watermark must not stand there.
    """

    reached: Lsn
    endpos: Lsn | None = None
    passed: bool = False
    switched: bool = False
    promised: Lsn = ZERO_LSN

    @property
    def published(self) -> Lsn:
        """Consumers may be told that everything up to it is there when nothing waits."""
        return max(self.reached, self.promised)

    def limit(self, *, copying: bool) -> Lsn | None:
        """Return where the loop ends as things are; None: it goes on.

        Args:
            copying: Tables are still to be copied, which a given endpos waits for.
        """
        return None if copying and not self.switched else self.endpos

    def advance(self, lsn: Lsn) -> None:
        """Note that everything that ends at or before `lsn` has been received."""
        self.reached = max(self.reached, lsn)

    def switch_at(self, point: Lsn) -> None:
        """Let other definitions take over at `point`, which is after all that was received."""
        if self.endpos is None or point < self.endpos:
            self.switched, self.endpos = True, point

    def end(self, next_lsn: Lsn | None = None) -> None:
        """Note that everything up to endpos has been received.

        Args:
            next_lsn: Where the first commit record after it begins; 0: not known; None: it is known
                that none begins before endpos and ends after it.
        """
        assert self.endpos is not None
        if self.passed:
            return
        self.passed, self.promised = True, self.endpos
        self.advance(self.endpos if next_lsn is None else min(self.endpos, next_lsn))
