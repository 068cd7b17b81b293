"""Starts of the job that come to nothing: no jars, and SIGTERM while the JVM starts."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.java, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[3]
CONFIG = """
[source]
dsn = "dbname=nowhere"
[definitions]
file = "replication.sql"
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[registry]
url = "http://127.0.0.1:1"
[consumer]
subscriptions = ["s"]
"""
DEFINITIONS = "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"


def jvm_of(pid: int) -> int | None:
    """The JVM that the process has started, None before it has."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                return int(child)
    return None


def test_without_jars_the_job_says_so_before_a_jvm_starts(tmp_path: Path) -> None:
    (tmp_path / "pgsluice.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "spark_consumer", "--config", str(tmp_path / "pgsluice.toml")]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60 * PATIENCE, check=False
    )

    assert ended.returncode == 1
    assert "Spark has no class pgsluice.small.SmallTable: no jar is named" in ended.stderr
    assert "with all jars of dist/jars" in ended.stderr
    # All lines are the job's own.
    assert len(ended.stderr.splitlines()) <= 3, ended.stderr


@pytest.mark.parametrize("program", [["gateway", "consume"], ["spark_consumer"]], ids="-".join)
def test_sigterm_while_the_jvm_starts_is_a_stop(program: list[str], tmp_path: Path) -> None:
    """It ends at once, as stopped, and takes the JVM with it."""
    config = CONFIG
    if program == ["gateway", "consume"]:
        (tmp_path / "replication.sql").write_text(DEFINITIONS)
        config = config.replace('subscriptions = ["s"]', "")
    else:  # which would not start a JVM without jars
        config += 'spark = { "spark.jars" = "/nowhere.jar" }\n'
    (tmp_path / "pgsluice.toml").write_text(config)
    command = [sys.executable, "-m", *program, "--config", str(tmp_path / "pgsluice.toml")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            jvm = wait_until(lambda: jvm_of(process.pid), 60, "the JVM")
            process.terminate()

            assert process.wait(60 * PATIENCE) == 0
        finally:
            process.kill()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert jvm is not None
    wait_until(lambda: not Path(f"/proc/{jvm}").exists(), 60, "the end of the JVM")
