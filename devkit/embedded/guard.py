"""Guard between us and one server process, so that the server never outlives us.

Run as a script of its own; the first line of standard input is a JSON object that says what to
start. The environment and the arguments in it may hold secrets, and a command line can be read by
every user of the machine. The guard starts the server as its child and then waits for one of two
things: the server ends, or standard input does. Standard input is a pipe that only our process
holds open, and its end means that we are gone, however that came about (``kill -9`` too): the guard
stops the server and removes its folder. The other lines on the pipe are signal numbers for the
server. The first line on standard output is the server's pid.

Why not ``PR_SET_PDEATHSIG`` alone: it fires when the *thread* that started the child ends, so a
server started from a worker thread would die with it. Between the guard (one thread) and the
server that is harmless, so it is set there, for the case that the guard itself is killed.

Imports nothing but the standard library, and nothing of pgsluice: it has to start quickly.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ORPHAN_GRACE_S = 10.0


def main() -> int:
    """Start the server, pass signals on, and report its exit code as our own."""
    first, pending = _first_line()
    spec = json.loads(first)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    # A handler has to be there for the wake-up; what is to be done happens in the loop.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    if libc is not None:
        # What a killed server leaves behind becomes our child, so that we see the end of it.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def die_with_guard() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    identity = {}
    if spec["uid"] is not None:
        identity = {"user": spec["uid"], "group": spec["gid"], "extra_groups": []}
    with Path(spec["log"]).open("ab") as log:
        server = subprocess.Popen(
            spec["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=spec["cwd"],
            env=spec["env"],
            # One thread, so running Python between fork and exec is safe here. It runs after the
            # change of user, which would reset the death signal.
            preexec_fn=die_with_guard,
            start_new_session=True,
            **identity,
        )
    print(server.pid, flush=True)
    sys.stdout.close()

    while server.poll() is None:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 512)
        if 0 in ready:
            got = os.read(0, 512)
            if not got:
                _end_orphan(server, spec["stop_signal"])
                if spec["remove"] is not None:
                    shutil.rmtree(spec["remove"], ignore_errors=True)
                break
            *lines, pending = (pending + got).split(b"\n")
            for line in lines:
                _signal(server, int(line))
    _await_orphans()
    code = server.returncode
    return code if code is not None and code >= 0 else 128 - (code or 0)


def _first_line() -> tuple[bytes, bytes]:
    """Read the first line of standard input; return it, and the bytes after it."""
    got = b""
    while b"\n" not in got:
        part = os.read(0, 1 << 16)
        if not part:
            sys.exit("the guard was given nothing to start")
        got += part
    first, _, rest = got.partition(b"\n")
    return first, rest


def _signal(server: subprocess.Popen[bytes], number: int) -> None:
    """Send ``number`` to the server; SIGKILL goes to all that descends from it as well."""
    if number == signal.SIGKILL:
        # The server is stopped first, so that it starts nothing new while the others are found.
        if server.poll() is None:
            os.kill(server.pid, signal.SIGSTOP)
        for pid in _descendants(server.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    # Popen does not signal a child that it has already reaped.
    server.send_signal(number)


def _end_orphan(server: subprocess.Popen[bytes], stop_signal: int) -> None:
    server.send_signal(stop_signal)
    deadline = time.monotonic() + _ORPHAN_GRACE_S
    while server.poll() is None and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    _signal(server, signal.SIGKILL)
    server.wait()


def _await_orphans() -> None:
    """Reap what the server left behind, until nothing is left or the grace has passed."""
    deadline = time.monotonic() + _ORPHAN_GRACE_S
    while time.monotonic() < deadline:
        try:
            ended, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == 0:
            select.select([], [], [], 0.005)


def _descendants(ancestor: int) -> list[int]:
    """All processes below ``ancestor``, as /proc has them; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:
            continue
        # The name stands in brackets and may hold anything; the parent is the second field after.
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    queue = [ancestor]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


if __name__ == "__main__":
    sys.exit(main())
