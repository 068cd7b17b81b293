"""Files that settings name, read whole: an ordinary file, of bounded size, in UTF-8."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["LONGEST_FILE", "LONGEST_SECRET", "read_text"]

LONGEST_FILE: Final = 16 << 20
"""Bytes of a configuration or definitions file."""
LONGEST_SECRET: Final = 1 << 20
"""Bytes of a file that holds one value."""


def read_text(path: Path, most: int) -> str:
    """Return a file's text, with line feeds alone as line ends. Links are followed.

    Args:
        path: Path of the file.
        most: Maximum number of bytes.

    Raises:
        OSError: it cannot be read at once, is no ordinary file, or is larger.
        ValueError: it is not UTF-8; can quote the file.
    """
    if "\0" in str(path):
        raise OSError("its name has a null character")
    # Opening a pipe would wait for a writer, and reading one for its end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is not an ordinary file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    if data is None:  # as /proc/kmsg, which is called ordinary, answers until there is a line
        raise OSError("it has nothing to read yet")
    if len(data) > most:
        raise OSError(f"it has more than {most:,} bytes")
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
