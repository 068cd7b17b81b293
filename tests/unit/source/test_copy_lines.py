"""COPY text format as the manual's table of backslash sequences has it."""

from __future__ import annotations

import pytest

from gateway.source.copy_lines import CopyRow, split_copy_line


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
