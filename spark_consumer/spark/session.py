"""A Spark session with Delta and the Kafka connector, tuned for many small commits."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from schemas.types import MOST_ITEMS
from spark_consumer.display import logger
from spark_consumer.errors import SettingsError
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.jvm_names import remember_names

__all__ = [
    "ALIVE",
    "LOCAL_FILES",
    "TUNED",
    "build_session",
    "check_jars",
    "check_session",
    "open_session",
    "session_settings",
]

_log: Final = logger(__name__)
_SPARK: Final = "4.1"
_KAFKA_SOURCE: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_AVRO: Final = "org.apache.spark.sql.avro.AvroFileFormat"
_OWN: Final = ("pgsluice.small.SmallTable", "pgsluice.markers.Markers")
_JARS_HINT: Final = (
    "start the job by spark-submit --jars ... dist/consume.py, with all jars of dist/jars, or name"
    ' them in [consumer] spark = { "spark.jars" = "..." }: see docs/spark.md, Deploy'
)
"""Hint of errors about classes that Spark does not have."""
_AVRO_LIMITS: Final = {
    "org.apache.avro.limits.bytes.maxLength": 128 * 1024 * 1024,
    "org.apache.avro.limits.string.maxLength": 128 * 1024 * 1024,
    "org.apache.avro.limits.collectionItems.maxLength": MOST_ITEMS,
}
"""Limits of the lengths that a value may claim: Avro allocates memory before it reads."""
AVRO_LIMITS: Final = " ".join(f"-D{name}={most}" for name, most in _AVRO_LIMITS.items())
"""The same as options of a JVM, for executors."""

TUNED: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # One task rebuilds a table's log: a MERGE on a small table takes a quarter of the time.
    "spark.databricks.delta.snapshotPartitions": "1",
    # A cut asks a hundred different questions; what was compiled for them is kept for the next one.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.session.timeZone": "UTC",
    "spark.executor.extraJavaOptions": AVRO_LIMITS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings that the job needs and that make it fast; with spark-submit, pass them by ``--conf``."""

ALIVE: Final = {"spark.executor.killOnFatalError.depth": "0"}
"""For a session whose driver does the work: a record that exceeds the memory fails its query, and
does not end the JVM. A few kilobytes, compressed, can become hundreds of megabytes."""


LOCAL_FILES: Final = {
    # Without a native library, Hadoop would start a process for each file that it creates.
    "spark.hadoop.fs.file.impl": "pgsluice.files.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "pgsluice.files.LocalContext",
}
"""For a session of one process, with the job's own jar in ``spark.driver.extraClassPath``: Hadoop
looks for these classes before Spark has the jars of ``spark.jars``."""

