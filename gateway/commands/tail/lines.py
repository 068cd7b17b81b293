"""One record as a line: in SQL's words, or as a JSON object."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from datetime import UTC
from typing import Any, Final

from gateway.core.lsn import format_lsn, parse_lsn
from gateway.sink.reading.topic_reader import Followed

__all__ = ["change_line", "change_object"]

_LONGEST: Final = 60
_MOST_ITEMS: Final = 20
_OF_A_CHANGE: Final = frozenset({"op", "before", "after", "source", "unchanged"})
_OF_A_ROW: Final = frozenset({"__op", "__lsn", "__deleted"})
_INFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_VERBS: Final = {"c": "INSERT", "u": "UPDATE", "d": "DELETE", "r": "COPY"}


def change_line(record: Followed) -> str | None:
    """Describe a record in one line; None if the record before or after describes the change.

    ``2026-03-01 10:00:00.123Z  A/16B3748  745  nsw.public.orders  INSERT id=3``
    """
    value = record.value
    if value is None or record.headers.get("rekey") == "old":
        return None
    if value.keys() >= _OF_A_ROW and value["__op"] in _VERBS:
        row = {name: one for name, one in value.items() if name not in _OF_A_ROW}
        deleted = value["__op"] == "d"
        did = f"{_VERBS[value['__op']]} {_shown(_known(row) if deleted else row)}"
    elif _is_change(value):
        did = _did(value, record.headers.get("rekey"))
    else:
        return None  # a marker, or a record of another writer
    time = record.time.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    lsn, xid = _lsn(record.headers.get("lsn")) or "", record.headers.get("xid", "-")
    return f"{time}  {lsn}  {xid}  {record.topic}  {did}"


def change_object(record: Followed) -> str | None:
    """Return a record as a JSON object in one line; None if it is no change.

    Values are as in the topic. Bytes (as PostgreSQL prints them), decimals, NaN and the infinities,
    for which JSON has no value, are texts.
    """
    value, headers = record.value, record.headers
    if value is None:
        return None
    if value.keys() >= _OF_A_ROW and value["__op"] in _VERBS:
        row = {name: one for name, one in value.items() if name not in _OF_A_ROW}
        op = value["__op"]
        before, after = (row, None) if op == "d" else (None, row)
        source, unchanged = {}, []
    elif _is_change(value):
        op, before, after = value["op"], value["before"], value["after"]
        source, unchanged = value["source"], value["unchanged"]
    else:
        return None
    found = {
        "time": record.time.astimezone(UTC).isoformat("T", "microseconds").replace("+00:00", "Z"),
        "lsn": _lsn(headers.get("lsn")),
        "commit_lsn": _lsn(headers.get("commit_lsn")),
        "xid": _number(headers.get("xid")),
        "seq": _number(headers.get("seq")),
        "topic": record.topic,
        "schema": source.get("schema"),
        "table": source.get("table"),
        "op": op,
        "rekey": headers.get("rekey"),
        "before": before,
        "after": after,
        "unchanged": unchanged,
    }
    return json.dumps(_plain(found), ensure_ascii=False)


def _lsn(text: str | None) -> str | None:
    """Return an LSN as PostgreSQL prints it; headers pad it, another writer's have anything."""
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        return format_lsn(parse_lsn(text))
    return text


def _number(text: str | None) -> int | None:
    return int(text[:20]) if text is not None and text.isascii() and text.isdigit() else None


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _INFINITE.get(str(value), str(value))


def _is_change(value: Mapping[str, Any]) -> bool:
    """Whether it has the structure of a change, whoever has written it."""
    if not value.keys() >= _OF_A_CHANGE or value["op"] not in ("c", "u", "d", "t", "r"):
        return False
    before, after, unchanged = value["before"], value["after"], value["unchanged"]
    whole = isinstance(after, Mapping) or value["op"] in ("d", "t")
    parts = all(one is None or isinstance(one, Mapping) for one in (before, after))
    source, listed = isinstance(value["source"], Mapping), isinstance(unchanged, list)
    if not (whole and parts and source and listed) or "identity" not in value["source"]:
        return False
    names = all(isinstance(name, str) for name in unchanged)
    return names and (not before or not after or before.keys() <= after.keys())


def _did(value: Mapping[str, Any], rekey: str | None) -> str:
    before, after = value["before"], value["after"]
    match value["op"]:
        case "t":
            return "TRUNCATE"
        case "d":
            return f"DELETE {_shown(_known(before or {}))}"
        case "r":
            return f"COPY {_shown(after)}"
        case "c" if rekey != "new":
            return f"INSERT {_shown(after)}"
    unsent = set(value["unchanged"])
    whole = value["source"]["identity"] == "f"
    old = {} if before is None else before if whole else _known(before)
    changed = [name for name in old if name not in unsent and old[name] != after[name]]
    if whole and before is not None:
        same = {name: old[name] for name in old if name not in changed}
        moves = ", ".join(f"{n} {_text(old[n])} -> {_text(after[n])}" for n in changed)
        return f"UPDATE {_shown(same)}: {moves or 'nothing'}"
    reported = {name: v for name, v in after.items() if name not in unsent}
    left = f", unchanged: {', '.join(sorted(unsent))}" if unsent else ""
    moved = f"{_shown(old)} to " if changed else ""
    return f"UPDATE {moved}{_shown(reported)}{left}"


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the logged columns of an old row; the others read as NULL."""
    return {name: value for name, value in values.items() if value is not None}


def _shown(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_text(value)}" for name, value in values.items()) or "()"


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        more = ["..."] if len(value) > _MOST_ITEMS else []
        return f"{{{','.join([*map(_text, value[:_MOST_ITEMS]), *more])}}}"
    text = value.hex() if isinstance(value, bytes) else str(value)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 3]}..."
    plain = text and not any(c.isspace() or c in "=,'" for c in text)
    return text if plain else "'" + text.replace("'", "''").replace("\n", "\\n") + "'"
