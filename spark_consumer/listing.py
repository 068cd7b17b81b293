"""Lists of the rebuilt tables: where they are, what they have, and when they changed.

Everything is in small files beside the tables. On a local disk no JVM is started to read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.topic_names import topic_identifier
from spark_consumer.display import shown
from spark_consumer.errors import TableError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.choice import table_details
from spark_consumer.formats.commit_metadata import NO_VERSION
from spark_consumer.names import history_name, lsn_text, table_folder
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.local_folder import LocalFolder, ReadableFolder, local_path
from spark_consumer.states.manifests import Manifest, ManifestReader
from spark_consumer.states.points import find_state

__all__ = ["is_local", "print_tables"]

_OpenFolder = Callable[[str], ReadableFolder]


def print_tables(settings: ConsumerSettings, *, at: str | None, as_json: bool) -> None:
    """Print the tables of all subscriptions at a point.

    A subscription without a state there hides no other one.

    Args:
        settings: Settings of the job.
        at: LSN or time, as text; None for now.
        as_json: Whether to print an object in one line for each subscription.

    Raises:
        SettingsError: `at` is neither.
        TableError: a subscription has no state at that point; the others have been printed.
        TransientConsumerError: the file system fails.
    """
    missing: list[TableError] = []
    with _folders(settings) as open_folder:
        for subscription in settings.subscriptions:
            reader = ManifestReader.opened(open_folder, settings.warehouse, subscription)
            try:
                manifest = find_state(reader, subscription, at)
            except TableError as error:
                missing.append(error)
                continue
            found = _listed(manifest, subscription, settings, open_folder)
            lines = [json.dumps(found, ensure_ascii=False)] if as_json else _lines(found)
            for line in lines:
                print(shown(line), flush=True)
    if missing:
        raise TableError("; ".join(one.message for one in missing), hint=missing[0].hint)


def is_local(warehouse: str, spark: Mapping[str, str]) -> bool:
    """Whether a warehouse is on a local disk, so that nothing is needed to list its tables."""
    return local_path(warehouse, spark) is not None


@contextmanager
def _folders(settings: ConsumerSettings) -> Iterator[_OpenFolder]:
    """Yield what opens folders: through Spark only where they are not on a local disk."""
    if is_local(settings.warehouse, settings.spark):
        yield lambda path: LocalFolder(local_path(path, settings.spark) or path)
        return
    from spark_consumer.spark.files import Folder
    from spark_consumer.spark.session import open_session

    with open_session(settings) as spark:
        yield lambda path: Folder(spark, path)


def _listed(
    manifest: Manifest, subscription: str, settings: ConsumerSettings, open_folder: _OpenFolder
) -> dict[str, Any]:
    warehouse, catalog = settings.warehouse, Catalog.of(settings, subscription)

    def place(name: str) -> dict[str, str]:
        path = table_folder(warehouse, subscription, name)
        return {"path": path, **({} if catalog is None else {"name": catalog.shown(path)})}

    tables = []
    newest = manifest.commit_time or 0
    for name in sorted({*manifest.tables, *manifest.copies, *manifest.held_by_gateway}):
        path = table_folder(warehouse, subscription, name)
        state = manifest.tables.get(name)
        details = None if state is None else table_details(open_folder, path, state.version)
        commit = None if details is None else details.commit
        if commit is not None:  # not all commits of a source have times in the order of their LSNs
            newest = max(newest, commit.position.commit_time or 0)
        tables.append(
            {
                "table": topic_identifier(name),
                **place(name),
                "version": None if state is None else state.version,
                "rows": None if details is None else details.rows,
                "last_change_lsn": None if commit is None else lsn_text(commit.position.end_lsn),
                "last_change": None if commit is None else _time(commit.position.commit_time),
                **_state(manifest, name),
            }
        )
    histories = [
        {
            "table": topic_identifier(name),
            **place(history_name(name)),
            "version": one.version if one.version != NO_VERSION else None,
            "complete_until": lsn_text(one.end_lsn),
            "reason": None if one.held is None else one.held.reason,
        }
        for name, one in sorted(manifest.histories.items())
    ]
    return {
        "subscription": subscription,
        "from": lsn_text(manifest.since_lsn),
        "up_to": lsn_text(manifest.end_lsn),
        "time": _time(newest),
        "tables": tables,
        **({"histories": histories} if histories else {}),
        "incomplete": manifest.missing(),
    }


def _state(manifest: Manifest, name: str) -> dict[str, str | None]:
    if name in manifest.held_by_job:
        return {"state": "held by the job", "reason": manifest.held_by_job[name].reason}
    if name in manifest.held_by_gateway:
        return {"state": "held by the gateway", "reason": manifest.held_by_gateway[name]}
    return {"state": manifest.copies.get(name, "ready"), "reason": None}


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"subscription: {found['subscription']}"
    yield f"from: {found['from']}"
    yield f"up to: {found['up_to']}" + (f" ({found['time']})" if found["time"] else "")
    for one in found["tables"]:
        parts = [one["state"]]
        if one["version"] is not None:
            rows = "number of rows not known" if one["rows"] is None else f"{one['rows']} rows"
            parts += [f"version {one['version']}", rows]
        if one["last_change_lsn"] is not None:
            at = f" ({one['last_change']})" if one["last_change"] else ""
            parts.append(f"last change {one['last_change_lsn']}{at}")
        yield f"table {one['table']}: {', '.join(parts)}"
        if one["version"] is not None:
            yield _place(one)
    for one in found.get("histories", ()):
        state = "held" if one["reason"] is not None else f"version {one['version']}"
        yield f"history of {one['table']}: {state}, complete until {one['complete_until']}"
        yield _place(one)
    for line in found["incomplete"]:
        yield f"incomplete: {line}"


def _place(one: Mapping[str, Any]) -> str:
    return f"  {one['path']}" + (f", in the catalog {one['name']}" if "name" in one else "")


def _time(microseconds: int | None) -> str | None:
    """Return a time as text in ISO 8601; None if it is not known, or Python's dates lack it."""
    try:
        since = timedelta(microseconds=microseconds or 0)
        text = (datetime(1970, 1, 1, tzinfo=UTC) + since).isoformat()
    except OverflowError:
        return None
    return text.replace("+00:00", "Z") if microseconds else None