_MEMORY: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:G1PeriodicGCInterval=15000"
    " -XX:-G1PeriodicGCInvokesConcurrent"
    " -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=25 -XX:G1HeapRegionSize=4m"
)
"""Options of a JVM that gives memory back: what a cut needed for a moment, others can have.

A JVM that has not collected for 15 s is idle, and collects as a whole: a concurrent
collection frees only regions without a living object, and 500 tables kept 1.5 GB for 0.2 alive.
An array of half a region begins a cycle of marking. With the regions of 1 MB that a heap of 1 GB
has, buffers of Kafka and Parquet were that large: several cycles a second, half of the job's CPU.
Options of the user's follow them, and prevail.
"""
_LOG_LEVEL: Final = "spark.log.level"
_QUIET: Final = "WARN"
"""Spark's own level is INFO: several hundred lines for a start, and a dozen for each query."""
_LOG_PROPERTIES: Final = ("log4j2.configurationFile", "log4j.configurationFile")
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_WITH_JARS: Final = ("spark.jars", "spark.jars.packages", _CLASS_PATH)
"""Settings that give a session classes that are not in Spark's own folder."""
_WITH_CLASSES: Final = frozenset(
    {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH"}
)
"""Variables of the environment: spark-submit, or Spark itself, may have been given jars."""
_CONFIGURATION: Final = ("spark-defaults.conf", "spark-env.sh")
"""Spark's files, which may name jars as well."""
_ONE_PROCESS: Final = re.compile(r"local(\[|$)")
_SECRET: Final = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""As ``spark.redaction.regex`` has it."""
_CATALOGS: Final = "spark.sql.catalog."
"""Settings of catalogs, of which credentials, headers and addresses can be secret, too."""


@contextmanager
def open_session(settings: ConsumerSettings) -> Iterator[SparkSession]:
    """See `build_session`; a session that is created here ends with the block."""
    made = SparkSession.getActiveSession() is None
    spark = build_session(settings)
    try:
        yield spark
    finally:
        if made:
            # Its messages about a JVM that is gone, or batches that it cuts off, are expected.
            with suppress(PySparkException, Py4JError, OSError):
                spark.stop()


def build_session(settings: ConsumerSettings, jars: Iterable[str] = ()) -> SparkSession:
    """Return the active session, as under spark-submit, or create one on this machine.

    Args:
        settings: Settings of the job; `ConsumerSettings.spark` prevails over what is set here.
        jars: Paths of connector jars, besides `ConsumerSettings.jars`.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        remember_names(active)
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName("pgsluice consume")
    conf.setAll(list(session_settings(jars, settings).items()))
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None:
        os.environ["SPARK_LOCAL_DIRS"] = ",".join(_private_folders(settings))
        # A signal to the whole process group must not end the JVM before the job has stopped.
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            SparkConf().setAll(on_the_command_line(conf.getAll())),
            popen_kwargs={"start_new_session": True},
        )
        SparkContext._ensure_initialized(gateway=gateway)
    SparkContext._ensure_initialized()
    quieten(conf, SparkContext._jvm)
    made = SparkSession.builder.config(conf=conf).getOrCreate()
    remember_names(made)
    return made


def quieten(conf: SparkConf, jvm: Any) -> None:
    """Let a session log warnings of Spark alone, unless somebody has chosen what it logs."""
    if not (conf.contains(_LOG_LEVEL) or _has_log_level(jvm)):
        conf.set(_LOG_LEVEL, _QUIET)


def _has_log_level(jvm: Any) -> bool:
    """Whether the JVM has a level of its user's: by Spark's setting, or by a file for log4j."""
    if SparkConf(_jvm=jvm).contains(_LOG_LEVEL):
        return True
    system = jvm.java.lang.System
    found = jvm.java.lang.ClassLoader.getSystemResource
    return any(system.getProperty(name) for name in _LOG_PROPERTIES) or any(
        found(f"log4j2.{suffix}") is not None for suffix in ("properties", "xml", "yaml", "json")
    )


def check_jars(settings: ConsumerSettings) -> None:
    """Check that a session made here would have the job's jar, where that can be known.

    An active session is used as it is, and `check_session` looks at it. A JVM without the jar would
    say of each class that it is missing, in thirty lines of Java, before that could say why.

    Raises:
        SettingsError: no setting names a jar, and Spark's own folder does not have the job's.
    """
    if SparkSession.getActiveSession() is not None:
        return
    home = Path(_find_spark_home())  # type: ignore[no-untyped-call]
    folder = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    configured = any((folder / name).exists() for name in _CONFIGURATION)
    named = settings.jars or any(settings.spark.get(name) for name in _WITH_JARS)
    if named or configured or not _WITH_CLASSES.isdisjoint(os.environ):
        return
    wanted = _OWN[0].replace(".", "/") + ".class"
    for path in (home / "jars").glob("*.jar"):
        with suppress(OSError, BadZipFile), ZipFile(path) as jar:  # Java passes over such a file
            if wanted in jar.namelist():
                return
    raise SettingsError(
        f"Spark has no class {_OWN[0]}: no jar is named, and {home / 'jars'} does not have it",
        hint=_JARS_HINT,
    )


