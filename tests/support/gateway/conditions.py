"""A filter that is a table for C, asked about one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from gateway._speedups.layouts import Candidates, Decision, Projection, Target
from gateway.pgoutput.messages import UNCHANGED
from gateway.routing.row.native import ROWS
from gateway.rowfilter import RowFilter, condition_of

__all__ = ["Decide", "bind_compiled"]

Decide = Callable[[Sequence[bytes | None]], bool | None]

_ESCAPES = {
    **{b"\\"[0]: b"\\\\", b"\b"[0]: b"\\b", b"\f"[0]: b"\\f", b"\n"[0]: b"\\n"},
    **{b"\r"[0]: b"\\r", b"\t"[0]: b"\\t", b"\v"[0]: b"\\v"},
}


def bind_compiled(filters: Sequence[RowFilter], names: Sequence[str]) -> Decide | None:
    """Return the verdict of the compiled row path on a row; None for rows that it leaves alone.

    None instead of a function: the filters have no form for it, or nothing was compiled here.
    """
    condition = condition_of(filters, names)
    if condition is None or isinstance(ROWS, str):
        return None
    counter = SimpleNamespace(records=0, others=0, inserts=0, updates=0, deletes=0)
    target = Target("t", 1, b"", b"", counter, skips_origins=False, feed=0, number=0)
    everyone = (Decision(0, 0, None),)
    candidates = Candidates(everyone, everyone, ())
    projection = Projection(
        row=(),
        names=(),
        key=None,
        key_is_union=False,
        place=None,
        needs_full=False,
        names_keys=False,
        canonical=None,
        table_part=b"",
        surely_fits=1_000,
        tombstones=False,
        targets=(target,),
        conditions=(condition,),
        inserting=candidates,
        updating=candidates,
        deleting=candidates,
    )
    rows = ROWS.Rows(1, len(names), True, UNCHANGED, bytes(len(names)), (projection,))

    def decide(row: Sequence[bytes | None]) -> bool | None:
        records: list[Any] = []
        line = b"\t".join(rb"\N" if value is None else _escaped(value) for value in row) + b"\n"
        routed = rows.copy([line], 0, (b"",), [], records, [])
        return len(records) == 1 if routed else None

    return decide


def _escaped(value: bytes) -> bytes:
    return b"".join(_ESCAPES.get(byte, bytes((byte,))) for byte in value)
