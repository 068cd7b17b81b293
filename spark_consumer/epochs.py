"""Runs of a topic's records under one kind of identity: each is applied by a commit of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.decode import Piece, Survey, survey
from spark_consumer.errors import ContractError
from spark_consumer.layout import KeyLayout, key_layout
from spark_consumer.registry import Schemas

__all__ = ["Epoch", "cut_epochs"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """A run of a topic's records under one kind of identity.

    Attributes:
        key: The identity; None for a multiset.
        pieces: The schemas that occur.
        first: First offset.
        last: Last offset.
    """

    key: KeyLayout | None
    pieces: tuple[Piece, ...]
    first: int
    last: int

    @property
    def moves(self) -> bool:
        """Rows change their keys."""
        return any(piece.moves for piece in self.pieces)

    @property
    def removals(self) -> bool:
        """Some change needs a row that is there."""
        return any(piece.removals for piece in self.pieces)


def cut_epochs(mine: DataFrame, found: Survey, schemas: Schemas) -> list[Epoch]:
    """Cut a batch where the replica identity changed: seldom, and then by the offsets.

    Args:
        mine: wire frame of one topic's records, tombstones left out.
        found: what it holds.
        schemas: writer schemas by id.

    Raises:
        ContractError: a change that needs a key has none.
    """
    changing = [piece for piece in found.pieces if piece.changes]
    keys: dict[int | None, KeyLayout | None] = {None: None}
    for piece in changing:
        if piece.key_id is not None:
            keys[piece.key_id] = key_layout(schemas.schema(piece.key_id))
        elif piece.removals:
            raise ContractError(
                f"topic {found.topic}, partition {found.partition}, offsets {found.first} to"
                f" {found.last}: an update or delete has no key",
                hint="the table needs a replica identity: ALTER TABLE ... REPLICA IDENTITY",
            )
    kinds = list(dict.fromkeys(keys[piece.key_id] for piece in changing))
    if len(kinds) <= 1:
        key = kinds[0] if kinds else None
        return [Epoch(key, tuple(changing), found.first, found.last)] if changing else []
    # The number of the kind, record by record; a new run begins where it changes.
    number = reduce(
        lambda sofar, key_id: F.when(
            F.col("key_id").eqNullSafe(F.lit(key_id)), kinds.index(keys[key_id])
        ).otherwise(sofar),
        keys,
        F.lit(0),
    )
    starts = [
        (row["offset"], row["kind"])
        for row in mine.where("op <> 't'")
        .select("offset", number.alias("kind"))
        .withColumn("before", F.expr("lag(kind) OVER (ORDER BY offset)"))
        .where("NOT kind <=> before")
        .orderBy("offset")
        .collect()
    ]
    ends = [offset - 1 for offset, _ in starts[1:]] + [found.last]
    epochs = []
    for (first, kind), last in zip(starts, ends, strict=True):
        held = survey(mine.where(F.col("offset").between(first, last)))[0]
        pieces = tuple(piece for piece in held.pieces if piece.changes)
        epochs.append(Epoch(kinds[kind], pieces, first, last))
    return epochs
