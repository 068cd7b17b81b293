"""Settings of a session that reads and writes Delta tables exactly."""

from __future__ import annotations

from typing import Final

from spark_consumer.values.variants import VARIANT_SETTINGS

__all__ = ["APPLICATION", "ATTEMPTS", "METADATA", "SESSION_SETTINGS"]

SESSION_SETTINGS: Final = {
    **VARIANT_SETTINGS,
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # The source of a MERGE is the same whenever it is computed: records do not change.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise a column called ${env:SECRET} is replaced by the driver's environment variable.
    "spark.sql.variable.substitute": "false",
    # Conditions pass through java.sql's types otherwise, which do not hold infinity.
    "spark.sql.datetime.java8API.enabled": "true",
}

METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"

ATTEMPTS: Final = "spark.databricks.delta.maxCommitAttempts"
"""Number of further attempts of a commit, each on top of what others have committed meanwhile."""

APPLICATION: Final = "pgsluice"
"""The application in the transaction identifiers of the job's commits; their version is the serial
of the commit, so Delta skips a second one on top of the same."""
