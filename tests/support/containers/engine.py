"""A container engine for the tests: the one that answers, or one that root starts for this run.

An engine of our own keeps its data in the cache folder, and is reached by a socket there: no other
program finds it. It changes no rule of the host's firewall, its containers have no way out, and it
knows no registry of images; the images that the project builds on are stand-ins (`stand_ins`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devkit.embedded.processes import Server
from gateway.jars.cache import cache_folder, locked

__all__ = ["Engine", "NoEngineError", "engine", "run"]

_PACKAGES: Final = {"dockerd": "docker.io", "debootstrap": "debootstrap", "iptables": "iptables"}
"""Debian's packages by the program that is needed of each."""


class NoEngineError(Exception):
    """No engine answers, and none can be started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine that answers.

    Attributes:
        environment: of the processes that use it.
        own: the folder of an engine that was started for this run; None for one that was there.
    """

    environment: Mapping[str, str]
    own: Path | None

    def docker(self, *arguments: str | Path, timeout_s: float = 600) -> str:
        """Run the client; its standard output. A failure raises with what it said."""
        return run(["docker", *arguments], self.environment, timeout_s)


def run(
    command: list[str | Path],
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600,
    *,
    folder: Path | None = None,
) -> str:
    """Run a command; its standard output.

    Raises:
        AssertionError: it failed; with the end of all that it said.
    """
    __tracebackhide__ = True  # the environment is nobody's business
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )
    said = f"{done.stdout}\n{done.stderr}".strip().splitlines()
    shown = " ".join(str(part) for part in command[:6])
    assert done.returncode == 0, f"{shown} ... ended with {done.returncode}:\n" + "\n".join(
        said[-40:]
    )
    return done.stdout


@contextmanager
def engine() -> Iterator[Engine]:
    """Yield the engine that answers, or start one; what was started is stopped afterwards.

    Raises:
        NoEngineError: neither is possible.
    """
    if _answers(os.environ):
        yield Engine(dict(os.environ), None)
        return
    if os.geteuid() != 0:
        raise NoEngineError(
            "no container engine answers (docker info), and only root can start one here:"
            " start Docker, name one in DOCKER_HOST, or run this as root"
        )
    _install()
    with ExitStack() as stack:
        folder = cache_folder() / "containers"
        folder.mkdir(exist_ok=True)
        stack.enter_context(locked("containers"))
        yield _start(folder, stack)


def _answers(environment: Mapping[str, str]) -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        done = subprocess.run(
            ["docker", "info", "--format", "{{.ServerVersion}}"],
            env=environment,
            capture_output=True,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def _install() -> None:
    missing = [package for name, package in _PACKAGES.items() if shutil.which(name) is None]
    if not missing:
        return
    apt = shutil.which("apt-get")
    if apt is None:
        raise NoEngineError(
            "no container engine answers (docker info), and there is no apt-get to install one"
            " with: start Docker, or name one in DOCKER_HOST"
        )
    print(f"containers: installing {', '.join(missing)}", file=sys.stderr, flush=True)
    # RUNLEVEL=1: no package starts a service.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    try:
        run([apt, "-qq", "update"], quiet)
        run([apt, "-qq", "-y", "install", "--no-install-recommends", *missing], quiet)
    except AssertionError as error:
        raise NoEngineError(
            f"no container engine answers, and none can be installed: {error}"
        ) from None


def _start(folder: Path, stack: ExitStack) -> Engine:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "run").mkdir(exist_ok=True)
    socket = folder / "docker.sock"
    (folder / "docker.pid").unlink(missing_ok=True)
    nowhere = "http://127.0.0.1:9"
    server = Server(
        "the container engine",
        [
            "dockerd",
            f"--data-root={folder / 'data'}",
            f"--exec-root={folder / 'run'}",
            f"--pidfile={folder / 'docker.pid'}",
            f"--host=unix://{socket}",
            "--storage-driver=overlay2",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
            "--bridge=none",
            # A block that is reserved for documents: no real network has it.
            "--default-address-pool=base=198.51.100.0/24,size=27",
        ],
        log=folder / "dockerd.log",
        # An image that is not here is missing at once: no registry is asked for it.
        env={**os.environ, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere},
    )
    stack.callback(server.stop, 120)
    environment = {
        **os.environ,
        "DOCKER_HOST": f"unix://{socket}",
        "DOCKER_CONFIG": str(folder / "config"),
        "DOCKER_BUILDKIT": "1",
    }
    server.await_ready(lambda: _answers(environment), timeout_s=240)
    return Engine(environment, folder)
