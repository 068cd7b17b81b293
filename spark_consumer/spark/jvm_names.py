"""Names of the JVM's classes and packages, looked up once.

Py4J asks the JVM each time a name is used, and for each part of a dotted one. ``jvm.org`` is sought
in every imported package, and in each jar of the class path, until no class has that name. PySpark
asks for some forty names to convert one exception of Java's, and an iteration over a collection of
Java's ends with one: a third of the CPU of small cuts was spent on that.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaPackage, JVMView  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

__all__ = ["remember_names"]


def remember_names(spark: SparkSession) -> None:
    """Let the driver's view of the JVM, which all sessions share, keep what it has found."""
    jvm: Any = spark._jvm
    if type(jvm) is JVMView:
        jvm.__class__ = _View


class _View(JVMView):  # type: ignore[misc]
    def __getattr__(self, name: str) -> Any:
        return _kept(self, name, super().__getattr__(name))


class _Package(JavaPackage):  # type: ignore[misc]
    def __getattr__(self, name: str) -> Any:
        return _kept(self, name, super().__getattr__(name))


def _kept(owner: Any, name: str, found: Any) -> Any:
    if isinstance(found, JavaPackage):
        # A class that is not there is taken for a package, until its jar is added.
        if "." in name or not name[:1].islower():
            return found
        found.__class__ = _Package
    setattr(owner, name, found)
    return found
