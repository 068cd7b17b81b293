"""Where the fields of a message lie, as tables: for the comments in the golden files.

Written from the manual's "Logical Replication Message Formats"; shares nothing with the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.core.lsn import format_lsn

NAMES: Final = {
    "B": "Begin",
    "M": "LogicalMessage",
    "C": "Commit",
    "O": "Origin",
    "R": "Relation",
    "Y": "Type",
    "I": "Insert",
    "U": "Update",
    "D": "Delete",
    "T": "Truncate",
    "S": "StreamStart",
    "E": "StreamStop",
    "c": "StreamCommit",
    "A": "StreamAbort",
    "b": "BeginPrepare",
    "P": "Prepare",
    "K": "CommitPrepared",
    "r": "RollbackPrepared",
    "p": "StreamPrepare",
}

_COMMIT: Final = "u8:flags lsn:commit_lsn lsn:end_lsn time:commit_time"
_PREPARE: Final = "lsn:prepare_lsn lsn:end_lsn time:prepare_time u32:xid str:gid"
_LAYOUT: Final = {
    "B": "lsn:final_lsn time:commit_time u32:xid",
    "C": _COMMIT,
    "O": "lsn:origin_lsn str:name",
    "M": "u8:flags lsn:lsn str:prefix bytes:content",
    "R": "u32:relation_oid str:namespace str:name char:replica_identity columns:",
    "Y": "u32:type_oid str:namespace str:name",
    "I": "u32:relation_oid tuples:",
    "U": "u32:relation_oid tuples:",
    "D": "u32:relation_oid tuples:",
    "T": "oids:",
    "S": "u32:xid u8:first_segment",
    "E": "",
    "c": f"u32:xid {_COMMIT}",
    "A": "u32:xid u32:subxid",
    "b": _PREPARE,
    "P": f"u8:flags {_PREPARE}",
    "p": f"u8:flags {_PREPARE}",
    "K": f"{_COMMIT} u32:xid str:gid",
    "r": "u8:flags lsn:prepare_end_lsn lsn:rollback_end_lsn time:prepare_time time:rollback_time"
    " u32:xid str:gid",
}
_WITH_XID: Final = "RYIUDTM"

Field = tuple[bytes, str]


def split_fields(data: bytes, *, in_stream: bool, parallel: bool) -> Iterator[Field]:
    """Yield the bytes of each field of a message with what they are."""
    tag = chr(data[0])
    layout = _LAYOUT[tag]
    if tag in _WITH_XID and in_stream:
        layout = f"u32:xid {layout}"
    if tag == "A" and parallel:
        layout += " lsn:abort_lsn time:abort_time"
    yield data[:1], NAMES[tag]
    position = 1
    for kind, name in (item.split(":") for item in layout.split()):
        for field in _READ[kind](data[position:], name):
            yield field
            position += len(field[0])
    assert position == len(data), f"{NAMES[tag]}: {len(data) - position} bytes left over"


def _number(size: int, data: bytes, name: str) -> Iterator[Field]:
    yield data[:size], f"{name} {int.from_bytes(data[:size])}"


def _u8(data: bytes, name: str) -> Iterator[Field]:
    return _number(1, data, name)


def _u32(data: bytes, name: str) -> Iterator[Field]:
    return _number(4, data, name)


def _lsn(data: bytes, name: str) -> Iterator[Field]:
    yield data[:8], f"{name} {format_lsn(int.from_bytes(data[:8]))}"


def _time(data: bytes, name: str) -> Iterator[Field]:
    yield data[:8], f"{name} {int.from_bytes(data[:8], signed=True)}"


def _char(data: bytes, name: str) -> Iterator[Field]:
    yield data[:1], f"{name} {chr(data[0])}"


def _str(data: bytes, name: str) -> Iterator[Field]:
    text = data[: data.index(0) + 1]
    yield text, f'{name} "{text[:-1].decode()}"'


def _bytes(data: bytes, name: str) -> Iterator[Field]:
    size = int.from_bytes(data[:4])
    yield data[:4], f"length of {name} {size}"
    if size:
        yield data[4 : 4 + size], name


def _oids(data: bytes, _: str) -> Iterator[Field]:
    count = int.from_bytes(data[:4])
    yield data[:4], f"{count} relations"
    yield data[4:5], f"options {data[4]}"
    for number in range(count):
        yield from _u32(data[5 + 4 * number :], "relation_oid")


def _columns(data: bytes, _: str) -> Iterator[Field]:
    count = int.from_bytes(data[:2])
    yield data[:2], f"{count} columns"
    position = 2
    for _column in range(count):
        for kind, name in (("u8", "is_key"), ("str", "name"), ("u32", "type_oid")):
            for field in _READ[kind](data[position:], name):
                yield field
                position += len(field[0])
        modifier = data[position : position + 4]
        yield modifier, f"type_modifier {int.from_bytes(modifier, signed=True)}"
        position += 4


def _tuples(data: bytes, _: str) -> Iterator[Field]:
    what = {"N": "new tuple", "K": "old tuple, key", "O": "old tuple"}
    position = 0
    while position < len(data):
        yield data[position : position + 1], what[chr(data[position])]
        position += 1
        for field in _tuple(data[position:]):
            yield field
            position += len(field[0])


def _tuple(data: bytes) -> Iterator[Field]:
    count = int.from_bytes(data[:2])
    yield data[:2], f"{count} columns"
    position = 2
    for _column in range(count):
        kind = chr(data[position])
        if kind in "nu":
            yield data[position : position + 1], "NULL" if kind == "n" else "unchanged TOAST"
            position += 1
            continue
        end = position + 5 + int.from_bytes(data[position + 1 : position + 5])
        value = data[position + 5 : end]
        shown = repr(value[:40].decode(errors="replace")) if kind == "t" else "binary"
        yield data[position : position + 1], "text" if kind == "t" else "binary"
        yield data[position + 1 : position + 5], f"length {len(value)}"
        if value:
            yield value, shown
        position = end


_READ: Final = {
    "u8": _u8,
    "u32": _u32,
    "lsn": _lsn,
    "time": _time,
    "char": _char,
    "str": _str,
    "bytes": _bytes,
    "oids": _oids,
    "columns": _columns,
    "tuples": _tuples,
}
