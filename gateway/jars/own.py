"""The Spark job's own Java classes, compiled into the cache folder on first use.

Their sources are part of the package (the folders ``java`` in ``spark_consumer``). The compiler is
Eclipse's, which Ivy fetches as it does all jars: a Java runtime is enough, and has none of its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from gateway.core.errors import ConfigError, TransientError
from gateway.jars.cache import cache_folder, locked
from gateway.jars.java import java

__all__ = ["own_jar"]

_RELEASE: Final = "17"
_NAME: Final = "pgsluice-spark.jar"
_TIMEOUT_S: Final = 300


def own_jar(
    compiler: Callable[[], Sequence[Path]], uses: Sequence[Path], say: Callable[[str], None]
) -> Path:
    """Return the jar of the job's classes; compile it if it is not in the cache.

    Args:
        compiler: Returns the jars of the compiler; called if there is something to compile.
        uses: Jars that the classes use, besides those of pyspark.
        say: Takes lines of progress.

    Raises:
        ConfigError: no Java, no pyspark, or the classes do not compile.
        TransientError: they took too long to compile.
    """
    sources = _sources()
    target = cache_folder() / "jars" / f"own-{_digest(sources, uses)}" / _NAME
    if target.is_file():
        return target
    with locked("jars-own"):
        if not target.is_file():
            say("compiling the Java classes of the Spark job")
            scratch = Path(tempfile.mkdtemp(prefix=".own-", dir=cache_folder() / "jars"))
            try:
                _compile(sources, compiler(), [*_pyspark_jars(), *uses], scratch / "classes")
                _pack(scratch / "classes", scratch / _NAME)
                shutil.rmtree(scratch / "classes")
                scratch.chmod(0o755)
                scratch.rename(target.parent)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return target


def _sources() -> list[Path]:
    spec = importlib.util.find_spec("spark_consumer")
    if spec is None or spec.origin is None:
        raise ConfigError("the Spark job is not part of this installation")
    return sorted(Path(spec.origin).parent.rglob("java/pgsluice/*/*.java"))


def _digest(sources: Iterable[Path], jars: Iterable[Path]) -> str:
    digest = hashlib.sha256(_RELEASE.encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    for jar in jars:
        digest.update(jar.name.encode())
    return digest.hexdigest()[:12]


def _pyspark_jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "pyspark is not installed", hint="install the extra: pip install 'pgsluice[spark]'"
        )
    return sorted((Path(spec.origin).parent / "jars").glob("*.jar"))


def _compile(
    sources: Sequence[Path], compiler: Iterable[Path], uses: Iterable[Path], into: Path
) -> None:
    command = [
        java(),
        "-cp",
        ":".join(map(str, compiler)),
        "org.eclipse.jdt.internal.compiler.batch.Main",
        # Not --release: it takes files that only a JDK has, where Java is newer.
        "-source",
        _RELEASE,
        "-target",
        _RELEASE,
        "-nowarn",
        "-d",
        str(into),
        "-cp",
        ":".join(map(str, uses)),
        *map(str, sources),
    ]
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
            f"compiling the Java classes of the Spark job took more than {_TIMEOUT_S} s"
        ) from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ConfigError(f"the Java classes of the Spark job do not compile:\n{tail}")


def _pack(classes: Path, into: Path) -> None:
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as jar:
        for path in sorted(classes.rglob("*.class")):
            # With a fixed time, so that the same sources make the same jar.
            entry = zipfile.ZipInfo(str(path.relative_to(classes)), (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            jar.writestr(entry, path.read_bytes())
