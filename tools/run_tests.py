"""Run tiers of the tests, in several processes that share their servers.

``python -m tools.run_tests TIER... [-- PYTEST ARGUMENT...]``. A tier is a folder of ``tests/``. The
run fails when a tier has no folder, or when no test of it passed (the folder's conftest counts).

The processes take one file of tests after the other, longest first
(``tests.support.run.work_queue``). ``PGSLUICE_TEST_WORKERS`` says how many there are. What each
test took is written to ``build/durations.json``, and its sum by file is shown in the end
(``tools/durations.py``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools import durations

ROOT = Path(__file__).resolve().parent.parent
WORKERS: Final = "3"
"""Processes on two cores: the tests wait for servers half of their time."""


def main() -> int:
    """Run the tiers; the exit code is pytest's, or 1 when a time budget is exceeded."""
    tiers, arguments = _split(sys.argv[1:])
    missing = [tier for tier in tiers if not (ROOT / "tests" / tier).is_dir()]
    if missing or not tiers:
        print(f"run_tests: no such tier: {', '.join(missing) or '(none named)'}", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    environment = {**os.environ, durations.VARIABLE: str(durations.WRITTEN)}
    # Gateways are started from this tree; each would compile all modules again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    durations.WRITTEN.unlink(missing_ok=True)
    running = subprocess.Popen(_command(tiers, arguments), env=environment)
    # Ctrl-C reaches pytest by itself. Wait then, while it stops the servers.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: running.terminate())
    # A signal's code is negative; any that is not 0 fails the run.
    code = abs(running.wait())
    return durations.report(tiers) or code if durations.WRITTEN.exists() else code


def _command(tiers: Sequence[str], arguments: Sequence[str]) -> list[str]:
    workers = os.environ.get("PGSLUICE_TEST_WORKERS") or WORKERS
    return [
        sys.executable,
        "-m",
        "pytest",
        *(f"tests/{tier}" for tier in tiers),
        f"--require-tiers={','.join(tiers)}",
        f"--numprocesses={workers}",
        "--dist=loadscope",
        "--no-loadscope-reorder",
        *arguments,
    ]


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
