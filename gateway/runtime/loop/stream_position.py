"""Position of the loop in the stream, and its end. Pure; owned by the pipeline.

A position inside a commit record must never be confirmed: after a restart the server skips a
transaction whose commit record begins before the confirmed position. An endpos can lie there, and
so can the LSN at which other definitions take over; what is confirmed then is where the first
commit record after it begins, or less. Later parts of the stream do not change that.

Source: SnapBuildXactNeedsSkip, which is given the start of the commit record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.core.lsn import ZERO_LSN, Lsn

__all__ = ["NEVER", "Ends", "StreamPosition"]


@dataclass(frozen=True, slots=True)
class Ends:
    """When a loop ends, as it is run.

    Attributes:
        endpos: Every transaction with ``end_lsn`` <= this is published and none after; then it
            ends. None: nowhere.
        stopping: Called once per turn; on True the loop commits what is complete, and ends.
        time_is_up: Called once per turn; on True the loop ends at once.
    """

    endpos: Lsn | None = None
    stopping: Callable[[], bool] = lambda: False
    time_is_up: Callable[[], bool] = lambda: False


NEVER: Final = Ends()


@dataclass(slots=True)
class StreamPosition:
    """Position of one loop.

    Attributes:
        reached: LSN until which everything has been received; it can be committed when nothing
            waits to be routed.
        endpos: LSN after whose transactions the loop ends, or None.
        passed: Whether everything until endpos has been received; nothing more is accepted.
        switched: Whether other definitions come into force at endpos.
        promised: LSN that is published as complete, although the watermark must not stand there.
    """

    reached: Lsn
    endpos: Lsn | None = None
    passed: bool = False
    switched: bool = False
    promised: Lsn = ZERO_LSN

    @property
    def published(self) -> Lsn:
        """LSN that may be reported to consumers as complete when nothing waits."""
        return max(self.reached, self.promised)

    def limit(self, *, copying: bool) -> Lsn | None:
        """Return the LSN at which the loop ends if nothing changes, or None.

        Args:
            copying: Whether tables are still to be copied, for which a given endpos waits.
        """
        return None if copying and not self.switched else self.endpos

    def advance(self, lsn: Lsn) -> None:
        """Note that everything that ends at or before `lsn` has been received."""
        self.reached = max(self.reached, lsn)

    def switch_at(self, point: Lsn) -> None:
        """Let other definitions come into force at `point`, which is after everything received."""
        if self.endpos is None or point < self.endpos:
            self.switched, self.endpos = True, point

    def end(self, next_lsn: Lsn | None = None) -> None:
        """Note that everything until endpos has been received.

        Args:
            next_lsn: Beginning of the first commit record after it; 0 if not known; None if none
                begins before endpos and ends after it.
        """
        assert self.endpos is not None
        if self.passed:
            return
        self.passed, self.promised = True, self.endpos
        self.advance(self.endpos if next_lsn is None else min(self.endpos, next_lsn))
