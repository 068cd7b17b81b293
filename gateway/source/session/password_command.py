"""Passwords printed by a command, one for each connection: tokens of managed services.

The command runs without a shell, as the leader of a process group that is killed at its time limit.
Neither its output nor its error output is ever shown, since both can have the password.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import subprocess
import time
from typing import IO, Final

from psycopg import conninfo

from gateway.core.descriptors import wait_readable
from gateway.core.dsn import Dsn
from gateway.core.errors import AccessError, ConfigError, GatewayError, TransientError
from gateway.core.shortage import shortage
from schemas.settings.fields import PREFIX

__all__ = ["HINT", "TIME_LIMIT_S", "with_password"]

TIME_LIMIT_S: Final = 30.0
"""Time that the command has, in seconds."""
_LONGEST: Final = 16 << 10
"""Largest output in bytes: tokens of Azure have up to some 4 KB."""
HINT: Final = (
    "run source.password_command (filters.password_command) by hand, as the gateway's user and in "
    "its environment; its output is not logged, because it can be the password"
)
_PASSING: Final = frozenset({errno.EAGAIN, errno.ETXTBSY})
"""No process can be started now, or the program is just being written."""


def with_password(dsn: str, *, time_limit_s: float = TIME_LIMIT_S) -> str:
    """Return `dsn` with the password that its command prints; unchanged if it has none.

    Raises:
        ConfigError: the program does not exist or cannot be executed.
        AccessError: the output is no password.
        TransientError: the command fails or takes too long, or no process can be started now.
    """
    command = Dsn.command_of(dsn)
    if command is None:
        return dsn
    password = _run(command, time_limit_s)
    return Dsn(conninfo.make_conninfo(dsn, password=password), command)


def _run(command: str, time_limit_s: float) -> str:
    try:
        process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={name: text for name, text in os.environ.items() if not name.startswith(PREFIX)},
        )
    except OSError as error:
        raise _not_started(error) from None
    assert process.stdout is not None
    deadline = time.monotonic() + time_limit_s
    try:
        output = _read(process.stdout, deadline)
        if len(output) > _LONGEST:
            raise AccessError(
                f"the password command has printed more than {_LONGEST:,} bytes", hint=HINT
            )
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        raise TransientError(
            f"the password command has not ended after {time_limit_s:g} s", hint=HINT
        ) from None
    finally:
        process.stdout.close()
        if process.returncode is None:  # until it is waited for, nobody else has its number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status:
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        raise TransientError(f"the password command has failed: {how}", hint=HINT)
    return _password(output)


def _not_started(error: OSError) -> GatewayError:
    why = f"the password command cannot be started: {os.strerror(error.errno or 0)}"
    if error.errno in _PASSING:
        return TransientError(why, hint="see the limit of processes (ulimit -u, TasksMax)")
    return shortage(error) or ConfigError(
        why, hint="name the program of source.password_command or filters.password_command by path"
    )


def _read(output: IO[bytes], deadline: float) -> bytes:
    """Read until the end or just beyond `_LONGEST`.

    Raises:
        TimeoutError: it has not ended by then; a process that was left behind keeps it open, too.
    """
    descriptor, read = output.fileno(), b""
    while len(read) <= _LONGEST:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if wait_readable([descriptor], left):
            part = os.read(descriptor, 4096)
            if not part:
                break
            read += part
    return read


def _password(output: bytes) -> str:
    """Return the one line that was printed.

    Raises:
        AccessError: it is empty, several lines or not text.
    """
    try:
        text = output.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = "\0"
    if not text:
        raise AccessError("the password command has printed nothing", hint=HINT)
    if any(character in text for character in "\0\r\n"):
        raise AccessError("the password command has printed no single line of text", hint=HINT)
    return text
