"""The job's settings from a TOML file, and from the environment.

The file is the gateway's, or one of its own with the same tables: ``[kafka]``, ``[registry]`` and
``[consumer]`` are read, and nothing else, so that the job needs to know nothing of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from schemas.settings import parser
from schemas.settings.fields import SettingError
from spark_consumer.display import logger
from spark_consumer.errors import SettingsError
from spark_consumer.settings import ConsumerSettings, with_connections

__all__ = ["load_settings"]

_log = logger(__name__)


def load_settings(
    given: Path | None = None, environment: Mapping[str, str] | None = None
) -> ConsumerSettings:
    """Read the file, by default the usual one, then the environment.

    Raises:
        SettingsError: as `schemas.settings.parser.parse` says. The message names the key.
    """
    try:
        parsed = parser.parse(given, environment, only=("consumer", "kafka", "registry"))
    except SettingError as error:
        raise SettingsError(str(error), hint=error.hint) from error
    for warning in parsed.warnings:
        _log.warning("%s", warning)
    tables = parsed.tables
    return with_connections(tables["consumer"], tables["kafka"], tables["registry"])
