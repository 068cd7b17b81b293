"""Tables whose names do not permit a topic of their own. Pure.

Kafka allows 249 characters, and treats ``.`` and ``_`` as equal. If the topics of several tables
collide, one table is published; a new table never displaces an existing one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from gateway.core.errors import SchemaError
from gateway.core.names import topic_of
from gateway.core.watermark import CopyState
from gateway.definitions.model import Fault, Plan, TableId

__all__ = ["topic_name_faults"]


def topic_name_faults(
    plan: Plan,
    states: Iterable[CopyState],
    names: Mapping[str, str],
    reserved: Collection[str],
) -> dict[TableId, Fault]:
    """Return why tables cannot have the topic of their name, by subscription and OID.

    A table that already has the topic keeps it. Otherwise a table that the file names takes
    precedence, then the one created first.

    Args:
        plan: Plan with the tables.
        states: Committed states of all tables.
        names: ``[topics] names``.
        reserved: Names of the gateway's own topics.
    """
    known = {(s.subscription, s.oid) for s in states if s.state not in ("held", "missing", "gone")}
    faults: dict[TableId, Fault] = {}
    groups: dict[str, list[tuple[TableId, str]]] = defaultdict(list)
    for subscription, oid in plan.targets:
        table = plan.tables[oid]
        try:
            topic = topic_of(subscription, table.schema, table.name, names)
        except SchemaError as error:
            why = f"{error.message} ({error.hint})"
            faults[subscription, oid] = Fault(why, cause="topic_name")
        else:
            groups[_collision_key(topic)].append(((subscription, oid), topic))
    owned = {_collision_key(name): name for name in reserved}
    for key, members in groups.items():
        members.sort(key=lambda m: (m[0] not in known, m[0] in plan.open_ended, m[0][1], m[0][0]))
        holder = owned.get(key, members[0][1])
        for table_id, topic in members if key in owned else members[1:]:
            why = (
                f"its topic {topic} collides with {holder}, since Kafka does not distinguish "
                "'.' from '_' (give it another name in [topics] names)"
            )
            faults[table_id] = Fault(why, cause="topic_name")
    return faults


def _collision_key(topic: str) -> str:
    return topic.replace(".", "_")
