"""Records of one topic, before they are decoded: in a Spark frame, or with the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final, Protocol, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.errors import ContractError
from spark_consumer.kafka.batch_profile import (
    Piece,
    TopicProfile,
    copy_beginnings,
    of_piece,
    survey,
)
from spark_consumer.kafka.position import STEPS
from spark_consumer.kafka.registry import Schemas

__all__ = ["FrameRecords", "TopicRecords", "too_many_runs"]

_POS: Final = "named_struct('lsn', lsn, 'seq', seq, 'offset', offset)"


class TopicRecords(Protocol):
    """Records of one topic. Every method returns others, and leaves these as they are."""

    def survey(self) -> TopicProfile | None:
        """Return their profile; None if there are none.

        Raises:
            ContractError: a record is malformed, or there are too many schemas.
        """

    def without_tombstones(self) -> Self:
        """Return those that have a value."""

    def without_truncates(self) -> Self:
        """Return those that are no `t`."""

    def beyond(self, first: Mapping[int, int]) -> Self:
        """Return those from an offset on, by partition; of other partitions all."""

    def beginnings(self, found: TopicProfile, schemas: Schemas) -> dict[int, tuple[int, int]]:
        """Return the beginnings of copies; see `copy_beginnings`.

        Args:
            found: Their profile.
            schemas: Writer schemas by ID.
        """

    def runs(self, found: TopicProfile, kinds: Mapping[Piece, int]) -> list[tuple[int, Self]]:
        """Return runs of changes of one kind, in the order of their positions.

        Args:
            found: Their profile.
            kinds: Number of the kind, for each piece that has changes.

        Raises:
            ContractError: there are `STEPS` of them, or more.
        """


class FrameRecords:
    """Records in a wire frame; see `spark_consumer.kafka.decode.wire`.

    Args:
        frame: Wire frame of one topic.

    Attributes:
        frame: The same.
    """

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame

    def survey(self) -> TopicProfile | None:
        """See `TopicRecords`."""
        return next(iter(survey(self.frame).values()), None)

    def without_tombstones(self) -> FrameRecords:
        """See `TopicRecords`."""
        return FrameRecords(self.frame.where(F.col("value_id").isNotNull()))

    def without_truncates(self) -> FrameRecords:
        """See `TopicRecords`."""
        return FrameRecords(self.frame.where("op <> 't'"))

    def beyond(self, first: Mapping[int, int]) -> FrameRecords:
        """See `TopicRecords`."""
        frame = self.frame
        for number, offset in first.items():
            frame = frame.where((F.col("partition") != number) | (F.col("offset") >= offset))
        return FrameRecords(frame)

    def beginnings(self, found: TopicProfile, schemas: Schemas) -> dict[int, tuple[int, int]]:
        """See `TopicRecords`."""
        return copy_beginnings(self.frame, found, schemas)

    def runs(
        self, found: TopicProfile, kinds: Mapping[Piece, int]
    ) -> list[tuple[int, FrameRecords]]:
        """See `TopicRecords`."""
        # The number of the kind, record by record; a new run begins where it changes.
        number = reduce(
            lambda sofar, one: F.when(of_piece(one[0].key_id, one[0].value_id), one[1]).otherwise(
                sofar
            ),
            kinds.items(),
            F.lit(-1),
        )
        starts = [
            (row["pos"], row["kind"])
            for row in self.frame.where("op <> 't'")
            .select(F.expr(_POS).alias("pos"), number.alias("kind"))
            .withColumn("before", F.expr("lag(kind) OVER (ORDER BY pos)"))
            .where("NOT kind <=> before")
            .orderBy("pos")
            .limit(STEPS)
            .collect()
        ]
        if len(starts) == STEPS:
            raise too_many_runs(found)
        return [
            (kind, FrameRecords(self.frame.where(_between(starts, index))))
            for index, (_, kind) in enumerate(starts)
        ]


def _between(starts: Sequence[tuple[tuple[str, int, int], int]], index: int) -> str:
    inside = f"{_POS} >= {_literal(starts[index][0])}" if index else "TRUE"
    if index < len(starts) - 1:
        inside += f" AND {_POS} < {_literal(starts[index + 1][0])}"
    return inside


def _literal(pos: tuple[str, int, int]) -> str:
    lsn, seq, offset = pos
    return f"named_struct('lsn', '{lsn}', 'seq', {seq}L, 'offset', {offset}L)"


def too_many_runs(found: TopicProfile) -> ContractError:
    """Return the error for columns or an identity that change too often."""
    return ContractError(
        f"{found.place()}: columns or identity change more than {STEPS - 1} times",
        hint="is the topic written by something else than the gateway?",
    )
