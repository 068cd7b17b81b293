"""The programs of examples/, and Flink SQL in a process of its own, with the files of a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.jars.java import java
from tests.support.backends.connect import fetched
from tests.support.backends.servers import BRIEF_JAVA

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def printed(command: Sequence[str | Path], **environment: str) -> list[str]:
    """The lines that a program prints, which must end well."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,  # beside many other tests
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def compilable(configuration: str) -> list[Path]:
    """The folder of the jars that a single Java file needs, which Java compiles as it runs it."""
    if not shutil.which("javac"):
        pytest.skip("no Java compiler is installed here (Debian: apt install default-jdk-headless)")
    return fetched([configuration])


def flink_rows(program: str, topic: str, kafka: str, registry: str) -> list[list[str]]:
    """Return the rows of a query as Flink prints them: the kind of each, and its columns."""
    (jars,) = compilable("flink")
    folder = EXAMPLES / "flink"
    classes = f"{jars}/*"
    lines = printed(
        [java(), *BRIEF_JAVA.split(), "-cp", classes, folder / "RunSql.java", folder / program],
        TOPIC=topic,
        BOOTSTRAP_SERVERS=kafka,
        REGISTRY=registry,
    )
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in cells if row and row[0] in ("+I", "-U", "+U", "-D")]
