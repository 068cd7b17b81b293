"""Command: which topics, which of their records, and output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from gateway.commands.table_names import find_table, first_name, split_name
from gateway.commands.tail.lines import change_line, change_object
from gateway.config import Settings
from gateway.core.display import say, shown
from gateway.core.errors import ConfigError
from gateway.core.names import transaction_topic
from gateway.sink.reading.commit_order import Since, follow
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import list_topics
from schemas.table_names import quoted_name
from schemas.topic_names import topic_identifier, topic_part

__all__ = ["tail", "topics_of"]

_MOST_GUESSES = 3
_HINT = (
    "write SUBSCRIPTION, SUBSCRIPTION.TABLE or SUBSCRIPTION.SCHEMA.TABLE; `pgsluice status` lists "
    "them, and `pgsluice run` makes the topics"
)


def tail(
    settings: Settings,
    what: str,
    *,
    from_beginning: bool = False,
    since: Since | None = None,
    to_end: bool = False,
    limit: int | None = None,
    as_json: bool = False,
) -> int:
    """Print a line for each change of ``SUBSCRIPTION`` or ``SUBSCRIPTION.[SCHEMA.]TABLE``.

    Returns:
        1 when records could not be read, which the log names; else 0.

    Args:
        settings: Settings of the gateway, for Kafka and the registry.
        what: Changes to show.
        from_beginning: Whether to include changes that are in Kafka already.
        since: Lower bound of those to include, instead.
        to_end: Whether to stop at the current end.
        limit: Number of changes after which to stop, at least 1.
        as_json: Whether a line is a JSON object.

    Raises:
        ConfigError: there is no such topic.
        TransientError: Kafka or the registry cannot be reached.
    """
    known = list_topics(settings.kafka)
    subscription, topics = topics_of(what, known, settings.topics.names)
    markers = transaction_topic(subscription)
    if markers not in known and not to_end:
        raise ConfigError(
            f"Kafka has no topic {markers}",
            hint="changes are shown transaction by transaction, which its records delimit",
        )
    describe = change_object if as_json else change_line
    left, unreadable = limit, 0

    def begun() -> None:
        if not to_end:
            say(f"following {what}; Ctrl-C ends it", to=sys.stderr)

    with closing(Registry(settings.registry)) as registry:
        records = follow(
            settings.kafka,
            registry,
            topics,
            markers if markers in known else None,
            from_beginning=from_beginning,
            since=since,
            to_end=to_end,
            begun=begun,
        )
        with closing(records):
            for record in records:
                unreadable += not record.is_readable
                line = describe(record)
                if line is None:
                    continue
                say(line)
                if left is not None and (left := left - 1) == 0:
                    break
    return 1 if unreadable else 0


def topics_of(
    what: str, known: Sequence[str], names: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Return the subscription that `what` names, and topics of its tables that are `known`.

    Raises:
        ConfigError: there is none.
    """
    parts = [tuple(map(topic_identifier, topic.split("."))) for topic in known]
    subscriptions = {each[0] for each in parts if len(each) in (2, 3)}
    subscriptions |= {name.partition(".")[0] for name in names}
    subscription, table = _split(what, subscriptions)
    tables = {
        (schema, name): f"{topic_part(subscription)}.{topic_part(schema)}.{topic_part(name)}"
        for of, schema, name in (each for each in parts if len(each) == 3)
        if of == subscription
    }
    for full, topic in names.items():
        if full.startswith(f"{subscription}.") and topic in known:
            schema, _, name = full.removeprefix(f"{subscription}.").partition(".")
            tables[schema, name] = topic
    if not tables:
        raise ConfigError(
            f"Kafka has no topic for {what}", hint=f"{shown(_guess(what, parts))}{_HINT}"
        )
    if table is None:
        return subscription, tuple(sorted(set(tables.values())))
    key = f"subscription {subscription}"
    found = find_table(table, tables, key=key, absent="Kafka has no topic for table", hint=_HINT)
    return subscription, (tables[found],)


def _guess(what: str, topics: Iterable[tuple[str, ...]]) -> str:
    """Ask whether a table of some subscription is meant; empty if `what` names none."""
    named = split_name(what)
    owners = {
        each[0] for each in topics if named and len(each) == 3 and each[1:][-len(named) :] == named
    }
    guesses = [quoted_name((owner, *named)) for owner in sorted(owners)[:_MOST_GUESSES]]
    return f"did you mean {' or '.join(guesses)}? " if guesses else ""


def _split(what: str, subscriptions: set[str]) -> tuple[str, str | None]:
    """Return the subscription that a name begins with, and the rest; see `find_table`."""
    name, rest = first_name(what)
    if name in subscriptions:
        return name, rest
    as_written = [each for each in subscriptions if f"{what}.".startswith(f"{each}.")]
    name = max(as_written, key=len, default=name)
    return name, what.removeprefix(f"{name}.") if what != name else None
