"""The places at which the fault tests let the gateway die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.gateway.fault_stage import (
    FIRST_START_POINTS,
    RELOAD_POINTS,
    RUNNING_POINTS,
    TAKEOVER_POINTS,
)

ROOT = Path(__file__).parents[3]


def in_the_code() -> list[str]:
    texts = [path.read_text() for path in (ROOT / "gateway").rglob("*.py")]
    return sorted(name for text in texts for name in re.findall(r'fail_point\("(.+?)"\)', text))


def test_each_place_is_documented_and_a_fault_of_a_test() -> None:
    documented = re.findall(
        r"^\| `([a-z_]+\.[a-z_]+)` \|", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE
    )

    assert in_the_code() == sorted(documented)
    assert set(in_the_code()) == {
        *FIRST_START_POINTS,
        *RUNNING_POINTS,
        *RELOAD_POINTS,
        *TAKEOVER_POINTS,
    }


def test_the_process_dies_when_it_comes_by_for_the_nth_time() -> None:
    program = (
        "from gateway.core.failpoints import fail_point\n"
        "for turn in (1, 2, 3):\n"
        "    fail_point('other'); fail_point('here'); print(turn, flush=True)"
    )
    died, lived = (
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PGSLUICE_FAILPOINT": failpoint},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        for failpoint in ("here:2", "")
    )

    assert (died.returncode, died.stdout.split()) == (-signal.SIGKILL, ["1"])
    assert (lived.returncode, lived.stdout.split()) == (0, ["1", "2", "3"])
