"""The chunked copy against a model of server, gateway and consumer.

The server runs transactions that become visible to snapshots only some time after their commit
record, and in another order; the gateway publishes, reads and places chunks, commits, and is killed
between commits; the consumer follows the topic's contract. What runs is `gateway.copy`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.copy import Chunk, ChunkedCopy, ChunkRequest, Claim, CopiedRow, Front, Progress, row_of
from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.rowfilter import Action, decide_update, fill_unchanged
from tests.support.models.copy import Op, Row, Server, apply, line, number

STEPS = (
    "begin",
    "commit",
    "commit",
    "appear",
    "publish",
    "publish",
    "claim",
    "read",
    "lose",
    "place",
    "flush",
    "die",
)


def everything(row: Row) -> bool:
    return True


def not_by_three(row: Row) -> bool:
    return number(row) % 3 != 0


def value_not_by_three(row: Row) -> bool:
    assert isinstance(row[1], bytes)
    return int(row[1]) % 3 != 0


def sent(op: Op, union: Callable[[Row], bool]) -> Op | None:
    """What the walsender makes of a change where `union` is pushed down: pgoutput_row_filter."""
    kind, old, new = op
    if kind in ("i", "d"):
        row = new or old
        return op if row is not None and union(row) else None
    if kind == "t" or new is None:
        return op
    if old is None:
        return op if union(new) else None
    row = tuple(fill_unchanged(old, new))
    match union(old), union(row):
        case True, True:
            return op
        case True, False:
            return ("d", old, None)
        case False, True:
            return ("i", None, row)
    return None


@dataclass
class Consumer:
    """Follows the topic: `rows` is all there is to it."""

    rows: dict[int, Row] = field(default_factory=dict)

    def take(self, op: Op, passes: Callable[[Row], bool]) -> None:
        kind, old, new = op
        if kind == "t":
            self.rows.clear()
        elif kind == "i":
            assert new is not None
            if passes(new):
                self.rows[number(new)] = new
        elif kind == "d":
            assert old is not None
            if passes(old):
                self.rows.pop(number(old), None)
        else:
            assert new is not None
            sent = new if old is None else tuple(fill_unchanged(old, new))
            match decide_update(lambda row: passes(tuple(row)), old, new):
                case Action.UPDATE:
                    row = self.rows.pop(number(old or new), None)
                    if row is not None:
                        self.rows[number(new)] = tuple(fill_unchanged(row, sent))
                case Action.INSERT:
                    self.rows[number(new)] = sent
                case Action.DELETE:
                    assert old is not None
                    self.rows.pop(number(old), None)
                case None:
                    pass


class Gateway:
    """Publishes and copies; what was not flushed is lost when it dies.

    Where it is `narrowed`, it reads of a range only what passes.
    """

    def __init__(
        self,
        server: Server,
        random: Random,
        passes: Callable[[Row], bool],
        copy: type[ChunkedCopy],
        narrowed: bool,
        union: Callable[[Row], bool] | None,
    ) -> None:
        self.server, self.random, self.passes, self.union = server, random, passes, union
        self.narrowed = narrowed
        self.lacking: set[int] = set()  # keys whose values a native subscriber would lack as well
        self.make = copy
        self.size = random.randint(1, 4)
        self.consumer = Consumer()
        self.published = 0
        self.committed: tuple[int, dict[int, Row], Progress] = (0, {}, Progress())
        self.start(Progress())

    def start(self, progress: Progress) -> None:
        self.copy = self.make([0], progress)
        self.front = Front(self.copy.request())
        self.reading: list[Claim] = []
        self.sure = self.server.next_xid  # all before have ended before the first chunk is read

    def die(self) -> None:
        self.published, rows, progress = self.committed
        self.consumer.rows = dict(rows)
        self.start(progress)

    def flush(self) -> None:
        self.committed = self.published, dict(self.consumer.rows), self.copy.progress

    def publish(self) -> None:
        if self.published == len(self.server.log):
            return
        transaction = self.server.log[self.published]
        xid = transaction.xid & 0xFFFFFFFF
        for change in transaction.ops:
            op = change if self.union is None else sent(change, self.union)
            if op is not None:
                self.note_lacking(op)
                self.consumer.take(op, self.passes)
                self.show(xid, op)
        self.published += 1
        self.judge()

    def note_lacking(self, op: Op) -> None:
        kind, old, new = op
        if new is None:
            return
        unsent = UNCHANGED in (new if old is None else fill_unchanged(old, new))
        entered = kind == "i" or (old is not None and not self.passes(old))
        if (unsent and entered and self.copy.progress.complete) or (
            old is not None and number(old) in self.lacking
        ):
            self.lacking.add(number(new))

    def show(self, xid: int, op: Op) -> None:
        kind, old, new = op
        if kind == "t":
            self.copy.truncate(xid)
        elif kind == "i" and new is not None:
            self.copy.insert(xid, new)
        elif kind == "d" and old is not None:
            self.copy.delete(xid, old)
        elif new is not None:
            self.copy.update(xid, old, new if old is None else fill_unchanged(old, new))

    def claim(self) -> None:
        """Claim a range; often with its end, so that there can be others beside it."""
        snapshot, state = self.server.snapshot()
        if self.front.outstanding > 2 or self.copy.progress.ready or snapshot.xmin < self.sure:
            return
        if (claim := self.front.claim()) is None:
            return
        self.reading.append(claim)
        if claim.request.ranged and self.random.random() < 0.7:
            after = -1 if claim.request.after is None else int(claim.request.after[0])
            if border := sorted(key for key in state if key > after)[: self.size][-1:]:
                claim.request = replace(claim.request, last=(b"%d" % border[0],))
                self.front.settle(claim, claim.request.last, end=False)

    def read(self) -> None:
        """Read any of the ranges that are claimed."""
        if not self.reading:
            self.claim()
        if not self.reading:
            return
        claim = self.reading.pop(self.random.randrange(len(self.reading)))
        request = claim.request
        snapshot, state = self.server.snapshot()
        again = {int(key[0]) for key in request.again}
        after = -1 if request.after is None else int(request.after[0])
        behind = sorted(key for key in state if key > after) if request.ranged else []
        ranged = behind[: self.size]
        if request.last is not None:
            ranged = [key for key in behind if key <= int(request.last[0])]
        wanted = [key for key in ranged if not self.narrowed or self.passes(state[key])]
        chunk = Chunk(
            request,
            [line(state[key]) for key in [*wanted, *sorted(again & state.keys())]],
            snapshot,
            Lsn(self.server.insert_lsn),
            request.last or ((b"%d" % ranged[-1],) if ranged else None),
            request.last is None and len(behind) < self.size,
            len(wanted),
            len(ranged) - len(wanted),
            by_key=not (self.narrowed and request.ranged),
        )
        self.front.read(claim, chunk)

    def lose(self) -> None:
        """Lose a connection: another claims what was to be read by it."""
        if self.reading and not self.reading[-1].settled:
            self.front.release(self.reading.pop())

    def place(self) -> None:
        chunk = self.front.due
        if chunk is None or self.published + 1 < chunk.insert_lsn // 10:
            return
        if not self.copy.started:
            self.consumer.rows.clear()
        parts = chunk.split(self.random.randint(1, 4), [0])
        if parts is not None:
            chunk, rest = parts
            self.front.keep_rest(rest)
        for row in map(row_of, self.copy.place(chunk)):
            assert UNCHANGED not in row
            if self.passes(tuple(row)):
                self.consumer.rows[number(tuple(row))] = tuple(row)
        self.front.go_on(self.copy.request(), whole=parts is None)
        if (floor := self.front.floor(chunk.snapshot)) is not None:
            self.copy.forget(floor)
        self.judge()

    def judge(self) -> None:
        """Where the copy is ready, the consumer has the source's rows, filtered."""
        if not self.copy.progress.ready:
            return
        state = dict(self.server.base)
        for transaction in self.server.log[: self.published]:
            apply(state, transaction)
        wanted = {key: row for key, row in state.items() if self.passes(row)}
        for key in self.lacking & self.consumer.rows.keys() & wanted.keys():
            pairs = zip(self.consumer.rows[key], wanted[key], strict=True)
            wanted[key] = tuple(a if a is UNCHANGED else b for a, b in pairs)
        assert self.consumer.rows == wanted


