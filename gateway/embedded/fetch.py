"""Fetch jars into the cache: ``python -m gateway.embedded.fetch [CONFIGURATION]...``.

Without arguments it fetches what the demo and most tests need: Spark's connectors, the broker, the
registry. Done at once when they are there.
"""

import sys

from gateway.embedded import jars
from gateway.errors import ConfigError, GatewayError

USUAL = ("spark", "kafka", "registry")


def main(arguments: list[str]) -> int:
    """Fetch the configurations named; the exit code (75 when trying again may help)."""
    try:
        for configuration in arguments or USUAL:
            jars.folder(configuration)
    except GatewayError as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 1 if isinstance(error, ConfigError) else 75
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
