"""Server processes that report when they are ready, and never outlive us.

Every server runs below a guard (`devkit.embedded.guard`) that holds the other end of a pipe of
ours: when we end in whatever way, the pipe closes and the guard stops the server. Signals go
through that pipe as well, so that a pid which now belongs to somebody else is never signalled.
"""

import atexit
import contextlib
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gateway.core.errors import FatalError

_GUARD = Path(__file__).with_name("guard.py")
_POLL_S = 0.02
_LOG_TAIL_LINES = 30


class ServerError(FatalError):
    """An embedded server did not start, or did not stop.

    The message ends with the last lines of its log.
    """


class Server:
    """One server process: running from construction until it ends, is stopped or is killed.

    Args:
        name: what it is, for messages.
        command: program and arguments.
        log: the file that its output is appended to.
        stop_signal: what asks it to end in good order.
        user: account to run as; None for our own.
        env: its whole environment; None for ours.
        cwd: its working directory; None for ``/``.
        remove: folder that the guard removes when we are gone without having stopped the server.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        stop_signal: signal.Signals = signal.SIGTERM,
        user: pwd.struct_passwd | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        remove: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._stop_signal = stop_signal
        self._pipe_lock = threading.Lock()
        specification = {
            "command": [str(part) for part in command],
            "log": str(log),
            "stop_signal": int(stop_signal),
            "uid": user.pw_uid if user else None,
            "gid": user.pw_gid if user else None,
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or "/"),
            "remove": str(remove) if remove else None,
        }
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A session of its own: Ctrl-C in our terminal is for us, we stop the servers in order.
            start_new_session=True,
        )
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.write(json.dumps(specification).encode() + b"\n")
            self._guard.stdin.flush()
        with self._guard.stdout as answer:
            first = answer.readline()
        if not first.strip():
            self._close()
            raise ServerError(f"{name}: {command[0]} could not be started")
        #: The server's process id, as long as it runs.
        self.pid = int(first)
        _running.add(self)

    def returncode(self) -> int | None:
        """The exit code when the server has ended, else None; 128 + n when signal n ended it."""
        return self._guard.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, SIGKILL to all processes below the server, too; no-op when it ended."""
        assert self._guard.stdin is not None
        # A guard that has ended has closed its end; then there is nobody left to be signalled.
        with self._pipe_lock, contextlib.suppress(BrokenPipeError, ValueError):
            self._guard.stdin.write(b"%d\n" % number)
            self._guard.stdin.flush()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; whether it came within ``timeout_s`` seconds."""
        try:
            self._guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._close()
        return True

    def stop(self, timeout_s: float = 15.0) -> None:
        """Ask it to end, and kill it when it has not within ``timeout_s``. May be called again.

        Raises:
            ServerError: not even SIGKILL ended it.
        """
        self.signal(self._stop_signal)
        if not self.wait(timeout_s):
            self.kill()

    def kill(self) -> None:
        """``kill -9`` for the server and all processes below it; returns when they have ended.

        Raises:
            ServerError: the process is still there ten seconds later.
        """
        self.signal(signal.SIGKILL)
        if not self.wait(10.0):
            raise ServerError(f"{self.name}: process {self.pid} does not end on SIGKILL")

    def await_ready(self, probe: Callable[[], bool], timeout_s: float) -> None:
        """Call ``probe`` until it says True.

        Raises:
            ServerError: the server ended meanwhile, or ``timeout_s`` passed; the server is killed.
        """
        deadline = time.monotonic() + timeout_s
        pause = threading.Event()
        while not probe():
            code = self.returncode()
            if code is not None:
                self._close()
                raise ServerError(f"{self.name} ended with code {code}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerError(
                    f"{self.name} was not ready after {timeout_s:.0f} s:\n{self.log_tail()}"
                )
            pause.wait(_POLL_S)

    def await_success(self, timeout_s: float) -> None:
        """Wait until it has done its work, for programs that end by themselves.

        Raises:
            ServerError: it failed, or ``timeout_s`` passed; then it is killed.
        """
        if not self.wait(timeout_s):
            self.kill()
            raise ServerError(f"{self.name} took more than {timeout_s:.0f} s")
        if self.returncode() != 0:
            raise ServerError(f"{self.name} failed:\n{self.log_tail()}")

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """The last lines of its log."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.splitlines()[-lines:])

    def _close(self) -> None:
        _running.discard(self)
        if self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        self._guard.wait()


_running: weakref.WeakSet[Server] = weakref.WeakSet()


@atexit.register
def stop_all() -> None:
    """Stop every server that is still running, all at once. Runs by itself when Python ends."""
    servers = list(_running)
    for server in servers:
        server.signal(server._stop_signal)
    for server in servers:
        server.stop()


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_answers(port: int) -> bool:
    """Whether something accepts connections on 127.0.0.1:``port``."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def ordinary_user() -> pwd.struct_passwd | None:
    """The account for servers that refuse to run as root; None when we are not root ourselves.

    Raises:
        ServerError: we are root and there is neither ``postgres`` nor ``nobody``.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerError("PostgreSQL does not run as root, and there is no user postgres or nobody")


def reachable_by_others(path: Path) -> bool:
    """Whether every folder above ``path``, and ``path``, lets other users through."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents))


def scratch_folder(prefix: str, parent: Path | None = None) -> Path:
    """A new folder for a server's data, in ``parent`` and reachable by others.

    Args:
        prefix: How its name begins.
        parent: None for the system's temporary folder. If it is closed to other users,
            ``/var/tmp`` takes its place.
    """
    base = parent or Path(tempfile.gettempdir())
    if not reachable_by_others(base):
        base = Path("/var/tmp")  # noqa: S108 - mkdtemp makes a private folder below it
    return Path(tempfile.mkdtemp(prefix=prefix, dir=base))
