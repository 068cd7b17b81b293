"""Everything that judges the code without running it: what ``make check`` runs.

All of them run, also when one has found something, so that one run shows all there is to mend.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CHECKS: dict[str, list[str]] = {
    "formatting": ["ruff", "format", "--check", "--quiet", "."],
    "lint": ["ruff", "check", "--quiet", "."],
    "types": ["mypy", "."],
    "layers": ["lint-imports", "--no-logo"],
    "uses": ["python", "tools/unused.py"],
    "docs": ["python", "-m", "tools.docs"],
}


def main() -> int:
    """Run the checks named on the command line, by default all; 1 when one found something."""
    failed = []
    for name in sys.argv[1:] or CHECKS:
        program, *arguments = CHECKS[name]
        done = subprocess.run(
            [BIN / program, *arguments],
            cwd=ROOT,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode == 0:
            print(f"check: {name} ok", flush=True)
        else:
            failed.append(name)
            print(done.stdout, end="", flush=True)
            print(f"check: {name} FAILED", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
