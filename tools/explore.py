"""Search for defects with new seeds: ``python tools/explore.py MINUTES [PYTEST ARGUMENT...]``.

Runs the tests marked ``seeded``, each round with another seed and in another order; begins no round
after MINUTES. Says for each round that failed how to see it again. What is found becomes a test by
name: the seed alone will not find it any more when a generator changes.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIRS = "100000"
"""Pairs of a filter and a row that each round compares; a run of all tests compares fewer."""


def main() -> int:
    """Run rounds until the time is over; 1 when one of them failed."""
    try:
        ends = time.monotonic() + 60 * float(sys.argv[1])
    except (IndexError, ValueError):
        print("explore: say for how many minutes: make explore MINUTES=10", file=sys.stderr)
        return 2
    command = ["-m", "pytest", "tests", "-m", "seeded", "-q", *sys.argv[2:]]
    found = []
    rounds = 0
    while rounds == 0 or time.monotonic() < ends:
        rounds += 1
        seed = secrets.randbits(32)
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            check=False,
            env={"PGSLUICE_ORACLE_PAIRS": PAIRS, **os.environ, "PGSLUICE_SEED": str(seed)},
        )
        if done.returncode != 0:
            found.append(seed)
    for seed in found:
        print(f"explore: FAILED: PGSLUICE_SEED={seed} python {' '.join(command)}")
    print(f"explore: {rounds} rounds, {len(found)} of them failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
