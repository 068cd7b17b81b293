"""Random histories of a table, written as topic records and as the apply worker's steps at once."""

from __future__ import annotations

import random
from typing import Any

from tests.support.spark.apply_worker import KeyedTable, Multiset
from tests.support.spark.records import Col, TableTopic

KEYED_COLUMNS = [
    Col("id", "string", "numeric"),
    Col("a", "int", "integer"),
    Col("big_x0020_text", "string", "text", "big text"),
]
BIG = "big_x0020_text"
BAG_COLUMNS = [Col("x", "double", "double precision"), Col("y", "string", "text")]


def keyed_history(
    chance: random.Random, topic: TableTopic, model: KeyedTable, *, changes: int, keys: int
) -> None:
    """Puts, updates, deletes, key changes (of absent rows too), TOAST, few truncates.

    Where the topic has another key than the table, an update that changes it is a key change.
    """

    def key() -> str:
        return f"{chance.randrange(keys)}{chance.choice(['', '.0', '.00'])}"

    def row(identity: str) -> dict[str, Any]:
        big = chance.choice([None, "", "x" * chance.randrange(1, 9)])
        return {"id": identity, "a": chance.choice([None, chance.randrange(99)]), BIG: big}

    def identified(identity: str) -> dict[str, Any]:
        if topic.identity is None:
            return {"id": identity}
        there = model.rows.get(model.identity({"id": identity}))
        return {"id": identity, "a": chance.randrange(99) if there is None else there["a"]}

    lsn, seq = 100, 0
    for number in range(changes):
        lsn, seq = (lsn + 8, 1) if chance.random() < 0.3 else (lsn, seq + 2)
        old = identified(key())
        new = row(chance.choice([old["id"], old["id"].split(".")[0]]))
        unchanged = chance.choice([[], [], [BIG]])
        sent = new | dict.fromkeys(unchanged)
        match chance.choices("cudmt", weights=[30, 30, 15, 24, 1])[0]:
            case "c":
                topic.change("c", lsn, seq, after=sent, unchanged=unchanged)
                model.insert(sent)
            case "u" if topic.identity is not None and old["a"] != new["a"]:
                topic.rekey(lsn, seq, before=old, after=sent, unchanged=unchanged)
                model.update(new, new, unchanged)
            case "u":
                topic.change("u", lsn, seq, before=None, after=sent, unchanged=unchanged)
                model.update(new, new, unchanged)
            case "d":
                topic.change("d", lsn, seq, before=old)
                model.delete(old)
            case "m":
                new["id"] = sent["id"] = key()
                topic.rekey(lsn, seq, before=old, after=sent, unchanged=unchanged)
                model.update(old, new, unchanged)
            case _ if number > changes // 2:
                topic.truncate(lsn, seq)
                model.truncate()


def bag_history(
    chance: random.Random, topic: TableTopic, model: Multiset, *, changes: int, values: int
) -> None:
    """Inserts with duplicates, updates and deletes of rows, some of them absent; few truncates."""

    def row() -> dict[str, Any]:
        number = chance.randrange(values)
        return {"x": None if number == 0 else number / 2, "y": chance.choice([None, "p"])}

    lsn, seq = 100, 0
    for number in range(changes):
        lsn, seq = (lsn + 8, 1) if chance.random() < 0.3 else (lsn, seq + 2)
        old, new = row(), row()
        match chance.choices("cudmt", weights=[50, 20, 20, 9, 1])[0]:
            case "c":
                topic.change("c", lsn, seq, after=new)
                model.insert(new)
            case "u":
                topic.change("u", lsn, seq, before=old, after=new)
                model.update(old, new)
            case "d":
                topic.change("d", lsn, seq, before=old)
                model.delete(old)
            case "m":
                topic.rekey(lsn, seq, before=old, after=new)
                model.update(old, new)
            case _ if number > changes // 2:
                topic.truncate(lsn, seq)
                model.truncate()
