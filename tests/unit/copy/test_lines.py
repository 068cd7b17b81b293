"""COPY text format as the manual's table of backslash sequences has it."""

from __future__ import annotations

import pytest

from gateway.copy.lines import CopyRow, key_of_line, row_of, split_copy_line


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        (b"", [b""]),
        (b"a", [b"a"]),
        (b"a\tb", [b"a", b"b"]),
        (b"\t", [b"", b""]),
        (rb"\N", [None]),
        (rb"\\N", [rb"\N"]),
        (rb"a\N", [b"aN"]),
        (rb"\N" + b"\t" + rb"\\" + b"\tx", [None, b"\\", b"x"]),
        (rb"\b\f\n\r\t\v", [b"\b\f\n\r\t\v"]),
        (rb"\\t", [rb"\t"]),
        (rb"\101\x41\x4a", [b"AAJ"]),
        (rb"\0\18", [b"\x00\x018"]),
        (rb"\xg", [b"xg"]),
        (rb"\q", [b"q"]),
        ("é\\\\\t日".encode(), ["é\\".encode(), "日".encode()]),
    ],
)
def test_line_is_split_and_unescaped(line: bytes, columns: CopyRow) -> None:
    assert split_copy_line(line) == columns


@pytest.mark.parametrize("line", [b"1\t2\t3\n", rb"1" + b"\t" + rb"\t" + b"\t3\n", b"1\t\\N\t3\n"])
@pytest.mark.parametrize("positions", [(0,), (2,), (0, 2), (1, 2), (2, 0)])
def test_key_of_a_line_is_that_of_its_row(line: bytes, positions: tuple[int, ...]) -> None:
    row = row_of(line)

    assert key_of_line(line, positions, max(positions) + 1) == tuple(row[p] for p in positions)
