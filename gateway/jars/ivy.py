"""Fetch the jars that ``ivy.xml`` names into the cache folder.

The resolver is the Ivy that ships inside pyspark, so that Java and Python are all that has to be
there. Ivy's own default repository and settings are used. The result has to be exactly what
``ivy.sha256`` lists, file by file (`gateway.jars.checksums`); anything else is refused before
it is unpacked or run. Each configuration is a folder of its own whose name carries a hash of its
dependencies and checksums: a folder that exists is complete (it is filled under another name and
renamed), and a change in either file leads to a new folder.
"""

import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.core.errors import ConfigError, TransientError
from gateway.jars.cache import cache_folder, locked
from gateway.jars.checksums import read_checksums, verify
from gateway.jars.java import java
from gateway.jars.own import own_jar

_TIMEOUT_S = 900
# The registry's parent POM is not published, so this one is resolved without reading POMs.
_WITHOUT_POMS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def folder(configuration: str, *, say: Callable[[str], None] = _say) -> Path:
    """The folder that holds the jars (or the unpacked programs) of ``configuration``.

    They are fetched when they are not in the cache; parallel calls, from other processes too, wait
    for the one that fetches.

    Args:
        configuration: one of those in ``ivy.xml``.
        say: takes lines of progress; nothing is said when nothing has to be fetched.

    Raises:
        ConfigError: no Java, no pyspark, a configuration that ``ivy.xml`` does not have, or a file
            that is not the one that ``ivy.sha256`` lists.
        TransientError: the repository did not give them.
    """
    manifest = manifest_path()
    known = read_checksums(manifest.with_suffix(".sha256"), configuration)
    mark = _fingerprint(manifest, configuration, known)
    target = cache_folder() / "jars" / f"{configuration}-{mark}"
    if target.is_dir():
        return target
    with locked(f"jars-{configuration}"):
        if not target.is_dir():
            target.parent.mkdir(exist_ok=True)
            say(f"fetching the jars of configuration {configuration}")
            scratch = Path(tempfile.mkdtemp(prefix=f".{configuration}-", dir=target.parent))
            try:
                retrieve(manifest, configuration, scratch)
                verify(configuration, scratch, known)
                _unpack(scratch)
                # The server may run as another user than the one who fetches.
                scratch.chmod(0o755)
                scratch.rename(target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
            say(f"fetched {configuration}: {size / 1e6:.0f} MB")
    return target


def jars(configuration: str, *, say: Callable[[str], None] = _say) -> list[Path]:
    """The jar files of ``configuration``, sorted by name; fetched when they are not there.

    Those of ``spark`` include the job's own classes, see `gateway.jars.own`.

    Raises:
        ConfigError: as `folder`.
        TransientError: as `folder`.
    """
    found = sorted(folder(configuration, say=say).glob("*.jar"))
    if configuration == "spark":
        return [*found, own_jar(lambda: jars("java-compiler", say=say), found, say)]
    return found


def manifest_path() -> Path:
    """Return the path of ``ivy.xml``: in the root of a checkout, or in an installation's data.

    Raises:
        ConfigError: it is in neither place.
    """
    candidates = (
        Path(__file__).resolve().parents[2] / "ivy.xml",
        Path(sysconfig.get_path("data")) / "share" / "pgsluice" / "ivy.xml",
    )
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ConfigError(
        "ivy.xml, the manifest of the jars, is not part of this installation",
        hint="install the pgsluice wheel again, or run from a checkout",
    )


def _fingerprint(manifest: Path, configuration: str, known: Mapping[str, str]) -> str:
    """A short hash over the dependencies of ``configuration`` and its checksums, nothing else."""
    tree = ElementTree.parse(manifest)  # noqa: S314 - our own file, not input
    dependencies = [
        ElementTree.canonicalize(ElementTree.tostring(d, "unicode"), strip_text=True)
        for d in tree.iter("dependency")
        if d.get("conf", "").split("->", 1)[0] == configuration
    ]
    if not dependencies:
        raise ConfigError(f"ivy.xml has no configuration {configuration!r}")
    parts = [*dependencies, *(f"{digest} {name}" for name, digest in sorted(known.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "pyspark is not installed, and its Ivy is what fetches the jars",
            hint="install the extra: pip install 'pgsluice[spark]'",
        )
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise ConfigError("this pyspark has no jars/ivy-*.jar", hint="install pyspark 4.1.1")
    return found[-1]


def retrieve(manifest: Path, configuration: str, target: Path) -> None:
    """Let Ivy put the files of ``configuration`` into a folder, as the repository gives them.

    Raises:
        ConfigError: no Java, or no pyspark.
        TransientError: the repository did not give them.
    """
    home = cache_folder() / "ivy"
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            java(),
            f"-Divy.default.ivy.user.dir={home}",
            "-jar",
            str(_ivy_jar()),
            "-warn",
            "-cache",
            str(home / "cache"),
            "-ivy",
            str(manifest),
            "-confs",
            configuration,
            "-retrieve",
            f"{target}/[artifact]-[revision](-[classifier]).[ext]",
        ]
        if configuration == "registry":
            settings = Path(scratch) / "ivysettings.xml"
            settings.write_text(_WITHOUT_POMS)
            command += ["-settings", str(settings)]
            # What was resolved with POMs must not be taken for what was resolved without.
            command[command.index("-cache") + 1] = str(home / "cache-without-poms")
        # Ivy's cache is not made for several writers.
        with locked("ivy"):
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=_TIMEOUT_S,
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
            except subprocess.TimeoutExpired as error:
                raise TransientError(
                    f"fetching the jars of {configuration} took more than {_TIMEOUT_S} s",
                    hint="try again: what has arrived is kept",
                ) from error
    if done.returncode != 0 or not any(target.iterdir()):
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise TransientError(
            f"Ivy could not fetch the jars of {configuration}:\n{tail}",
            hint="check that this machine reaches Maven Central, then try again",
        )


def _unpack(target: Path) -> None:
    """Replace archives among what was fetched by what is in them."""
    for archive in sorted(target.glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="tar")
        archive.unlink()
    for archive in sorted(target.glob("embedded-postgres-binaries-*.jar")):
        with zipfile.ZipFile(archive) as outer:
            (inner,) = (name for name in outer.namelist() if name.endswith(".txz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(inner)), mode="r:xz") as tar:
                tar.extractall(target, filter="tar")
        archive.unlink()
