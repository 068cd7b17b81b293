"""Records of a set in the progress topic: what a commit writes, and what is not read back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gateway.core.errors import ProtocolError
from gateway.subselects.formula import Subselect
from gateway.subselects.sets.changes import SetDelta
from gateway.subselects.sets.entries import pack, place_of
from gateway.subselects.sets.leaves import MOST, Leaf, Leaves
from gateway.subselects.sets.records import StoredSet, decode_leaf, encode_leaf, removed
from gateway.subselects.sets.value_set import SetBrokenError, ValueSet

IDS = Subselect(2, ("id",), None)


def entry(number: int) -> bytes:
    return pack((b"%d" % number, b""))


def stored(numbers: Iterable[int]) -> tuple[StoredSet, dict[str, bytes]]:
    """A set of some numbers, and what Kafka has of it."""
    found = StoredSet(ValueSet(IDS, {}))
    found.target.fill((entry(number), 1) for number in numbers)
    found.target.recount()
    found.note_built()
    records = {name: value for name, value in found.pop_records() if value is not None}
    return found, records


def test_a_commit_writes_the_leaf_that_has_changed_and_nothing_else() -> None:
    found, records = stored(range(5000))
    delta = SetDelta()
    delta.change(entry(17), entry(1_000_000))
    found.target.apply(delta, {})
    found.note(delta)

    written = dict(found.pop_records())

    assert len(written) <= 4, "two leaves, or one that is split"
    leaves = [value for name, value in records.items() if "/" in name]
    assert max(len(decode_leaf(value)) for value in leaves) <= MOST
    for name, value in written.items():
        if value is None:
            del records[name]
        else:
            records[name] = value
    again = StoredSet(ValueSet(IDS, {}))
    assert again.read_back(records) is None
    again.target.recount()
    assert (b"1000000",) in again.target
    assert (b"17",) not in again.target
    assert list(again.pop_records()) == [], "nothing has changed since"


def test_a_truncate_leaves_one_empty_leaf() -> None:
    found, records = stored(range(1000))
    delta = SetDelta()
    delta.truncate()
    found.target.apply(delta, {})
    found.note(delta)

    written = dict(found.pop_records())

    leaves = [name for name in records if "/" in name]
    assert {name for name, value in written.items() if value is None} == set(leaves)
    assert [value for value in written.values() if value is not None] == [b""]


def test_a_count_that_would_be_less_than_nothing_is_an_error() -> None:
    found, _ = stored([1])
    delta = SetDelta()
    delta.change(entry(2), None)

    with pytest.raises(SetBrokenError, match="OID 2"):
        found.target.apply(delta, {})


def test_what_is_not_complete_is_not_read_back() -> None:
    _, records = stored(range(1000))
    head, leaf = IDS.name, max(name for name in records if "/" in name)

    def refused(changed: dict[str, bytes]) -> str | None:
        return StoredSet(ValueSet(IDS, {})).read_back(changed)

    assert refused(records) is None
    assert refused({}) == "it has not been built yet"
    assert refused({**records, head: b"\x63\x02"}) is not None
    assert refused({n: v for n, v in records.items() if n != leaf}) == (
        "some of its records are missing"
    )
    assert "does not read" in str(refused({**records, leaf: b"\xff"}))
    elsewhere = next(n for n in range(9999) if place_of(entry(n)) < 1 << 20)
    assert "do not belong" in str(refused({**records, leaf: encode_leaf([(entry(elsewhere), 1)])}))
    assert "do not belong" in str(refused({**records, leaf: encode_leaf([(pack((b"1",)), 1)])}))
    other = {f"{'0' * 24}/0.0": b"\xff", f"{IDS.name}/33.0": b"\xff", f"{IDS.name}/1.5": b"\xff"}
    assert refused({**records, **other}) is None, "names that are not a leaf's say nothing"


def test_every_prefix_of_a_leaf_reads_as_less_or_not_at_all() -> None:
    entries = sorted((pack((b"%d" % n, None, b"x" * n)), n + 1) for n in range(40))
    data = encode_leaf(entries)

    assert decode_leaf(data) == entries
    for size in range(len(data)):
        try:
            assert decode_leaf(data[:size]) == entries[: len(decode_leaf(data[:size]))]
        except ProtocolError:
            continue
    with pytest.raises(ProtocolError, match="out of order"):
        decode_leaf(data + data)


def test_leaves_cover_all_places_once() -> None:
    halves = {Leaf(1, 0), Leaf(1, 1)}

    assert Leaves.cover({Leaf(0, 0)})
    assert Leaves.cover(halves)
    assert not Leaves.cover({Leaf(1, 0)})
    assert not Leaves.cover({*halves, Leaf(2, 3)})
    assert not Leaves.cover(set())


def test_the_records_of_a_set_that_no_filter_has_are_removed() -> None:
    _, records = stored(range(200))
    names = [*records, "other", "other/0.0"]

    assert removed(IDS.name, names) == [(name, None) for name in records]
