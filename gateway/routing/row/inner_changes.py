"""First look at a transaction: what it does to the tables of sub-selects.

Sets count as of a transaction's end, so its changes of inner tables come before its first row. Its
frames are read twice only where there are sub-selects, and of a frame that concerns none only the
tag and the OID.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from gateway.pgoutput.decoder import decode_message
from gateway.pgoutput.frames import XLOGDATA_HEADER, oid_position
from gateway.pgoutput.messages import Delete, Insert, Relation, Truncate, Update
from gateway.rowfilter import fill_unchanged
from gateway.subselects.following import FollowedTransaction, Following
from gateway.subselects.views import TableViews
from gateway.transactions import Transaction

__all__ = ["InnerChanges", "InnerRelation"]

_ROWS: Final = b"IUD"
_OTHERS: Final = b"RT"

InnerRelation: TypeAlias = tuple[int, TableViews | str]
"""OID of a table as which sub-selects name a relation, itself or a tree, and views of its rows; a
text is the reason why these cannot be read."""


class InnerChanges:
    """Reader of the changes of inner tables.

    Args:
        following: Sets and moves.
        relation: Returns what an announced relation is: nothing if no sub-select reads it; also
            given is whether its transaction is committed.
        leaves: Returns the OIDs of the leaves of an inner table.
    """

    def __init__(
        self,
        following: Following,
        relation: Callable[[Relation, bool], Sequence[InnerRelation]],
        leaves: Callable[[int], Collection[int]] = lambda oid: (),
    ) -> None:
        self._following = following
        self._relation = relation
        self._leaves = leaves
        self._relations: dict[int, tuple[Relation, bool]] = {}
        self._known: dict[int, Sequence[InnerRelation]] = {}

    def learn(self, relation: Relation, *, committed: bool = True) -> None:
        """Note a relation as it is announced.

        Args:
            relation: The message.
            committed: Whether its transaction is; one that is prepared may be rolled back.
        """
        self._relations[relation.relation_oid] = relation, committed
        found = self._relation(relation, committed)
        if found:
            self._known[relation.relation_oid] = found
        else:
            self._known.pop(relation.relation_oid, None)

    def learn_again(self) -> None:
        """Look at all announced relations again: trees have other partitions."""
        for relation, committed in list(self._relations.values()):
            self.learn(relation, committed=committed)

    def reads(self, oid: int) -> bool:
        """Whether changes of a relation concern a set."""
        return oid in self._known

    def begin(self, transaction: Transaction) -> FollowedTransaction:
        """Begin with a transaction: the sets are those of its end afterwards.

        Raises:
            ProtocolError: a message does not parse.
            FilterEvaluationError: a plain filter fails on a row.
            SetBrokenError: a set does not agree with its table.
        """
        followed = self._following.begin(transaction.xid)
        at = oid_position(streamed=transaction.streamed)
        for frames in transaction.frames():
            for frame in frames:
                tag = frame[XLOGDATA_HEADER]
                if tag in _ROWS:
                    if (oid := int.from_bytes(frame[at : at + 4])) in self._known:
                        for inner in self._known[oid]:
                            self._change(frame, inner, transaction, followed)
                elif tag in _OTHERS:
                    self._other(frame, transaction, followed)
        followed.apply()
        return followed

    def _change(
        self,
        frame: bytes,
        inner: InnerRelation,
        transaction: Transaction,
        followed: FollowedTransaction,
    ) -> None:
        oid, views = inner
        if isinstance(views, str):
            followed.inner_unknown(oid, views)
            return
        message = decode_message(frame, XLOGDATA_HEADER, streamed=transaction.streamed)
        match message:
            case Insert():
                followed.inner(oid, None, views.of(message.new))
            case Delete():
                followed.inner(oid, views.of(message.old.columns), None)
            case Update(old=old) if old is not None:
                new = fill_unchanged(old.columns, message.new)
                followed.inner(oid, views.of(old.columns), views.of(new))
            case _:
                pass  # an UPDATE that changes no column of the replica identity

    def _other(self, frame: bytes, transaction: Transaction, followed: FollowedTransaction) -> None:
        message = decode_message(frame, XLOGDATA_HEADER, streamed=transaction.streamed)
        if isinstance(message, Relation):
            self.learn(message)
        elif isinstance(message, Truncate):
            named = {*message.relation_oids}
            oids = {inner for oid in named for inner, _ in self._known.get(oid, ())}
            for oid in sorted(oids):
                if oid in named:
                    followed.inner_truncate(oid)
                elif not named.isdisjoint(self._leaves(oid)):
                    followed.inner_stale(oid)
