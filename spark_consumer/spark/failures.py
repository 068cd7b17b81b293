"""Which table a failure belongs to, and whether it may pass.

A failure belongs to the table that was being worked on, whatever its class, and that table is held
with the reason. These concern every table, and end the job: a `TransientConsumerError` (broker,
registry or storage does not answer; within a cut after some tries; exit code 75), an `AccessError`
(broker or registry refuses the user; everywhere after as many; 1), Spark's JVM being gone (75), a
stop, and settings. A failure outside of any table (marker topic, manifests) belongs to its
subscription, which is held.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from spark_consumer.errors import (
    COPY_AGAIN,
    NO_VARIANT,
    AccessError,
    ConsumerError,
    ContractError,
    FatalConsumerError,
    TableError,
    TransientConsumerError,
)

__all__ = [
    "MemoryShortError",
    "SparkFailedError",
    "StoppedError",
    "TableTransientError",
    "as_error",
    "cause",
    "every_table",
    "is_of_record",
    "may_pass",
]

_STOPPED: Final = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been")
_PASSING: Final = (
    # Kafka's clients: leaders that change, brokers that restart, time-outs.
    "org.apache.kafka.common.errors.RetriableException",
    "org.apache.kafka.common.errors.DisconnectException",
    "java.util.concurrent.TimeoutException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
)
_PASSING_TEXT: Final = ("Connection refused", "leader epoch", "Failed to create new KafkaAdmin")
_NO_RECORD: Final = ("MALFORMED_RECORD_IN_PARSING", "MALFORMED_AVRO", "org.apache.avro.")
"""Texts in Spark's errors for a record that does not match its schema."""
_NO_VARIANT: Final = re.compile(rf"{NO_VARIANT} [A-Za-z0-9_-]+")
_NO_MEMORY: Final = "java.lang.OutOfMemoryError"
_LONGEST: Final = 300


class TableTransientError(TransientConsumerError):
    """A failure of one table that may pass: it is retried, and then the table is held."""


class SparkFailedError(TableTransientError):
    """Spark failed during work on a table."""


class MemoryShortError(SparkFailedError):
    """Spark had too little memory for a record."""


class StoppedError(TransientConsumerError):
    """The job is to stop, and some tables of a cut have not been written yet."""


def every_table(error: Exception) -> TransientConsumerError | AccessError | None:
    """Return the error when it concerns every table; None when it is the table's own."""
    if isinstance(error, TransientConsumerError | AccessError):
        return None if isinstance(error, TableTransientError) else error
    ended = isinstance(error, Py4JNetworkError | ConnectionError) or (
        isinstance(error, Py4JError) and any(text in str(error) for text in _STOPPED)
    )
    if not ended:
        return None
    return TransientConsumerError(
        "Spark has ended", hint="Spark's own log says why; restart the job"
    )


def as_error(label: str, error: Exception) -> ConsumerError:
    """Return the failure of one table as an error of the job's own, without values of rows.

    Args:
        label: Name of the table in messages.
        error: Any exception from work on the table.

    Returns:
        A ConsumerError unchanged; ContractError for a record that cannot be decoded; TableError for
        a value that no VARIANT can have; `MemoryShortError` if memory ran out; `SparkFailedError`
        for other errors of Spark; FatalConsumerError for everything else.
    """
    if isinstance(error, ConsumerError):
        return error
    if isinstance(error, PySparkException | Py4JError):
        if (refused := _NO_VARIANT.search(str(error))) is not None:
            return TableError(
                f"{label}: {refused[0]}",
                hint="change or remove the value and "
                f'{COPY_AGAIN}, or let consumer.json be "text"; docs/spark.md says which they are',
            )
        # First: if memory runs out while a record is decoded, the trace names Avro, too.
        if _NO_MEMORY in str(error):
            return MemoryShortError(
                f"{label}: a record takes more memory than Spark has",
                hint="raise spark.driver.memory; a record that is small compressed can be of any "
                "size: who may write to the topic?",
            )
        if any(text in str(error) for text in _NO_RECORD):
            return ContractError(
                f"{label}: a record is not what its Avro schema says",
                hint=f"is the topic written by something else than the gateway? {COPY_AGAIN}",
            )
        return SparkFailedError(
            f"{label}: Spark failed ({_kind(error)})",
            hint="see Spark's own log; restart the job to retry",
        )
    ours = Path(__file__).parents[1]
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if ours in Path(f.filename).parents
    ]
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return FatalConsumerError(
        f"{label}: the job failed on it ({type(error).__name__}{place})",
        hint=f"this is a fault of the job, please report it; to continue, {COPY_AGAIN}",
    )


def is_of_record(error: Exception) -> bool:
    """Whether Spark failed on a record: it cannot be decoded, or no table can have its value."""
    return NO_VARIANT in str(error) or any(text in str(error) for text in _NO_RECORD)


def may_pass(error: Any) -> bool:
    """Whether a streaming query that ended with this Java exception can be started again."""
    gateway = SparkContext._gateway
    while error is not None:
        if any(is_instance_of(gateway, error, name) for name in _PASSING):
            return True
        if any(text in str(error.getMessage()) for text in _PASSING_TEXT):
            return True
        error = error.getCause()
    return False


def cause(error: BaseException) -> str:
    """Return an error's text in one line, for a log; not for errors that may quote row values."""
    text = str(error)
    if (
        isinstance(error, Py4JError)
        and (java := getattr(error, "java_exception", None)) is not None
    ):
        try:
            text = f"{java.getClass().getName()}: {java.getMessage()}"
        except Py4JError:
            text = type(error).__name__
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


def _kind(error: Exception) -> str:
    if isinstance(error, PySparkException) and error.getCondition():
        return str(error.getCondition())
    if (java := getattr(error, "java_exception", None)) is not None:
        try:
            return str(java.getClass().getSimpleName())
        except Py4JError:
            pass
    return type(error).__name__
