"""Runs of a topic's records that have the same columns and the same kind of identity.

Each is applied by a commit of its own. Nearly always there is one; where a table's columns or its
replica identity changed there are more, and they are separated by the changes' positions, so that
they are the same over all partitions of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.errors import ContractError
from spark_consumer.kafka.batch_profile import Piece, Survey, of_piece, survey
from spark_consumer.kafka.layout import KeyLayout, Layout, key_layout, value_layout
from spark_consumer.kafka.position import STEPS
from spark_consumer.kafka.registry import Schemas

__all__ = ["Epoch", "cut_epochs"]

_POS = "named_struct('lsn', lsn, 'seq', seq, 'offset', offset)"


@dataclass(frozen=True, slots=True)
class Epoch:
    """A run of a topic's records.

    Attributes:
        key: Replica identity; None for a multiset.
        layout: Columns of the records.
        pieces: Schemas that occur.
        records: Wire frame of its records, without tombstones.
        last: Last offset, by partition.
        is_last: Whether no other epoch follows.
    """

    key: KeyLayout | None
    layout: Layout
    pieces: tuple[Piece, ...]
    records: DataFrame
    last: Mapping[int, int]
    is_last: bool

    @property
    def changes(self) -> int:
        """Number of changes."""
        return sum(piece.changes for piece in self.pieces)

    @property
    def moves(self) -> bool:
        """Whether rows change their keys."""
        return any(piece.moves for piece in self.pieces)

    @property
    def removals(self) -> bool:
        """Whether some change needs an existing row."""
        return any(piece.removals for piece in self.pieces)


def cut_epochs(mine: DataFrame, found: Survey, schemas: Schemas) -> list[Epoch]:
    """Split a frame where the columns or the identity changed.

    Args:
        mine: Wire frame of one topic's records, without tombstones.
        found: Profile of the topic.
        schemas: Writer schemas by ID.

    Raises:
        ContractError: a change that needs a key has none, or there are too many runs.
        TableError: the columns cannot be those of a table.
    """
    changing = tuple(piece for piece in found.pieces if piece.changes)
    kinds = {piece: _kind(piece, found, schemas) for piece in changing}
    ordered = list(dict.fromkeys(kinds.values()))
    if len(ordered) <= 1:
        last = {number: held.last for number, held in found.partitions.items()}
        return [Epoch(key, layout, changing, mine, last, True) for key, layout in ordered]
    # The number of the kind, record by record; a new run begins where it changes.
    number = reduce(
        lambda sofar, piece: F.when(
            of_piece(piece.key_id, piece.value_id), ordered.index(kinds[piece])
        ).otherwise(sofar),
        changing,
        F.lit(-1),
    )
    starts = [
        (row["pos"], row["kind"])
        for row in mine.where("op <> 't'")
        .select(F.expr(_POS).alias("pos"), number.alias("kind"))
        .withColumn("before", F.expr("lag(kind) OVER (ORDER BY pos)"))
        .where("NOT kind <=> before")
        .orderBy("pos")
        .limit(STEPS)
        .collect()
    ]
    if len(starts) == STEPS:
        raise ContractError(
            f"{found.place()}: columns or identity change more than {STEPS - 1} times",
            hint="is the topic written by something else than the gateway?",
        )
    epochs = []
    for index, (pos, kind) in enumerate(starts):
        is_last = index == len(starts) - 1
        inside = f"{_POS} >= {_literal(pos)}" if index else "TRUE"
        if not is_last:
            inside += f" AND {_POS} < {_literal(starts[index + 1][0])}"
        records = mine.where(inside)
        held = survey(records)[found.topic]
        pieces = tuple(piece for piece in held.pieces if piece.changes)
        last = {partition: part.last for partition, part in held.partitions.items()}
        key, layout = ordered[kind]
        epochs.append(Epoch(key, layout, pieces, records, last, is_last))
    return epochs


def _literal(pos: tuple[str, int, int]) -> str:
    lsn, seq, offset = pos
    return f"named_struct('lsn', '{lsn}', 'seq', {seq}L, 'offset', {offset}L)"


def _kind(piece: Piece, found: Survey, schemas: Schemas) -> tuple[KeyLayout | None, Layout]:
    layout = value_layout(schemas.schema(piece.value_id))
    if piece.key_id is not None:
        return key_layout(schemas.schema(piece.key_id)), layout
    if piece.removals:
        raise ContractError(
            f"{found.place()}: an update or delete has no key",
            hint="the table needs a replica identity: ALTER TABLE ... REPLICA IDENTITY",
        )
    return None, layout
