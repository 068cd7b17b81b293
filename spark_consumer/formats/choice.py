"""Choice of the table format."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.settings import ConsumerSettings

__all__ = ["open_format", "reading_format"]


def open_format(spark: SparkSession, settings: ConsumerSettings) -> TableFormat:
    """Return the format of the job's tables: Delta Lake, until there is another one to choose.

    Raises:
        SettingsError: the session cannot use it; says what is missing.
    """
    return DeltaFormat.checked(spark, settings.delta_private)


def reading_format() -> TableFormat:
    """Return the format for readers of states, who use its public interface only."""
    return DeltaFormat(private=False)
