"""Copies that begin again while the copier goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from gateway.definitions.model import TableCopy, TableId
from gateway.runtime.copy.jobs import CopyJob
from gateway.runtime.copy.pauses import Pauses

__all__ = ["CopiesAgain"]

_Copies: TypeAlias = dict[TableId, TableCopy]


class CopiesAgain:
    """Tables that are copied again, each after a pause of its own, and the jobs that end for it.

    Their owner can make that necessary in a loop, and no other table waits for such a pause.

    Args:
        first_s: Shortest pause, in seconds.
    """

    def __init__(self, first_s: float) -> None:
        self._pauses = Pauses(first_s)
        self._waiting: _Copies = {}
        self._ending: list[CopyJob] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, copies: Iterable[TableCopy], jobs: Iterable[CopyJob]) -> _Copies:
        """Let copies begin again, and those of `jobs` end that read for any of them.

        Returns:
            The copies.
        """
        added = {(copy.subscription, copy.target_oid): copy for copy in copies}
        self._waiting.update(added)
        for job in jobs:
            if not (job.over or job in self._ending) and any(map(self.awaits, job.copies)):
                self._ending.append(job)
        return added

    def awaits(self, copy: TableCopy) -> bool:
        """Whether a copy is to begin again, whatever a job has of it."""
        return (copy.subscription, copy.target_oid) in self._waiting

    def is_ending(self, job: CopyJob) -> bool:
        """Whether a job is to end, and `pop_ending` has not returned it."""
        return job in self._ending

    def pop_ending(self) -> list[CopyJob]:
        """Return the jobs that end; their other copies have to be shown all changes, and go on."""
        ending, self._ending = self._ending, []
        return ending

    def pop_due(self, held: Collection[TableId]) -> list[TableCopy]:
        """Return the copies whose pause is over, and begin the next pause of each.

        Args:
            held: Tables that do not begin now.
        """
        due = [each for each in sorted(self._waiting) if each not in held]
        due = list(filter(self._pauses.is_over, due))
        for table_id in due:
            self._pauses.begin(table_id)
        return list(map(self._waiting.pop, due))
