"""Run tiers of the tests in one process, so that they share servers and the Spark session.

``python tools/run_tests.py TIER... [-- PYTEST ARGUMENT...]``. A tier is a folder of ``tests/``. The
run fails when a tier has no folder, or when no test of it passed (the folder's conftest counts).
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Become pytest; returns only when a tier has no folder."""
    tiers, _, arguments = _split(sys.argv[1:])
    missing = [tier for tier in tiers if not (ROOT / "tests" / tier).is_dir()]
    if missing or not tiers:
        print(f"run_tests: no such tier: {', '.join(missing) or '(none named)'}", file=sys.stderr)
        return 2
    # Exec, so that Ctrl-C and SIGTERM reach pytest itself, which stops its servers.
    os.chdir(ROOT)
    command = [
        sys.executable,
        "-m",
        "pytest",
        *(f"tests/{tier}" for tier in tiers),
        f"--require-tiers={','.join(tiers)}",
        "--durations=10",
        "--durations-min=5",
        *arguments,
    ]
    os.execv(sys.executable, command)  # noqa: S606 - a list, no shell


def _split(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    if "--" not in arguments:
        return arguments, "", []
    at = arguments.index("--")
    return arguments[:at], "--", arguments[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