def run(
    random: Random,
    steps: list[str],
    *,
    full: bool,
    passes: Callable[[Row], bool],
    copy: type[ChunkedCopy] = ChunkedCopy,
    narrowed: bool = False,
    union: Callable[[Row], bool] | None = None,
) -> None:
    server = Server(random, full=full)
    gateway = Gateway(server, random, passes, copy, narrowed, union)
    for step in steps:
        getattr(server if step in ("begin", "commit", "appear") else gateway, step)()
    while server.running or server.hidden:
        server.commit()
        server.appear()
    for _ in range(10 * server.keys):  # it must come to an end
        for step in ("read", "publish", "place"):
            getattr(gateway, step)()
    while gateway.published < len(server.log):
        gateway.publish()
    gateway.place()
    for _ in range(10 * server.keys):
        gateway.read()
        gateway.place()
    assert gateway.copy.progress.ready
    gateway.judge()


many_steps = st.lists(st.sampled_from(STEPS), max_size=120)


@given(st.randoms(use_true_random=False), many_steps)
def test_a_copied_table_is_the_source_at_every_position_from_ready_on(
    random: Random, steps: list[str]
) -> None:
    run(random, steps, full=False, passes=everything)


@given(st.randoms(use_true_random=False), many_steps)
def test_a_copied_table_is_the_source_filtered_at_every_position_from_ready_on(
    random: Random, steps: list[str]
) -> None:
    run(random, steps, full=True, passes=not_by_three)


