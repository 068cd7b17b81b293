"""Password commands: what each of their ends becomes, and that their output is never shown."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.core.dsn import Dsn
from gateway.core.errors import AccessError, ConfigError, GatewayError, TransientError
from gateway.source.session.connection import connection_string
from gateway.source.session.password_command import with_password
from tests.support.run.waiting import wait_until

SECRET = "t0ken-of-a-cloud"


def password_of(command: str, *, time_limit_s: float = 30.0) -> str:
    dsn = connection_string(Dsn("host=h user=u", command), application_name="x")
    found = with_password(dsn, time_limit_s=time_limit_s)
    assert Dsn.command_of(found) == command
    return str(conninfo_to_dict(found)["password"])


def test_the_password_is_the_one_line_that_the_command_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGSLUICE_SOURCE__DSN", "not for the command")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    assert password_of(f"echo '{SECRET} with blanks and \"quotes\"'") == (
        f'{SECRET} with blanks and "quotes"'
    )
    assert password_of("printf '%s' x") == "x"
    assert password_of("sh -c 'echo $AWS_REGION:$PGSLUICE_SOURCE__DSN'") == "eu-west-1:"
    assert password_of("sh -c 'printf x; printf %016380d 0; exit 0'") == "x" + "0" * 16380
    assert with_password("host=h password=x") == "host=h password=x"


@pytest.mark.parametrize(
    ("command", "kind", "text"),
    [
        ("true", AccessError, "printed nothing"),
        ("echo", AccessError, "printed nothing"),
        (f"printf '{SECRET}\\nsecond'", AccessError, "no single line"),
        (f"printf '{SECRET}\\000'", AccessError, "no single line"),
        (f"printf '{SECRET}\\377'", AccessError, "no single line"),
        (f"yes {SECRET}", AccessError, "more than 16,384 bytes"),
        (f"sh -c 'echo {SECRET}; echo {SECRET} >&2; exit 3'", TransientError, "exit status 3"),
        (f"sh -c 'echo {SECRET}; kill -9 $$'", TransientError, "signal 9"),
        ("/nowhere/aws rds", ConfigError, "cannot be started: No such file"),
        ("/etc", ConfigError, "cannot be started: Permission denied"),
    ],
)
def test_every_other_end_is_an_error_without_the_output(
    capfd: pytest.CaptureFixture[str], command: str, kind: type[GatewayError], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        password_of(command)

    assert type(caught.value) is kind
    assert SECRET not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("command", ["sleep 1000", "sh -c 'sleep 1000 & echo x'"])
def test_a_command_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, command: str
) -> None:
    pid = tmp_path / "pid"
    text = f"sh -c {shlex.quote(f'echo $$ > {pid}; exec {command}')}"

    def killed() -> int | None:
        """The group of processes that was killed; None: it had not begun, on a busy machine."""
        with pytest.raises(TransientError, match="has not ended after 1 s"):
            password_of(text, time_limit_s=1.0)
        return int(pid.read_text() or 0) if pid.exists() else None

    group = wait_until(killed, 60, "a command that begins before it is killed")
    wait_until(lambda: group not in running_groups(), 30, "the end of the command's processes")


def running_groups() -> set[int]:
    groups = set()
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # no process, or one that has ended
            state, _, group = (one / "stat").read_text().rpartition(")")[2].split()[:3]
            if state != "Z":
                groups.add(int(group))
    return groups


def test_a_machine_that_can_start_no_process_now_may_be_asked_again() -> None:
    script = """
import os, resource
from gateway.core.dsn import Dsn
from gateway.core.errors import TransientError
from gateway.source.session.password_command import with_password
if os.getuid() == 0:  # for whom the limit does not count
    os.setgid(65534), os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    with_password(Dsn("host=h", "true"))
except TransientError as error:
    print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert "cannot be started: Resource temporarily unavailable" in done.stdout
