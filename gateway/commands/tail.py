"""``pgsluice tail``: the changes of a subscription as they are published, in SQL's words."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from gateway.config import Settings
from gateway.core.display import say
from gateway.core.errors import ConfigError
from gateway.core.names import topic_of, topic_part, transaction_topic
from gateway.sink.reading.topic_reader import Followed, follow, list_topics
from gateway.sink.registry.registry import Registry

__all__ = ["change_line", "tail", "topics_of"]

_SCHEMA: Final = "public"
_LONGEST: Final = 60
_MOST_ITEMS: Final = 20
_OF_A_CHANGE: Final = frozenset({"op", "before", "after", "source", "unchanged"})
_OF_A_ROW: Final = frozenset({"__op", "__lsn", "__deleted"})
_VERBS: Final = {"c": "INSERT", "u": "UPDATE", "d": "DELETE", "r": "COPY"}


def tail(
    settings: Settings, what: str, *, from_beginning: bool = False, to_end: bool = False
) -> int:
    """Print a line for each change of ``SUBSCRIPTION`` or ``SUBSCRIPTION.[SCHEMA.]TABLE``.

    Returns:
        1 when records could not be read, which the log names; else 0.

    Args:
        settings: Settings of the gateway, for Kafka and the registry.
        what: Changes to show.
        from_beginning: Whether to include changes that are in Kafka already.
        to_end: Whether to stop at the current end.

    Raises:
        ConfigError: there is no such topic.
        TransientError: Kafka or the registry cannot be reached.
    """
    topics = topics_of(what, list_topics(settings.kafka), settings.topics.names)
    unreadable = 0
    with closing(Registry(settings.registry)) as registry:
        for record in follow(
            settings.kafka, registry, topics, from_beginning=from_beginning, to_end=to_end
        ):
            unreadable += not record.is_readable
            line = change_line(record)
            if line is not None:
                say(line)
    return 1 if unreadable else 0


def topics_of(what: str, known: list[str], names: Mapping[str, str]) -> list[str]:
    """Return the topics of tables that `what` names, among those that are `known`.

    Raises:
        ConfigError: there is none.
    """
    subscription, _, table = what.partition(".")
    if table:
        schema, point, name = table.partition(".")
        wanted = {topic_of(subscription, *((schema, name) if point else (_SCHEMA, table)), names)}
    else:
        begin, markers = f"{topic_part(subscription)}.", transaction_topic(subscription)
        wanted = {topic for topic in known if topic.startswith(begin) and topic != markers}
        wanted |= {topic for of, topic in names.items() if of.startswith(f"{subscription}.")}
    found = sorted(wanted.intersection(known))
    if not found:
        raise ConfigError(
            f"Kafka has no topic of {what}",
            hint="write SUBSCRIPTION, SUBSCRIPTION.TABLE or SUBSCRIPTION.SCHEMA.TABLE; `pgsluice "
            "status` lists them, and `pgsluice run` makes the topics",
        )
    return found


def change_line(record: Followed) -> str | None:
    """Describe a record in one line; None if the record before or after describes the change.

    ``0000000A/16B3748  nsw.public.orders  UPDATE id=3: amount 10.50 -> 12.00``
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
    return f"{record.headers.get('lsn', '')}  {record.topic}  {did}"


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
