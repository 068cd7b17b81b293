import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.core.errors import FatalError
from gateway.pgoutput.messages import Insert, StreamStart, StreamStop
from gateway.transactions import Assembler, Transaction
from gateway.transactions.spool import CHUNK_BYTES, CHUNK_FRAMES, Spool, SpoolFullError
from tests.support.models.pgoutput_encode import xlogdata
from tests.support.models.stream import begin, commit, frames_of, insert, stream_commit

STOP = xlogdata(StreamStop())


def wide(size: int, *, xid: int | None = None) -> bytes:
    return xlogdata(Insert(1, (b"x" * size,), xid))


def spooled_bytes(folder: Path) -> int:
    """Bytes of this process's open files of a folder that have no name any more."""
    sizes = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            status, was = link.stat(), str(link.readlink())
        except OSError:
            continue
        if status.st_nlink == 0 and was.startswith(f"{folder}/"):
            sizes.append(status.st_size)
    return sum(sizes)


@pytest.mark.parametrize("bound", [0, 1, 1000, 50_000, 10_000_000])
def test_spooling_changes_nothing(bound: int, tmp_path: Path) -> None:
    rows = [insert(i) for i in range(2500)]
    assembler = Assembler(max_buffer_bytes=bound, spool_directory=tmp_path)

    (transaction,) = assembler.push([begin(7, 100), *rows, commit(7, 100)])

    assert isinstance(transaction, Transaction)
    assert transaction.message_count == 2500
    assert transaction.byte_size == sum(map(len, rows))
    assert frames_of(transaction) == rows


def test_chunks_are_bounded_by_frames_on_disk_and_in_memory(tmp_path: Path) -> None:
    assembler = Assembler(max_buffer_bytes=200_000, spool_directory=tmp_path)
    rows = [insert(1)] * 6000

    (transaction,) = assembler.push([begin(7, 100), *rows, commit(7, 100)])

    assert isinstance(transaction, Transaction)
    sizes = [len(chunk) for chunk in transaction.frames()]
    transaction.release()
    assert sum(sizes) == 6000
    assert max(sizes) == CHUNK_FRAMES


@pytest.mark.parametrize("bound", [0, 1 << 30], ids=["on disk", "in memory"])
def test_chunks_are_bounded_by_bytes(bound: int, tmp_path: Path) -> None:
    assembler = Assembler(max_buffer_bytes=bound, spool_directory=tmp_path)
    rows = [wide(300_000)] * 10

    (transaction,) = assembler.push([begin(7, 100), *rows, commit(7, 100)])

    assert isinstance(transaction, Transaction)
    sizes = [len(chunk) for chunk in transaction.frames()]
    transaction.release()
    assert sum(sizes) == 10
    assert max(sizes) == -(-CHUNK_BYTES // 300_000)


def test_biggest_transaction_is_spooled(tmp_path: Path) -> None:
    before = spooled_bytes(tmp_path)
    assembler = Assembler(version=2, max_buffer_bytes=100_000, spool_directory=tmp_path)

    assembler.push([xlogdata(StreamStart(7, True)), wide(70_000, xid=7), STOP])
    assert spooled_bytes(tmp_path) == before
    assembler.push([xlogdata(StreamStart(8, True)), wide(40_000, xid=8), STOP])
    assert 70_000 < spooled_bytes(tmp_path) - before < 71_000

    (transaction,) = assembler.push([stream_commit(8, 100)])
    assert isinstance(transaction, Transaction)
    assert frames_of(transaction) == [wide(40_000, xid=8)]
    assembler.close()
    assert spooled_bytes(tmp_path) == before


def test_memory_of_ended_transactions_is_free_again(tmp_path: Path) -> None:
    before = spooled_bytes(tmp_path)
    assembler = Assembler(max_buffer_bytes=100_000, spool_directory=tmp_path)

    for xid in range(1, 10):
        assembler.push([begin(xid, xid), wide(90_000), commit(xid, xid)])

    assert spooled_bytes(tmp_path) == before


def test_release_frees_the_disk(tmp_path: Path) -> None:
    before = spooled_bytes(tmp_path)
    assembler = Assembler(max_buffer_bytes=0, spool_directory=tmp_path)
    (transaction,) = assembler.push([begin(7, 100), wide(90_000), commit(7, 100)])
    assert isinstance(transaction, Transaction)
    assert spooled_bytes(tmp_path) > before

    transaction.release()

    assert spooled_bytes(tmp_path) == before


def test_no_file_is_ever_visible_so_that_none_can_be_left_behind(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on demand"
    assembler = Assembler(max_buffer_bytes=0, spool_directory=folder)

    assembler.push([begin(7, 100), insert(1)])

    assert list(folder.iterdir()) == []
    assembler.close()


def test_spool_lies_in_the_temporary_directory_without_a_setting() -> None:
    assembler = Assembler(max_buffer_bytes=0)

    (transaction,) = assembler.push([begin(7, 100), insert(1), commit(7, 100)])

    assert isinstance(transaction, Transaction)
    assert frames_of(transaction) == [insert(1)]


def test_directory_that_is_none_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assembler = Assembler(max_buffer_bytes=0, spool_directory=tmp_path / "file")

    with pytest.raises(FatalError, match="cannot be made") as caught:
        assembler.push([begin(7, 100), insert(1)])

    assert "gateway.spool_directory" in (caught.value.hint or "")


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Have the kernel refuse what would make a file larger, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_full_disk_takes_all_of_a_call_or_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append([b"first"])

    with no_file_above(1000), pytest.raises(SpoolFullError, match=os.strerror(errno.EFBIG)):
        spool.append([b"x" * 500, b"y" * 2000])
    assert [frame for chunk in spool.chunks() for frame in chunk] == [b"first"]

    spool.append([b"second"])
    assert [frame for chunk in spool.chunks() for frame in chunk] == [b"first", b"second"]
    spool.close()


def test_full_disk_keeps_a_transaction_in_memory_until_there_is_room(tmp_path: Path) -> None:
    assembler = Assembler(max_buffer_bytes=2000, spool_directory=tmp_path)
    rows = [insert(i) for i in range(100)]
    with no_file_above(100):
        assembler.push([begin(7, 100), *rows])
        assert isinstance(assembler.relieve(), SpoolFullError)
        assert assembler.stalled

    assert assembler.relieve() is None

    (transaction,) = assembler.push([commit(7, 100)])
    assert isinstance(transaction, Transaction)
    assert transaction.memory < 2000
    assert frames_of(transaction) == rows


def test_negative_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        Assembler(max_buffer_bytes=-1)
