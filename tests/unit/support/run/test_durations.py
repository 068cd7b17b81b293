"""CPU that is counted for a test."""

from __future__ import annotations

import subprocess
import sys

from tests.support.run.durations import cpu_seconds

BURNED_S = 0.3
PROGRAM = f"""
import sys, time
while time.process_time() < {BURNED_S}: pass
print("done", flush=True)
sys.stdin.read()
"""


def test_a_child_counts_while_it_runs_and_once_when_it_has_ended() -> None:
    before = cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        running = cpu_seconds() - before
    ended = cpu_seconds() - before

    # The kernel counts in hundredths here.
    assert running >= BURNED_S - 0.05
    assert running - 0.05 <= ended < running + BURNED_S
