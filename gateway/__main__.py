"""Entry point of ``pgsluice`` and ``python -m gateway``: signals first, then everything else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gateway.starting import stop_while_starting

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. See `gateway.cli`."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    with stop_while_starting(daemon=given[:1] in (["run"], ["consume"])):
        from gateway.cli import main as command
    return command(given)


if __name__ == "__main__":
    sys.exit(main())
