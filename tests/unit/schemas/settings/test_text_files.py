"""Files that settings name: ends of lines, and a file that has nothing to read yet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.definitions.sql.parser import parse_definitions
from schemas.settings.text_files import read_text

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t  -- some rows{0}WHERE (a <> 'x{0}y');{0}"
    "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;{0}"
)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_the_same_definitions_have_one_fingerprint_whatever_ends_their_lines(
    tmp_path: Path, end: str
) -> None:
    path = tmp_path / "replication.sql"
    path.write_bytes(DEFINITIONS.format(end).encode())

    text = read_text(path, 1_000)

    assert text == DEFINITIONS.format("\n")
    expected = parse_definitions(DEFINITIONS.format("\n"))
    assert parse_definitions(text).fingerprint == expected.fingerprint


def test_the_bound_counts_the_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\r\n")

    assert read_text(path, 3) == "a\n"
    with pytest.raises(OSError, match="more than 2 bytes"):
        read_text(path, 2)


def test_a_file_that_has_nothing_to_read_yet_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # with a writer there is no end, only nothing for now
    # A file system may say "ordinary" of such a file, as that of /proc does of kmsg.
    monkeypatch.setattr(stat, "S_ISREG", stat.S_ISFIFO)
    try:
        with pytest.raises(OSError, match="nothing to read yet"):
            read_text(path, 1_000)
    finally:
        os.close(writer)
