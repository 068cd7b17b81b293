"""Make ``.venv`` from the lock file and fetch the jars: what ``make setup`` runs.

Runs under Python 3.7 or later and imports only the standard library, so that a machine where
something is missing gets an answer that names the package to install instead of a traceback. When
nothing has changed since the last run it does nothing but look at a stamp file, at the cache folder
and at what is compiled (``tools/build_rows.py``).
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".pgsluice-setup"
OLDEST = (3, 11)
NO_COMPILER = 3  # as in tools/build_rows.py
# Whatever changes one of these changes what has to be installed.
INPUTS = ("requirements-uv.lock", "requirements.lock", "pyproject.toml", "tools/setup.py")


def main() -> int:
    """Set up, or say what is missing; the exit code."""
    python = find_python()
    if python is None:
        print(
            "setup: Python 3.11 or later is needed, and this is {}.{}. Install it (Debian 12 and "
            "Ubuntu 24.04 or later: 'apt install python3 python3-venv') or name one: "
            "make setup PYTHON=/path/to/python3".format(*sys.version_info[:2]),
            file=sys.stderr,
        )
        return 1
    fingerprint = inputs_digest()
    if not STAMP.is_file() or STAMP.read_text() != fingerprint:
        code = install(python)
        if code != 0:
            return code
        STAMP.write_text(fingerprint)
    inside = str(VENV / "bin" / "python")
    compile_modules(inside)
    return subprocess.call([inside, "-m", "gateway.jars.fetch"])


def find_python() -> str | None:
    """A Python that is new enough, this one before others; None when there is none."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in (14, 13, 12, 11):
        found = shutil.which("python3.{}".format(minor))  # noqa: UP032 - as above
        if found is not None:
            return found
    return None


def inputs_digest() -> str:
    """A hash over everything that decides what ``.venv`` holds, and over where it stands."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def install(python: str) -> int:
    """Create ``.venv`` when there is none and bring it to the state of the lock; the exit code."""
    inside = VENV / "bin" / "python"
    # A venv whose Python was removed or upgraded away is made again.
    works = inside.exists() and subprocess.call([str(inside), "-c", ""]) == 0
    if not works:
        print("setup: creating .venv", flush=True)
        shutil.rmtree(str(VENV), ignore_errors=True)
        if subprocess.call([python, "-m", "venv", str(VENV)]) != 0:
            print(
                "setup: python -m venv failed. On Debian and Ubuntu: apt install python3-venv",
                file=sys.stderr,
            )
            shutil.rmtree(str(VENV), ignore_errors=True)
            return 1
    pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = [str(VENV / "bin" / "uv"), "pip"]
    env = installer_environment()
    steps = (
        (
            "installing the installer",
            [*pip, "--require-hashes", "-r", str(ROOT / "requirements-uv.lock")],
        ),
        (
            "installing the packages of requirements.lock (Spark alone is 400 MB)",
            [*uv, "install", "--require-hashes", "-r", str(ROOT / "requirements.lock")],
        ),
        (
            "installing pgsluice itself",
            [*uv, "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
        ),
    )
    for what, command in steps:
        print("setup: " + what, flush=True)
        if subprocess.call(command, env=env, stdin=subprocess.DEVNULL) != 0:
            print("setup: failed while " + what, file=sys.stderr)
            return 1
    return 0


def installer_environment() -> dict[str, str]:
    """The variables with which packages are installed into ``.venv``."""
    # Settings of a surrounding virtual environment must not send the packages elsewhere.
    env = dict(os.environ, VIRTUAL_ENV=str(VENV))
    env.setdefault("UV_HTTP_TIMEOUT", "180")
    return env


def compile_modules(inside: str) -> None:
    """Compile what is in C, if need be with a compiler from the package index.

    Without one the gateway goes on interpreted: a failure here is told, and nothing more.
    """
    build = [inside, str(ROOT / "tools" / "build_rows.py")]
    if subprocess.call([*build, "--ask-for-compiler"]) != NO_COMPILER:
        return
    print("setup: installing a C compiler, as the system has none (ziglang, 100 MB)", flush=True)
    uv = [str(VENV / "bin" / "uv"), "pip", "install", "--require-hashes"]
    lock = str(ROOT / "requirements-compiler.lock")
    subprocess.call([*uv, "-r", lock], env=installer_environment(), stdin=subprocess.DEVNULL)
    subprocess.call(build)


if __name__ == "__main__":
    sys.exit(main())
