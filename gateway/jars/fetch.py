"""Fetch jars into the cache: ``python -m gateway.jars.fetch [CONFIGURATION]...``.

Without arguments it fetches what the demo and most tests need: Spark's connectors and table
formats, the broker, the registry. Done at once when they are there.
"""

import sys

from gateway.core.errors import ConfigError, GatewayError
from gateway.jars import ivy as jars

USUAL = ("spark", "iceberg", "kafka", "registry")


def main(arguments: list[str]) -> int:
    """Fetch the configurations named; the exit code (75 when trying again may help)."""
    try:
        for configuration in arguments or USUAL:
            jars.jars(configuration)
    except GatewayError as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 1 if isinstance(error, ConfigError) else 75
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
