"""Resolve pyproject.toml into the lock files: what ``make lock`` runs.

``requirements.lock`` is everything for development. The two for the container images, and the
tools that build a wheel, are cuts of it, with the same versions. All carry hashes and no address,
so that a client's own settings decide where packages come from. The compiler is installed only
where the system has none.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
LOCKS: dict[str, list[str]] = {
    "requirements-uv.lock": ["requirements-uv.in"],
    "requirements-compiler.lock": ["requirements-compiler.in"],
    "requirements.lock": ["pyproject.toml", "--all-extras", "--group", "dev"],
    "requirements-build.lock": ["requirements-build.in", "-c", "requirements.lock"],
    "requirements-gateway.lock": ["pyproject.toml", "-c", "requirements.lock"],
    "requirements-consumer.lock": [
        "pyproject.toml",
        "--extra",
        "spark",
        "-c",
        "requirements.lock",
    ],
}


def main() -> int:
    """Write all lock files, the complete one before its cuts; the exit code."""
    for output, inputs in LOCKS.items():
        print(f"lock: {output}", flush=True)
        subprocess.run(
            [
                UV,
                "pip",
                "compile",
                "--quiet",
                *inputs,
                "--generate-hashes",
                "--universal",
                "--python-version=3.11",
                "--no-emit-index-url",
                "--no-emit-find-links",
                "--custom-compile-command=make lock",
                *sys.argv[1:],
                "--output-file",
                output,
            ],
            cwd=ROOT,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
