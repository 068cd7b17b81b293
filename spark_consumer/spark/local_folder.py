"""Folders on a local disk, read without a JVM."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from spark_consumer.errors import TransientConsumerError

__all__ = ["LocalFolder", "ReadableFolder", "local_path"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL: Final = re.compile(r"file:(//)?(?=/)")
_DEFAULT: Final = ("spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name")
_CLUSTER: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


class ReadableFolder(Protocol):
    """A folder of text files, which need not exist: `spark_consumer.spark.files.Folder`, or here.

    Every method raises TransientConsumerError when the file system fails.
    """

    @property
    def path(self) -> str:
        """Path of the folder."""

    def time(self, name: str) -> int | None:
        """Return when a file was written, in milliseconds since 1970; None if it does not exist."""

    def read(self, name: str) -> str | None:
        """Return a file's text; None if it does not exist."""


class LocalFolder:
    """A folder on a local disk; see `ReadableFolder`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def time(self, name: str) -> int | None:
        """See `ReadableFolder`."""
        try:
            return Path(self.path, name).stat().st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure(error) from error

    def read(self, name: str) -> str | None:
        """See `ReadableFolder`."""
        try:
            # As Hadoop does: half a character of a file that is being written is no error.
            return Path(self.path, name).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> TransientConsumerError:
        return TransientConsumerError(f"{self.path} cannot be used: {error.strerror}")


def local_path(path: str, spark: Mapping[str, str]) -> str | None:
    """Return a path as one of the local disk; None if it is, or may be, on another file system.

    Args:
        path: Path as Hadoop reads it: nothing in it is percent-encoded.
        spark: Settings of the Spark session.
    """
    if _LOCAL.match(path):
        return _LOCAL.sub("", path, count=1)
    elsewhere = any(name in spark for name in _DEFAULT) or any(map(os.environ.get, _CLUSTER))
    return None if _SCHEME.match(path) or elsewhere else path
