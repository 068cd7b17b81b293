"""Records of sets in the progress topic: what a commit writes, and reading it back.

    <set>                          format, the OID of the sub-select's table and a description of
                                   that: the set is complete; `*` before the description: the set
                                   stays as it is until its table is read
    <set>/<bits>.<prefix, hex>     a leaf: for each entry its length, its bytes and its count

`<set>` is `Subselect.name`. Numbers are varints. All records of a commit are in one Kafka
transaction, so the leaves that are read back cover all places, each once; if they do not, the set
is read from the source again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from gateway.core.errors import ProtocolError
from gateway.subselects.sets.changes import SetDelta
from gateway.subselects.sets.entries import place_of, read_varint, unpack, varint
from gateway.subselects.sets.leaves import MOST, Leaf, Leaves
from gateway.subselects.sets.value_set import ValueSet

__all__ = ["SET_FORMAT", "SetRecord", "StoredSet", "decode_leaf", "encode_leaf", "removed"]

SET_FORMAT: Final = 1
"""Version of the records' meaning."""
_STALE: Final = b"*"
_LEAF: Final = re.compile(r"([0-9]{1,2})\.([0-9a-f]{1,8})")

SetRecord: TypeAlias = tuple[str, bytes | None]
"""Name and value; None removes it."""


def encode_leaf(entries: Iterable[tuple[bytes, int]]) -> bytes:
    """Encode the entries of a leaf."""
    pieces: list[bytes] = []
    for entry, count in sorted(entries):
        pieces += (varint(len(entry)), entry, varint(count))
    return b"".join(pieces)


def decode_leaf(data: bytes) -> list[tuple[bytes, int]]:
    """Decode what `encode_leaf` makes, whoever has written it.

    Raises:
        ProtocolError: it is something else.
    """
    entries: list[tuple[bytes, int]] = []
    offset = 0
    while offset < len(data):
        size, start = read_varint(data, offset)
        if start + size > len(data):
            raise ProtocolError("an entry of a set is cut off", tag=b"", offset=offset)
        entry = data[start : start + size]
        count, offset = read_varint(data, start + size)
        if not count or (entries and entry <= entries[-1][0]):
            raise ProtocolError("an entry of a set is out of order", tag=b"", offset=offset)
        entries.append((entry, count))
    return entries


class StoredSet:
    """One set and its records.

    Args:
        target: The set.
        most: Number of entries beyond which a leaf is split.
        about: Description of the sub-select's table.
        why_other: Returns why a table of another description may have other values, or None.
        is_other_tree: Whether a table of another description had other partitions.

    Attributes:
        is_stale: Whether the set stays as it is until its table is read.
        was_stale: Whether the records that were read back say so.
    """

    def __init__(
        self,
        target: ValueSet,
        *,
        most: int = MOST,
        about: str = "",
        why_other: Callable[[str], str | None] = lambda about: None,
        is_other_tree: Callable[[str], bool] = lambda about: False,
    ) -> None:
        self.target = target
        self.is_stale = self.was_stale = False
        self._head = varint(SET_FORMAT) + varint(target.subselect.table_oid)
        self._about = about.encode()
        self._why_other = why_other
        self._is_other_tree = is_other_tree
        self._most = most
        self._leaves = Leaves(most=most)
        self._written: set[str] = set()

    @property
    def name(self) -> str:
        """Name of its first record."""
        return self.target.subselect.name

    @property
    def about(self) -> str:
        """Description of the table."""
        return self._about.decode()

    def note(self, delta: SetDelta) -> None:
        """Note what a transaction did to its entries."""
        if delta.is_truncated:
            self._leaves.reset()
        for entry in delta.counts:
            self._leaves.note(entry)

    def note_built(self) -> None:
        """Note that it was built."""
        self.is_stale = False
        self._leaves.reset()

    def note_stale(self, about: str) -> None:
        """Note that it stays as it is until its table, of that description now, is read."""
        if (self.is_stale, self._about) != (True, about.encode()):
            self.is_stale, self._about = True, about.encode()
            self._written.discard(self.name)

    def note_read(self) -> None:
        """Note that its table was read."""
        self.is_stale = False
        self._written.discard(self.name)

    def pop_records(self) -> Iterator[SetRecord]:
        """Return the records of what has changed since the last call; they are committed once."""
        if self.name not in self._written:
            self._written.add(self.name)
            yield self.name, self._head + (_STALE if self.is_stale else b"") + self._about
        for leaf, entries in self._leaves.pop_changed(self.target.entries):
            name = _leaf_name(self.name, leaf)
            if entries is not None:
                self._written.add(name)
                yield name, encode_leaf(entries)
            elif name in self._written:
                self._written.discard(name)
                yield name, None

    def look(self, records: Mapping[str, bytes]) -> None:
        """Find out if it was stale when the records were committed, whatever becomes of it."""
        head = records.get(self.name, b"")
        self.was_stale = head.removeprefix(self._head).startswith(_STALE)

    def read_back(self, records: Mapping[str, bytes]) -> str | None:
        """Fill the set from committed records, after `look`; `SetNetwork.recount` has to follow.

        Args:
            records: Values by name; those of other sets are ignored.

        Returns:
            Why it has to be read from the source, or None.
        """
        if (head := records.get(self.name)) is None:
            return "it has not been built yet"
        if not head.startswith(self._head):
            return "its records have a format that this gateway does not know"
        written = head.removeprefix(self._head)
        about = written.removeprefix(_STALE)
        self.is_stale = self.was_stale
        if about != self._about:
            text = about.decode(errors="replace")
            why = self._why_other(text)
            if why is not None:
                return why
            self.is_stale |= self._is_other_tree(text)
        found = {leaf: name for name in records if (leaf := _leaf_of(self.name, name)) is not None}
        if not Leaves.cover(set(found)):
            return "some of its records are missing"
        self.target.clear()
        for leaf, name in found.items():
            try:
                entries = decode_leaf(records[name])
            except ProtocolError as error:
                self.target.clear()
                return f"record {name} does not read: {error.reason}"
            if not all(self._belongs(entry, leaf) for entry, _ in entries):
                self.target.clear()
                return f"record {name} has entries that do not belong there"
            self.target.fill(entries)
        self._leaves = Leaves(set(found), most=self._most)
        self._written = {_leaf_name(self.name, leaf) for leaf in found}
        if written == (_STALE if self.is_stale else b"") + self._about:
            self._written.add(self.name)
        return None

    def _belongs(self, entry: bytes, leaf: Leaf) -> bool:
        if not leaf.low <= place_of(entry) < leaf.high:
            return False
        try:
            return self.target.reduction.fits(unpack(entry))
        except ProtocolError:
            return False


def removed(subselect_name: str, names: Iterable[str]) -> list[SetRecord]:
    """Return the records that remove a set that no filter has any more."""
    return [(name, None) for name in names if name.partition("/")[0] == subselect_name]


def _leaf_name(set_name: str, leaf: Leaf) -> str:
    return f"{set_name}/{leaf.bits}.{leaf.prefix:x}"


def _leaf_of(set_name: str, name: str) -> Leaf | None:
    own, _, rest = name.partition("/")
    match = _LEAF.fullmatch(rest)
    if own != set_name or match is None:
        return None
    leaf = Leaf(int(match[1]), int(match[2], 16))
    return leaf if leaf.bits <= 32 and leaf.prefix < 1 << leaf.bits else None
