"""Find the Java that runs Kafka, the registry, Ivy and Spark: 17 or 21."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from gateway.core.errors import ConfigError

SUPPORTED = (17, 21)
_INSTALL = (
    "install OpenJDK 17 or 21 (Debian and Ubuntu: 'apt install openjdk-17-jre-headless'; "
    "Fedora: 'dnf install java-21-openjdk-headless') or let JAVA_HOME name one"
)


@cache
def java_home() -> Path:
    """The home of a Java 17 or 21: ``$JAVA_HOME``, else the ``java`` on the path.

    A ``$JAVA_HOME`` with another version gives way to a ``java`` on the path that fits.

    Raises:
        ConfigError: neither is a version that Spark and Kafka run on; says what to install.
    """
    seen: list[str] = []
    for source, executable in _candidates():
        major = _major(executable)
        if major in SUPPORTED:
            return executable.resolve().parent.parent
        seen.append(f"{source} has {'no Java that starts' if major is None else f'Java {major}'}")
    raise ConfigError(
        "Java 17 or 21 is needed; " + ("; ".join(seen) if seen else "there is no java here"),
        hint=_INSTALL,
    )


def java() -> str:
    """The path of the ``java`` program of `java_home`."""
    return str(java_home() / "bin" / "java")


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path is not None:
        found.append(("PATH", Path(on_path)))
    return found


def _major(executable: Path) -> int | None:
    """The major version that ``executable`` reports; None when it cannot be run."""
    try:
        answer = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)', answer.stderr)
    return int(version.group(1)) if version else None
