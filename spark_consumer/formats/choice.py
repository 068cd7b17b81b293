"""The one place that knows which table formats there are."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.settings import ConsumerSettings

__all__ = ["open_format", "reading_format"]


def open_format(spark: SparkSession, settings: ConsumerSettings) -> TableFormat:
    """The format of the job's tables: Delta Lake, until there is another one to choose.

    Raises:
        SettingsError: the session cannot use it; says what is missing.
    """
    return DeltaFormat.checked(spark, settings.delta_private)


def reading_format() -> TableFormat:
    """The same for those who only read states, by whatever is public of it."""
    return DeltaFormat(private=False)
