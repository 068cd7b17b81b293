"""Compose, buildx and the Dockerfile's frontend, built from their Go modules and kept in the cache.

Debian's packages have none of them in the versions that the project needs, and an engine of our own
fetches no image.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.containers.engine import NoEngineError, run

__all__ = ["FRONTEND", "install"]

FRONTEND: Final = "dockerfile-frontend"
"""Name of the program that reads a Dockerfile, in the folder that `install` fills."""


@dataclass(frozen=True, slots=True)
class _Program:
    name: str
    module: str
    version: str
    package: str
    flags: str = ""


_PROGRAMS: Final = (
    _Program(
        FRONTEND,
        "github.com/moby/buildkit",
        "v0.25.1",
        "github.com/moby/buildkit/frontend/dockerfile/cmd/dockerfile-frontend",
    ),
    _Program(
        "docker-compose",
        "github.com/docker/compose/v2",
        "v2.40.3",
        "github.com/docker/compose/v2/cmd",
        "-X github.com/docker/compose/v2/internal.Version=v2.40.3",
    ),
    _Program(
        "docker-buildx",
        "github.com/docker/buildx",
        "v0.29.1",
        "github.com/docker/buildx/cmd/buildx",
        "-X github.com/docker/buildx/version.Version=v0.29.1",
    ),
)


def install(folder: Path) -> Path:
    """Build what is missing, and make plugins of it for the client; the folder of the programs.

    Args:
        folder: of the engine; its ``config`` is the client's configuration.

    Raises:
        NoEngineError: there is no Go to build with.
    """
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    missing = [program for program in _PROGRAMS if not (programs / program.name).is_file()]
    if missing and shutil.which("go") is None:
        raise NoEngineError(
            "an engine was started, and there is no Go to build compose for it with: install Go,"
            " or start Docker with its compose plugin"
        )
    for program in missing:
        _build(program, folder / "go", programs)
    if missing:
        shutil.rmtree(folder / "go", ignore_errors=True)
    plugins = folder / "config" / "cli-plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    for name in ("docker-compose", "docker-buildx"):
        (plugins / name).unlink(missing_ok=True)
        (plugins / name).symlink_to(programs / name)
    return programs


def _build(program: _Program, scratch: Path, programs: Path) -> None:
    began = time.monotonic()
    folder = scratch / program.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "tools.go").write_text(
        f'//go:build tools\n\npackage tools\n\nimport _ "{program.package}"\n'
    )
    environment = {
        **os.environ,
        "GOPATH": str(scratch / "path"),
        "GOCACHE": str(scratch / "cache"),
        "GOFLAGS": "-buildvcs=false -modcacherw",
        "CGO_ENABLED": "0",
    }
    # Renamed when it is complete: a build that is cut off leaves nothing that looks like it.
    made = folder / program.name
    flags = f"-s -w {program.flags}".strip()
    for command in (
        ["go", "mod", "init", "pgsluice.invalid/tools"],
        ["go", "get", f"{program.module}@{program.version}"],
        ["go", "mod", "tidy"],
        ["go", "build", "-trimpath", "-ldflags", flags, "-o", str(made), program.package],
    ):
        run([*command], environment, 3600, folder=folder)
    made.rename(programs / program.name)
    took = time.monotonic() - began
    print(f"containers: built {program.name} in {took:.0f} s", file=sys.stderr, flush=True)
