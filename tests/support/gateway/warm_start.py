"""Gateways forked from a process that has imported everything.

Importing the gateway costs more than a second of CPU, and the tests start hundreds of gateways. One
process per test process imports it once, starts no thread, and forks for every gateway: a process
of its own with its own pid, environment, signals, log and exit code, as ``python -m gateway`` makes
it, a few milliseconds later. A keeper between the two reports pid and exit code through a pipe and
ends the gateway when nobody reads that pipe any more, so that no gateway outlives its test process.

What is decided when modules are imported cannot be changed by an environment here, except for the
fail points, which are read again: `needs_own_start` says when a gateway has to be started in full.

A forked gateway that comes to its end waits for its threads, runs what was registered for the exit
and leaves without taking the interpreter down, which would touch, and so copy, all of its memory.
Commands that are started in full (`tests.support.gateway.process`) show that an interpreter ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from gateway.core.descriptors import wait_readable

_PR_SET_PDEATHSIG: Final = 1
_REQUEST_BYTES: Final = 1 << 20
_READ_AT_IMPORT: Final = ("PGSLUICE_INTERPRETED",)
_PRELOADED: Final = (
    "gateway.cli",
    "gateway.commands.run",
    "gateway.core.failpoints",
    "gateway.sink.registry.registry",
    "confluent_kafka.schema_registry",
)

_nursery: socket.socket | None = None
_starting = threading.Lock()
_cpu_s = 0.0


def cpu_seconds_of_forked() -> float:
    """CPU of all forked gateways that have been seen to end, in seconds."""
    return _cpu_s


def needs_own_start(environment: Mapping[str, str]) -> bool:
    """Whether a gateway with this environment cannot be forked."""
    return any(environment.get(name) for name in _READ_AT_IMPORT)


class ForkedProcess:
    """A forked gateway, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        with _starting:
            nursery = _start()
        stderr_read, stderr_write = os.pipe()
        self._report, report_write = os.pipe()
        request = json.dumps({"arguments": list(arguments), "environment": dict(environment)})
        socket.send_fds(nursery, [request.encode()], [stderr_write, report_write])
        os.close(stderr_write)
        os.close(report_write)
        self.stderr = os.fdopen(stderr_read, "rb", buffering=0)
        self.pid = int(self._line())
        self.returncode: int | None = None

    def _line(self) -> str:
        """A line of the keeper's report; empty at its end."""
        found = b""
        while not found.endswith(b"\n") and (piece := os.read(self._report, 1)):
            found += piece
        return found.decode().strip()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None and wait_readable([self._report], 0):
            self._end()
        return self.returncode

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        if self.returncode is None:
            self._end()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        global _cpu_s
        code, _, cpu_s = (self._line() or f"{-signal.SIGKILL} 0").partition(" ")
        self.returncode = int(code)
        _cpu_s += float(cpu_s)
        os.close(self._report)

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _start() -> socket.socket:
    """The connection to this process's nursery, started on first use; it ends with us."""
    global _nursery
    if _nursery is None:
        _nursery, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (_nursery, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.gateway.warm_start", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        # It ends when our end of the socket does; nobody waits for it.
        process.returncode = 0
    return _nursery


# In the nursery


def main() -> int:
    """Import the gateway, then fork for each request until the socket is closed."""
    for name in _PRELOADED:
        importlib.import_module(name)
    # What is made or loaded at first use, once for all.
    importlib.import_module("gateway.cli").command_line()
    registry = importlib.import_module("gateway.sink.registry.registry")
    registry.Registry({"url": "http://127.0.0.1:1"}).close()
    gc.collect()
    gc.freeze()  # a collection in a forked gateway would copy what it looks at
    # Ctrl-C is for the tests, which end what they have started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Keepers are nobody's business.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 2)
            if not data:
                return 0
            stderr, report = descriptors
            if os.fork() == 0:
                requests.close()
                _keep(json.loads(data), stderr, report)
            os.close(stderr)
            os.close(report)


def _keep(request: dict[str, Any], stderr: int, report: int) -> NoReturn:
    """Fork the gateway, report its pid and its end, and end it when nobody listens any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(report)
        _become_gateway(request, stderr)
    os.close(stderr)
    os.write(report, f"{pid}\n".encode())
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(report, 0)  # an error there: its reader is gone
    if all(descriptor != ended for descriptor, _ in poller.poll()):
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    code, cpu_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    with contextlib.suppress(BrokenPipeError):
        os.write(report, f"{code} {cpu_s}\n".encode())
    os._exit(0)


def _become_gateway(request: dict[str, Any], stderr: int) -> NoReturn:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.environ.clear()
    os.environ.update(request["environment"])
    failpoints = importlib.import_module("gateway.core.failpoints")
    importlib.reload(failpoints)
    cli = importlib.import_module("gateway.cli")
    sys.argv[1:] = request["arguments"]
    code = cli.main(request["arguments"])
    # As the interpreter begins its end: wait for threads, then run what was registered.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