def check_session(spark: SparkSession) -> None:
    """Check the versions of Spark and its jars, and bound the memory that Avro allocates.

    Table formats check what they need themselves.

    Raises:
        SettingsError: Spark has another version, or a jar is missing; the message names it.
    """
    if not _is(spark.version, _SPARK):
        raise SettingsError(
            f"this is Spark {spark.version}, not {_SPARK}",
            hint=f"the job needs Spark {_SPARK}: see docs/spark.md, Deploy",
        )
    jvm: Any = spark._jvm
    for name in (_KAFKA_SOURCE, _AVRO, *_OWN):
        try:
            jvm.org.apache.spark.util.Utils.classForName(name, False, False)
        except Py4JError:
            raise SettingsError(
                f"Spark has no class {name}: one of the jars is missing", hint=_JARS_HINT
            ) from None
    _bound_avro(jvm)
    executors = spark.conf.get("spark.executor.extraJavaOptions", "") or ""
    if not str(spark.conf.get("spark.master")).startswith("local") and not all(
        name in executors for name in _AVRO_LIMITS
    ):
        _log.warning(
            "executors do not bound what a record may claim to hold: set"
            ' spark.executor.extraJavaOptions="%s"',
            AVRO_LIMITS,
        )


def _is(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")


def _bound_avro(jvm: Any) -> None:
    """Set the limits in the driver's JVM, even if Avro is in use already."""
    properties = jvm.java.lang.System
    for name, most in _AVRO_LIMITS.items():
        if properties.getProperty(name) is None:
            properties.setProperty(name, str(most))
    limits = jvm.org.apache.spark.util.Utils.classForName(
        "org.apache.avro.SystemLimitException", True, False
    )
    for method in limits.getDeclaredMethods():
        if method.getName() == "resetLimits":
            method.setAccessible(True)
            method.invoke(None, None)


def on_the_command_line(conf: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the settings for the JVM's command line, which all users of the machine can read.

    Secrets are left out: they reach the JVM over its socket, with all other settings.
    """
    return [
        (key, value)
        for key, value in conf
        if not (_SECRET.search(key) or key.startswith(_CATALOGS))
    ]


def _private_folders(settings: ConsumerSettings) -> Iterator[str]:
    """Create private folders for Spark's temporary files, which hold rows; removed at exit.

    Spark's own folders in them would be readable by every user of the machine.

    Raises:
        SettingsError: one of the parent folders cannot be written to.
    """
    places = os.environ.get("SPARK_LOCAL_DIRS") or settings.spark.get("spark.local.dir")
    for place in (places or tempfile.gettempdir()).split(","):
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
            made = tempfile.mkdtemp(prefix="pgsluice-spark-", dir=place)
        except OSError as error:
            raise SettingsError(
                f"{place}, a folder for Spark's temporary files, cannot be used: {error.strerror}",
                hint="name another one: [consumer.spark] spark.local.dir",
            ) from None
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        yield made


def session_settings(jars: Iterable[str], settings: ConsumerSettings) -> dict[str, str]:
    """Return Spark's settings for a session; see `build_session`."""
    given = dict(settings.spark)
    # spark-submit has set these; a setting of the builder would win over them.
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return given
    cores = os.cpu_count() or 2
    made = {
        **TUNED,
        "spark.master": "local[*]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.defaultJavaOptions": _MEMORY,
        "spark.sql.shuffle.partitions": str(min(cores, 4)),
        # The checkpoint of a query is removed at each start.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        **ALIVE,
    }
    paths = list(dict.fromkeys([*settings.jars, *jars]))
    if paths and _ONE_PROCESS.match(given.get("spark.master", "local")):
        # Jars of spark.jars are copied, and looked through once more for each class.
        own = given.pop(_CLASS_PATH, None)
        made |= {**LOCAL_FILES, _CLASS_PATH: ":".join([*paths, *([own] if own else [])])}
    elif paths:
        made["spark.jars"] = ",".join(paths)
    return made | given