@given(st.randoms(use_true_random=False), many_steps)
def test_a_copy_that_reads_only_what_passes_a_filter_on_any_column_is_as_exact(
    random: Random, steps: list[str]
) -> None:
    run(random, steps, full=True, passes=value_not_by_three, narrowed=True)


@given(st.randoms(use_true_random=False), many_steps, st.booleans(), st.booleans())
def test_a_table_is_the_same_when_the_server_leaves_out_what_nobody_takes(
    random: Random, steps: list[str], full: bool, narrowed: bool
) -> None:
    """By the key, and under REPLICA IDENTITY FULL by any column; the subscription takes less."""
    union = value_not_by_three if full else not_by_three
    run(
        random,
        steps,
        full=full,
        passes=lambda row: union(row) and number(row) % 2 == 0,
        narrowed=narrowed,
        union=union,
    )


class TakesWhatLacksValues(ChunkedCopy):
    """Believes that an INSERT has all values."""

    def insert(self, xid: int, new: Sequence[ColumnValue]) -> None:
        super().insert(xid, [b"" if value is UNCHANGED else value for value in new])


class WithoutTheList(ChunkedCopy):
    """Reads no key again."""

    @property
    def progress(self) -> Progress:
        self._again.clear()
        return super().progress


class WithoutMakingUp(ChunkedCopy):
    """Publishes rows as they were read."""

    def _note(self, *_: object) -> None:
        pass


class ForgetsAtPublishing(ChunkedCopy):
    """Makes up only for what is published while the chunk is read."""

    def request(self) -> ChunkRequest:
        self._unseen.clear()
        return super().request()


class TrustsTheKey(ChunkedCopy):
    """Believes that a row which was left out stays unwanted as long as it keeps its key."""

    def place(self, chunk: Chunk) -> Iterable[CopiedRow]:
        return super().place(replace(chunk, by_key=True))


@pytest.mark.parametrize("broken", [WithoutTheList, WithoutMakingUp, ForgetsAtPublishing])
def test_the_model_notices_when_a_part_of_the_procedure_is_left_out(
    broken: type[ChunkedCopy],
) -> None:
    assert notices(broken, full=False, passes=everything, narrowed=False)


def test_the_model_notices_when_changes_of_rows_that_were_left_out_are_ignored() -> None:
    assert notices(TrustsTheKey, full=True, passes=value_not_by_three, narrowed=True)


def notices(
    broken: type[ChunkedCopy],
    *,
    full: bool,
    passes: Callable[[Row], bool],
    narrowed: bool,
    union: Callable[[Row], bool] | None = None,
) -> bool:
    def fails(seed: int) -> bool:
        random = Random(seed)
        steps = random.choices(STEPS, k=100)
        try:
            run(
                random, steps, full=full, passes=passes, copy=broken, narrowed=narrowed, union=union
            )
        except AssertionError:
            return True
        return False

    return any(fails(seed) for seed in range(2000))


def test_the_model_notices_when_values_that_were_not_sent_are_not_read() -> None:
    keyed = not_by_three
    assert notices(TakesWhatLacksValues, full=False, passes=keyed, narrowed=False, union=keyed)
