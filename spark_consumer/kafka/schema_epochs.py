"""Runs of a topic's records that have the same columns and the same kind of identity.

Each is applied by a commit of its own. Nearly always there is one; where a table's columns or its
replica identity changed there are more, and they are separated by the changes' positions, so that
they are the same over all partitions of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_consumer.errors import ContractError
from spark_consumer.kafka.batch_profile import Piece, TopicProfile
from spark_consumer.kafka.layout import KeyLayout, Layout, identity_layout, value_layout
from spark_consumer.kafka.records import TopicRecords
from spark_consumer.kafka.registry import Schemas

__all__ = ["Epoch", "cut_epochs", "kind_of"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """A run of a topic's records.

    Attributes:
        key: Replica identity; None for a multiset.
        layout: Columns of the records.
        pieces: Schemas that occur.
        records: Its records, without tombstones.
        last: Last offset, by partition.
        is_last: Whether no other epoch follows.
    """

    key: KeyLayout | None
    layout: Layout
    pieces: tuple[Piece, ...]
    records: TopicRecords
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


def cut_epochs(mine: TopicRecords, found: TopicProfile, schemas: Schemas) -> list[Epoch]:
    """Split records where the columns or the identity changed.

    Args:
        mine: Records of one topic, without tombstones.
        found: Profile of the topic.
        schemas: Writer schemas by ID.

    Raises:
        ContractError: a change that needs a key has none, or there are too many runs.
        TableError: the columns cannot be those of a table.
    """
    changing = tuple(piece for piece in found.pieces if piece.changes)
    kinds = {piece: kind_of(piece, found, schemas) for piece in changing}
    ordered = list(dict.fromkeys(kinds.values()))
    if len(ordered) <= 1:
        last = {number: one.last for number, one in found.partitions.items()}
        return [Epoch(key, layout, changing, mine, last, True) for key, layout in ordered]
    runs = mine.runs(found, {piece: ordered.index(kinds[piece]) for piece in changing})
    epochs = []
    for index, (kind, records) in enumerate(runs):
        profile = records.survey()
        assert profile is not None
        pieces = tuple(piece for piece in profile.pieces if piece.changes)
        last = {partition: part.last for partition, part in profile.partitions.items()}
        key, layout = ordered[kind]
        epochs.append(Epoch(key, layout, pieces, records, last, index == len(runs) - 1))
    return epochs


def kind_of(piece: Piece, found: TopicProfile, schemas: Schemas) -> tuple[KeyLayout | None, Layout]:
    """Return the identity and the columns of records.

    Raises:
        ContractError: a change that needs a key has none.
        TableError: the columns cannot be those of a table.
    """
    value = schemas.schema(piece.value_id)
    layout = value_layout(value)
    key = None if piece.key_id is None else schemas.schema(piece.key_id)
    if key is None and piece.removals:
        raise ContractError(
            f"{found.place()}: an update or delete has no key",
            hint="the table needs a replica identity: ALTER TABLE ... REPLICA IDENTITY",
        )
    return identity_layout(value, key), layout
