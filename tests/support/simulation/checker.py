"""The contract, checked at each commit in Kafka and at each confirmation to PostgreSQL.

It is that of docs/delivery.md: each change that was committed is in Kafka once, in the order of
commits, whole transactions in one Kafka transaction; the watermark and PROGRESS are true; nothing
is confirmed to PostgreSQL that is not in Kafka. It knows the WAL, and nothing of the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.core.records import Batch
from tests.support.simulation.server import Server
from tests.support.simulation.wal import Commit, Item, Prepare, RollBack

__all__ = ["Checker", "ContractViolation"]


class ContractViolation(AssertionError):
    """The gateway has broken its contract."""


class Checker:
    """Watches one schedule.

    Attributes:
        published: Items in Kafka, in their order.
        diverged: Whether Kafka has something that the server, restored, no longer has.
        since: LSN from which on the stream has everything: the slot's consistent point.
    """

    def __init__(self) -> None:
        self.server: Server | None = None
        self.published: list[Item] = []
        self.watermark = 0
        self.since: int | None = None
        self.diverged = False
        self._unseen: list[tuple[int, int]] = []

    def committed(self, batches: Sequence[Batch]) -> None:
        """Check a Kafka transaction as it becomes visible."""
        last = batches[-1].watermark
        assert last is not None
        items = _items([record[3] or b"" for batch in batches for record in batch.records])
        if last.end_lsn == 0:
            _require(not items, "records were committed with a claim")
            _require(self.watermark == 0, "a slot was claimed again that has been streamed from")
            self.since, self.published = None, []
            return
        self._look_for_divergence()
        if self.diverged:
            # PROGRESS of what was published before may come again.
            says_nothing = not items and last.end_lsn == self.watermark
            _require(says_nothing, "published what a server with another history sends")
            return
        if self.since is None:
            self.since = int(last.end_lsn)
        self.published += items
        _require(last.end_lsn >= self.watermark, "the watermark went back")
        self.watermark = int(last.end_lsn)
        self._compare("watermark", self.watermark)
        cut = batches[-1].cut
        if cut is not None:
            self._compare("PROGRESS", int(cut.end_lsn))

    def confirmed(self, flush_lsn: int) -> None:
        """Check a position that PostgreSQL need not send again."""
        _require(flush_lsn <= self.watermark or flush_lsn == self._since, "confirmed too much")
        assert self.server is not None
        if self.diverged:
            return  # such a server is refused, wherever its slot is
        resolved = set(self.published)
        open_prepares: dict[object, Prepare] = {}
        for record in self.server.wal.records:
            if isinstance(record, Prepare) and record.lsn >= self._since:
                open_prepares[record.transaction] = record
            elif isinstance(record, Commit | RollBack):
                prepare = open_prepares.pop(record.transaction, None)
                if isinstance(record, Commit) and prepare is not None and prepare.lsn < flush_lsn:
                    values = tuple(row.value for row in record.transaction.rows)
                    item = ("COMMIT", record.transaction.xid, values)
                    _require(
                        not values or item in resolved,
                        f"confirmed {flush_lsn}, past a PREPARE whose rows are not in Kafka",
                    )
        for prepare in open_prepares.values():
            _require(prepare.lsn >= flush_lsn, f"confirmed {flush_lsn}, past an open PREPARE")

    def restored(self) -> None:
        """Compare Kafka with a server that was restored.

        A history is told from another one by its transactions that change rows. Markers of PREPARE
        and messages between the backup and the watermark may be those of the other history.
        """
        if self.since is None:
            return
        assert self.server is not None
        backup_end = self.server.wal.end
        now = [item for _, _, item in self._expected()]
        rows = [item for item in self.published if item[0] == "COMMIT"]
        known = [item for item in now if item[0] == "COMMIT"]
        self.diverged |= rows != known[: len(rows)]
        if backup_end < self.watermark:
            self._unseen.append((backup_end, self.watermark))
            kept = set(now)
            self.published = [i for i in self.published if i[0] == "COMMIT" or i in kept]

    def _look_for_divergence(self) -> None:
        """Notice transactions of a restored server below the watermark, which would be dropped."""
        if self._unseen:
            below = [i for _, end, i in self._expected() if end <= self.watermark]
            rows = [item for item in self.published if item[0] == "COMMIT"]
            self.diverged |= rows != [item for item in below if item[0] == "COMMIT"]

    def is_complete(self) -> bool:
        """Whether everything that the WAL has is in Kafka."""
        return self.published == [item for _, _, item in self._expected()]

    def _expected(self) -> Iterator[tuple[int, int, Item]]:
        assert self.server is not None
        for begin, end, item in self.server.wal.items(self._since):
            unseen = any(first <= begin and end <= last for first, last in self._unseen)
            if item[0] == "COMMIT" or not unseen:
                yield begin, end, item

    @property
    def _since(self) -> int:
        return 0 if self.since is None else self.since

    def _compare(self, what: str, position: int) -> None:
        """Kafka has what ends at or before `position`, and nothing else."""
        expected = [item for _, end, item in self._expected() if end <= position]
        if self.published == expected:
            return
        at = next(
            (
                n
                for n, pair in enumerate(zip(self.published, expected, strict=False))
                if pair[0] != pair[1]
            ),
            min(len(self.published), len(expected)),
        )
        raise ContractViolation(
            f"{what} {position}: item {at} in Kafka is "
            f"{self.published[at : at + 2] or 'missing'}, the WAL has {expected[at : at + 2]}"
        )


def _items(values: Sequence[bytes]) -> list[Item]:
    """Read the records of a Kafka transaction; every transaction in it must be whole."""
    items: list[Item] = []
    rows: list[tuple[int, int]] = []
    for value in values:
        kind, *fields = value.split()
        numbers = [int(field) for field in fields]
        if kind == b"ROW":
            rows.append((numbers[0], numbers[1]))
        elif kind == b"END":
            _require(all(xid == numbers[0] for xid, _ in rows), "transactions are mixed")
            items.append(("COMMIT", numbers[0], tuple(value for _, value in rows)))
            rows = []
        else:
            _require(not rows, "something stands inside a transaction")
            items.append((kind.decode(), numbers[0], ()))
    _require(not rows, "half of a transaction was committed")
    return items


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ContractViolation(otherwise)
