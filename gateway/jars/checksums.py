"""SHA-256 of every file that Ivy may fetch: ``ivy.sha256``, beside ``ivy.xml``.

A line is ``<sha256>  <configuration>/<file>``; ``make jars`` writes them again after a change of
``ivy.xml``. A repository that gives another file than on that day, or one more, is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from gateway.core.errors import ConfigError

__all__ = ["lines_of", "read_checksums", "verify"]


def read_checksums(path: Path, configuration: str) -> dict[str, str]:
    """Return the SHA-256 of each file of a configuration, by its name.

    Raises:
        ConfigError: the list is not there, cannot be read, or has nothing for the configuration.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(
            f"{path.name}, the checksums of the jars, cannot be read: {error.strerror}",
            hint="install the pgsluice wheel again, or run from a checkout",
        ) from error
    found = {}
    for line in lines:
        digest, _, place = line.partition("  ")
        of, _, name = place.partition("/")
        if of == configuration:
            found[name] = digest
    if not found:
        raise ConfigError(f"{path.name} lists no file of configuration {configuration!r}")
    return found


def lines_of(configuration: str, folder: Path) -> Iterable[str]:
    """Yield the lines for the files in a folder, by name."""
    for file in sorted(folder.iterdir()):
        yield f"{_digest(file)}  {configuration}/{file.name}"


def verify(configuration: str, folder: Path, known: Mapping[str, str]) -> None:
    """Compare the files in a folder with the list.

    Args:
        configuration: For messages.
        folder: Has what was fetched, and nothing else.
        known: SHA-256 by file name.

    Raises:
        ConfigError: a file is another one, is not listed, or is missing.
    """
    there = {file.name: file for file in folder.iterdir()}
    if unknown := sorted(set(there) - set(known)):
        raise _refused(f"{', '.join(unknown)} of configuration {configuration} is not in the list")
    if missing := sorted(set(known) - set(there)):
        raise _refused(f"{', '.join(missing)} of configuration {configuration} was not fetched")
    for name, file in sorted(there.items()):
        if (digest := _digest(file)) != known[name]:
            raise _refused(
                f"{name} of configuration {configuration} has the SHA-256 {digest}, "
                f"where the list has {known[name]}"
            )


def _refused(what: str) -> ConfigError:
    return ConfigError(
        f"the fetched jars are not those of ivy.sha256: {what}",
        hint="remove the folder `ivy` from the cache folder and fetch them again; if that does not "
        "help, the repository gives another file than the one that was tested: do not use it",
    )


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
