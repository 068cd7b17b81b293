"""Entry point of ``pgsluice-consume``, ``python -m spark_consumer`` and spark-submit.

Signals first, then everything else: until the job runs nothing has begun that has to be ended, and
a JVM takes many seconds to start. As the first process of a container, a program without a handler
would not be ended by SIGTERM at all.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code. See `spark_consumer.cli`."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    from spark_consumer.cli import main as command

    return command(arguments)


def _stop(number: int, _: FrameType | None) -> None:
    """End at once, as stopped; the job replaces this by a stop in good order."""
    os.write(2, b"pgsluice-consume: stopped while it started\n")
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
