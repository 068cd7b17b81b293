"""Small files on the warehouse's file system, through Hadoop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_consumer.errors import SettingsError, TransientConsumerError

__all__ = ["RENAMING", "Folder"]

RENAMING: Final = frozenset({"file", "hdfs", "viewfs"})
"""Schemes of file systems on which a rename is one step."""

_MISSING: Final = frozenset(
    {
        "java.lang.ClassNotFoundException",
        "org.apache.hadoop.fs.UnsupportedFileSystemException",
    }
)
_LOCAL: Final = "org.apache.hadoop.fs.RawLocalFileSystem"


class Folder:
    """A folder of text files; it need not exist.

    Every method raises TransientConsumerError when the file system fails.

    Raises:
        SettingsError: Spark has no file system of the path's scheme.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self.path = path
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._fs = jvm.org.apache.hadoop.fs
        self._place = self._fs.Path(path)
        conf = spark._jsc.hadoopConfiguration()
        with self._errors():
            try:
                self._files = self._place.getFileSystem(conf)
                self._context = self._fs.FileContext.getFileContext(self._files.getUri(), conf)
            except Py4JJavaError as error:
                if (missing := _missing_class(error)) is None:
                    raise
                raise SettingsError(
                    f"{path} cannot be used: Spark has no file system for it: {missing}",
                    hint="add the jars of its connector to spark.jars, or name another folder in "
                    "[consumer]; `make dist S3=1` has those for s3a://",
                ) from error
        if is_instance_of(self._gateway, self._files, "org.apache.hadoop.fs.ChecksumFileSystem"):
            # A checksum in a second file cannot change at the same instant as the first.
            self._files = self._files.getRawFileSystem()

    def qualified(self) -> str:
        """Return the folder's path with its scheme, and absolute."""
        with self._errors():
            return str(self._files.makeQualified(self._place).toString())

    def time(self, name: str) -> int | None:
        """Return when a file was written, in milliseconds since 1970; None if it does not exist."""
        with self._errors():
            try:
                status = self._files.getFileStatus(self._fs.Path(self._place, name))
            except Py4JJavaError as error:
                if _is_absence(error):
                    return None
                raise
            return int(status.getModificationTime())

    def has(self, name: str = "") -> bool:
        """Return whether a file or folder is in it; without a name, whether it exists itself.

        Absence is an exception of the JVM's in the other methods, and PySpark makes about eighty
        calls of the JVM for each; here it is an answer.
        """
        with self._errors():
            place = self._fs.Path(self._place, name) if name else self._place
            return bool(self._files.exists(place))

    def names(self) -> list[str]:
        """Return the names of the files and folders in it; none if it does not exist."""
        with self._errors():
            try:
                found = self._files.listStatus(self._place)
            except Py4JJavaError as error:
                if _is_absence(error):
                    return []
                raise
            return [str(status.getPath().getName()) for status in found]

    def read(self, name: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        with self._errors():
            try:
                stream = self._files.open(self._fs.Path(self._place, name))
            except Py4JJavaError as error:
                if _is_absence(error):
                    return None
                raise
            try:
                utf8 = self._jvm.java.nio.charset.StandardCharsets.UTF_8
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, utf8))
            finally:
                stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file in place; meanwhile, and after a crash, it may be absent or half written."""
        with self._errors():
            stream = self._files.create(self._fs.Path(self._place, name), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

    def replace(self, name: str, text: str) -> None:
        """Write a file as a whole: a crash leaves the old one or the new one."""
        with self._errors():
            self._context.mkdir(self._place, None, True)
            self.write(f".{name}.new", text)
            fresh, old = (self._fs.Path(self._place, n) for n in (f".{name}.new", name))
            if is_instance_of(self._gateway, self._files, _LOCAL):
                # Hadoop's own rename removes the old file first.
                nio = self._jvm.java.nio.file
                moves = self._gateway.new_array(nio.CopyOption, 1)
                moves[0] = nio.StandardCopyOption.ATOMIC_MOVE
                paths = [self._files.pathToFile(path).toPath() for path in (fresh, old)]
                nio.Files.move(*paths, moves)
            else:
                options = self._gateway.new_array(self._fs.Options.Rename, 1)
                options[0] = self._fs.Options.Rename.OVERWRITE
                self._context.rename(fresh, old, options)

    def publish(self, name: str, text: str) -> None:
        """Write a file for others: whoever reads it gets the old text or the new one.

        On a local disk and HDFS that is a rename, on an object store one PUT.
        """
        if str(self._files.getUri().getScheme()) in RENAMING:
            self.replace(name, text)
        else:
            self.write(name, text)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with self._errors():
            self._files.delete(self._fs.Path(self._place, name), False)

    def remove_all(self) -> None:
        """Remove the folder with its contents, if it exists."""
        with self._errors():
            self._files.delete(self._place, True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            cause = error.java_exception.getMessage()
            raise TransientConsumerError(f"{self.path} cannot be used: {cause}") from error


def _missing_class(error: Py4JJavaError) -> str | None:
    """Return what the JVM says of a file system that it does not have; None of another failure."""
    cause = error.java_exception
    while cause is not None:
        if str(cause.getClass().getName()) in _MISSING:
            return str(cause.getMessage())
        cause = cause.getCause()
    return None


def _is_absence(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()) == "java.io.FileNotFoundException"
