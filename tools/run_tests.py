"""Run tiers of the tests; many of them in a few processes side by side.

``python tools/run_tests.py TIER... [-- PYTEST ARGUMENT...]``. A tier is a folder of ``tests/``. The
run fails when a tier has no folder, or when no test of it passed (the folder's conftest counts).

The tests mostly wait for servers, so processes side by side, each with servers of its own, end in a
fraction of the time that one needs. The first one's output is shown as it comes, that of the others
when all are done. The tiers of one process share its servers and its Spark session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent

LANES = (("unit", "golden", "property", "integration"), ("oracle",), ("fault",), ("spark",))
"""The tiers that share a process. Most of their time they wait for servers."""


def main() -> int:
    """Run the tiers; the exit code is pytest's, of the first process that failed."""
    tiers, arguments = _split(sys.argv[1:])
    missing = [tier for tier in tiers if not (ROOT / "tests" / tier).is_dir()]
    if missing or not tiers:
        print(f"run_tests: no such tier: {', '.join(missing) or '(none named)'}", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    # Hundreds of gateways are started; each would compile all modules anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    lanes = [[tier for tier in tiers if tier in lane] for lane in LANES]
    lanes = [lane for lane in lanes if lane]
    if len(lanes) == 1:
        # Exec, so that Ctrl-C and SIGTERM reach pytest itself, which stops its servers.
        os.execv(sys.executable, _command(tiers, arguments))  # noqa: S606 - a list, no shell
    return _run_beside(lanes, arguments)


def _run_beside(lanes: Sequence[Sequence[str]], arguments: Sequence[str]) -> int:
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in lanes[1:]]
        # So that what a process has said is in its file also when it does not come to its end.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        processes = [
            subprocess.Popen(
                _command(lane, arguments),
                stdout=output,
                stderr=output,
                env={**environment, "PGSLUICE_DURATIONS": f"build/durations/{lane[0]}.json"},
            )
            for lane, output in zip(lanes, [None, *outputs], strict=True)
        ]
        _pass_on_signals(processes)
        codes = [process.wait() for process in processes]
        for output in outputs:
            _copy(output)
    for tiers, code in zip(lanes, codes, strict=True):
        print(f"run_tests: {' '.join(tiers)}: exit {code}")
    # A signal's code is negative; any that is not 0 fails the run.
    return next((abs(code) for code in codes if code), 0)


def _pass_on_signals(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ctrl-C reaches the whole process group by itself; wait then, while the servers are stopped.

    SIGTERM reaches this process alone; the servers' guards stop them when pytest is gone. (SIGINT
    would let pytest do it, but a shell starts background jobs with SIGINT ignored.)
    """

    def pass_on(*_: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.terminate()

    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, pass_on)


def _copy(output: IO[bytes]) -> None:
    output.seek(0)
    sys.stdout.flush()
    while piece := output.read(1 << 16):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def _command(tiers: Sequence[str], arguments: Sequence[str]) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pytest",
        *(f"tests/{tier}" for tier in tiers),
        f"--require-tiers={','.join(tiers)}",
        "--durations=10",
        "--durations-min=5",
        *arguments,
    ]


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
