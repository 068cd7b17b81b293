"""Export of what gateway and Spark job report, by the clients of OpenTelemetry and OpenLineage.

Modules here need the packages of an extra (``otel``, ``openlineage``), so they are imported only
where the setting is on. An exporter works in threads of its own: one that cannot reach its
collector drops what it has, and neither slows its program nor delays the end of it beyond
`CLOSE_S`.
"""

from typing import Final

__all__ = ["CLOSE_S"]

CLOSE_S: Final = 1.0
"""Seconds for which the end of a program waits for what is still to be sent."""
