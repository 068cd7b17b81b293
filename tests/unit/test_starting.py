"""SIGTERM while a program starts: it ends at once, also as the first process of a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.run.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
DAEMONS = (["-m", "gateway", "run"], ["-m", "gateway", "consume"], ["-m", "spark_consumer"])
ORDINARY = 143, -signal.SIGTERM
"""How a program ends that SIGTERM reaches before its first line: as stopped, too."""


def alone() -> Sequence[str]:
    """The command that makes what follows the first process of its own, or nothing."""
    command = ("unshare", "--pid", "--fork")
    done = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if done.returncode == 0 else ()


@contextmanager
def started(
    arguments: Sequence[str], config: Path, *before: str
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*before, sys.executable, *arguments, "--config", str(config)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def only_child(pid: int) -> int:
    found: list[int] = []

    def there() -> bool:
        found[:] = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return bool(found)

    wait_until(there, 60, "a child process")
    return found[0]


def never_answering(folder: Path) -> Path:
    """A configuration that takes hours to parse: the time grows as the square of a key's parts."""
    path = folder / "pgsluice.toml"
    path.write_text(".".join("a" * 1_000_000) + " = 1\n")
    return path


@pytest.mark.parametrize("arguments", DAEMONS, ids=lambda words: " ".join(words[1:]))
def test_sigterm_before_a_command_has_begun_is_a_stop(
    arguments: Sequence[str], tmp_path: Path
) -> None:
    with started(arguments, never_answering(tmp_path)) as process:
        assert process.stderr is not None
        wait_until(lambda: installed(process.pid), 60, "a handler for SIGTERM")
        process.terminate()

        assert process.wait(60 * PATIENCE) == 0
        assert process.stderr.read().endswith("stopped while it started\n")


def installed(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM."""
    (mask,) = (
        line.split()[1]
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt")
    )
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("arguments", DAEMONS, ids=lambda words: " ".join(words[1:]))
def test_sigterm_in_the_first_instant_is_a_stop(arguments: Sequence[str], tmp_path: Path) -> None:
    with started(arguments, never_answering(tmp_path)) as process:
        process.terminate()

        assert process.wait(60 * PATIENCE) in (0, *ORDINARY)


@pytest.mark.skipif(not alone(), reason="no process namespaces can be made here")
@pytest.mark.parametrize("arguments", DAEMONS, ids=lambda words: " ".join(words[1:]))
def test_the_first_process_of_a_container_is_ended_while_it_imports(
    arguments: Sequence[str], tmp_path: Path
) -> None:
    # Without a handler the kernel throws the signal away.
    with started(arguments, never_answering(tmp_path), *alone()) as process:
        inner = only_child(process.pid)
        wait_until(lambda: installed(inner), 60, "a handler for SIGTERM")
        os.kill(inner, signal.SIGTERM)

        assert process.wait(60 * PATIENCE) == 0


def test_handlers_come_before_everything_that_takes_time() -> None:
    for program in ("gateway", "spark_consumer"):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys, {program}.__main__; print(*sys.modules)"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        heavy = {
            "argparse",
            "logging",
            "psycopg",
            "pyspark",
            "confluent_kafka",
            "prometheus_client",
        }
        assert not heavy & set(done.stdout.split()), program


def test_ctrl_c_while_a_command_starts_shows_no_traceback() -> None:
    program = (
        "import signal\n"
        "from gateway.starting import stop_while_starting\n"
        "with stop_while_starting(daemon=False):\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (130, "pgsluice: stopped while it started\n")


def test_afterwards_signals_do_to_a_command_what_they_always_do() -> None:
    program = (
        "import signal\n"
        # A shell that starts something in the background lets it ignore SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from gateway.starting import stop_while_starting\n"
        "with stop_while_starting(daemon=False):\n"
        "    pass\n"
        "try:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)

    assert done.returncode == -signal.SIGTERM


def test_a_second_signal_ends_the_gateway_at_once() -> None:
    program = (
        "import signal\n"
        "from gateway.commands.signals import stop_on_signals\n"
        "with stop_on_signals() as flag:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    assert flag.is_set()\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)

    assert done.returncode == 128 + signal.SIGINT
