"""A Delta table at a version, by the text files of its log alone.

The log has a file of actions for each version. Beside many a version Delta writes a checksum that
lists all files of a small table; on top of the newest one, or of nothing, the actions say which
files a later version has. Checkpoints are Parquet, and are not read. Source: Delta's protocol,
"Delta Log Entries", "Actions", "Version Checksum File".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.spark.local_folder import ReadableFolder

__all__ = ["LOG", "last_commit", "rows_at"]

LOG: Final = "_delta_log"
"""Folder of a table's log."""
_MOST: Final = 1000
"""Number of versions until which a checksum is searched."""


def last_commit(log: ReadableFolder, version: Version) -> Commit | None:
    """Return the metadata of the job's last commit until a version; None if it is not known."""
    for action in _actions(log, version) or ():
        info = action.get("commitInfo")
        if isinstance(info, Mapping):
            return Commit.from_text(info.get("userMetadata"))
    return None


def rows_at(log: ReadableFolder, version: Version) -> int | None:
    """Return the number of rows at a version; None if these files do not say it."""
    changes = []
    for number in range(version, max(version - _MOST, -1), -1):
        files = _listed(log, number)
        if files is None:
            actions = _actions(log, number)
            if actions is None:
                return None
            changes.append(actions)
            files = {} if number == 0 else None
        if files is not None:
            return _counted(files, reversed(changes))
    return None


def _counted(files: dict[str, Any], changes: Iterator[list[dict[str, Any]]]) -> int | None:
    for actions in changes:
        for action in actions:
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
    total = 0
    for one in files.values():
        rows = json.loads(one.get("stats") or "{}").get("numRecords")
        if rows is None:
            return None
        total += rows - (one.get("deletionVector") or {}).get("cardinality", 0)
    return total


def _listed(log: ReadableFolder, version: int) -> dict[str, Any] | None:
    """Return the files in a version's checksum, by path; None if it does not list them."""
    text = log.read(f"{version:020d}.crc")
    try:
        files = None if text is None else json.loads(text).get("allFiles")
    except ValueError:
        return None  # half written
    return None if files is None else {one["path"]: one for one in files}


def _actions(log: ReadableFolder, version: int) -> list[dict[str, Any]] | None:
    text = log.read(f"{version:020d}.json")
    return None if text is None else [json.loads(line) for line in text.splitlines() if line]
