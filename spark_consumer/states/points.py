"""The state at a point: the newest one at or before an LSN or a time."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from spark_consumer.errors import SettingsError, TableError
from spark_consumer.names import lsn_number, lsn_text
from spark_consumer.states.manifests import Manifest, ManifestReader

__all__ = ["find_state", "why_none"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def find_state(manifests: ManifestReader, subscription: str, at: str | datetime | None) -> Manifest:
    """Return the newest state at or before a point.

    Args:
        manifests: Manifests of the subscription.
        subscription: Its name, for errors.
        at: LSN (``16/B374D848``), or time, as text in ISO 8601 or as a value; a time without a
            zone is UTC; None for the newest of all.

    Raises:
        SettingsError: `at` is neither an LSN nor a time.
        TableError: there is no such state.
    """
    if at is None:
        manifest = manifests.newest()
    elif isinstance(at, str) and (lsn := lsn_number(at)) is not None:
        manifest = manifests.at(lsn=lsn)
    else:
        manifest = manifests.at(commit_time=_microseconds(at))
    if manifest is not None:
        return manifest
    which = "state yet" if at is None else f"state at or before {at}"
    raise TableError(f"subscription {subscription} has no {which}", hint=why_none(manifests))


def why_none(manifests: ManifestReader) -> str:
    """Return the hint of an error that there is no state at or before a point."""
    oldest = manifests.oldest()
    if oldest is None:
        return "the Spark job stores one with its first cut"
    where = lsn_text(oldest.highest_lsn)
    if oldest.highest_time:
        with suppress(OverflowError):  # a year that Python's dates lack
            committed = _EPOCH + timedelta(microseconds=oldest.highest_time)
            where += f", committed at {committed.isoformat(timespec='seconds')}"
    if oldest.number == 0:
        return f"the job's first state is that of {where}"
    return f"older states than that of {where} are removed (keep_hours)"


def _microseconds(at: str | datetime) -> int:
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise SettingsError(
                f"{at!r} is neither an LSN nor a time", hint="for example 16/B374D848, 2026-03-01"
            ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int((at - _EPOCH).total_seconds() * 1_000_000)
