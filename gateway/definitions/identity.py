"""Check of the replica identities that publications require. Pure.

PostgreSQL itself makes these checks only at an UPDATE or DELETE, which then fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gateway.core.display import shown
from gateway.core.errors import DefinitionError
from gateway.definitions.membership import Membership
from gateway.definitions.model import IDENTIFYING, Operation, Publication, Table
from gateway.definitions.sql.expression import column_names
from gateway.pgoutput.messages import ReplicaIdentity

__all__ = ["find_identity_problems", "identity_gap", "problems_error", "problems_text"]

_NAMED: Final = 10
"""Problems that are named in one line."""
_LONGEST_REASON: Final = 300

_VERBS = {Operation.UPDATE: "update", Operation.DELETE: "delete from"}
_GERUNDS = {Operation.UPDATE: "updating", Operation.DELETE: "deleting from"}
_UNPUBLISHED_GENERATED = "Replica identity must not contain unpublished generated columns."
_ENLARGE = "ALTER TABLE {table} REPLICA IDENTITY FULL lets a filter use any column."
_ADD = "Add the columns of the replica identity to the list."
_REMEDY = (
    'Set [definitions] missing_identity = "insert_only" to publish its inserts and truncates only.'
)


def identity_gap(table: Table) -> str | None:
    """Return why `table` cannot publish any update or delete, or None if it can.

    The rows of a partitioned table are published if the identities of its leaves allow it. Its own
    is that of the rows that are sent under it.

    Source: CheckCmdReplicaIdentity in execReplication.c.
    """
    if table.replica_identity is ReplicaIdentity.FULL:
        if any(column.generated == "v" for column in table.columns):
            return _UNPUBLISHED_GENERATED
        return None
    return None if table.identity else "it does not have a replica identity"


def find_identity_problems(
    members: Membership, publications: Sequence[Publication], table: Table, text: str
) -> Iterator[tuple[Operation, DefinitionError]]:
    """Yield the errors that PostgreSQL would raise at an UPDATE and a DELETE, at most one each.

    Args:
        members: Publications of the catalog.
        publications: Publications of one subscription. As natively, each is checked on its own,
            even if another one overrules its filter.
        table: Plain table or leaf partition.
        text: Text of the definitions, for positions.

    Source: RelationBuildPublicationDesc in relcache.c, pub_rf_contains_invalid_column and
    pub_contains_invalid_column in publicationcmds.c, CheckCmdReplicaIdentity in execReplication.c.
    """
    gap = identity_gap(table)
    explained: set[tuple[str, str]] = set()
    for operation in IDENTIFYING:
        relevant = [
            publication
            for publication in publications
            if operation in publication.operations
            and members.reached_as(publication, table) is not None
        ]
        if not relevant:
            continue
        for detail, remedy, misses in (
            (
                "Column used in the publication WHERE expression is not part of the replica "
                "identity.",
                f"{_ENLARGE} {_REMEDY}",
                _filter_misses_identity,
            ),
            (
                "Column list used by the publication does not cover the replica identity.",
                f"{_ADD} {_REMEDY}",
                _list_misses_identity,
            ),
            (_UNPUBLISHED_GENERATED, _REMEDY, _leaves_generated_out),
        ):
            at_fault = next((p for p in relevant if misses(members, p, table)), None)
            if at_fault is not None:
                place = f'(Table {shown(table)}, publication "{shown(at_fault.name)}".)'
                hint = f"{detail} {place}"
                if (detail, at_fault.name) not in explained:  # the same for both operations
                    explained.add((detail, at_fault.name))
                    hint += f" {remedy.format(table=table.sql)}"
                yield (
                    operation,
                    DefinitionError(
                        f'cannot {_VERBS[operation]} table "{shown(table.name)}"',
                        text=text,
                        position=_position(members, at_fault, table),
                        hint=hint,
                        detail=detail,
                        cause="identity",
                    ),
                )
                break
        else:
            if gap is not None:
                yield operation, _missing(members, relevant[0], table, operation, gap, text)


def problems_error(problems: Sequence[DefinitionError]) -> DefinitionError:
    """Return the one error that stands for several problems; its reason names the first ones."""
    title = f"{len(problems)} problems in the definitions:"
    named = [problem.reason[:_LONGEST_REASON] for problem in problems[:_NAMED]]
    if len(problems) > _NAMED:
        named.append(f"and {len(problems) - _NAMED} more")
    return DefinitionError(
        f"{title}\n{problems_text(problems)}", reason=f"{title} {'; '.join(named)}"
    )


def problems_text(problems: Sequence[DefinitionError]) -> str:
    """Return the text of all problems, in their order.

    An UPDATE and a DELETE that are ruled out at one place for one reason have their messages first,
    then the quotation and the hint once: those of the UPDATE, whose hint has the remedy.
    """
    texts: list[str] = []
    last: DefinitionError | None = None
    for problem in problems:
        if last is not None and _repeats(problem, last):
            message, _, rest = texts[-1].partition("\n")
            second = problem.message.partition("\n")[0]
            texts[-1] = f"{message}\n{second}\n{rest}"
        else:
            texts.append(str(problem))
        last = problem
    return "\n".join(texts)


def _repeats(problem: DefinitionError, before: DefinitionError) -> bool:
    """Whether quotation and hint say nothing that those of the problem before do not say."""
    hint = problem.hint
    return (
        hint is not None
        and (before.hint or "").startswith(hint)
        and problem.position is not None
        and (problem.text, problem.position) == (before.text, before.position)
    )


def _missing(
    members: Membership,
    publication: Publication,
    table: Table,
    operation: Operation,
    gap: str,
    text: str,
) -> DefinitionError:
    message = f'cannot {_VERBS[operation]} table "{shown(table.name)}"'
    detail = None
    if gap.endswith("."):
        detail = gap
        hint = f"{gap} (Table {shown(table)}.)"
    else:
        message += f" because {gap} and publishes {operation.value}s"
        hint = (
            f"To enable {_GERUNDS[operation]} the table, set REPLICA IDENTITY using ALTER TABLE. "
            f"(Table {shown(table)}.)"
        )
    return DefinitionError(
        message,
        text=text,
        position=_position(members, publication, table),
        hint=f"{hint} {_REMEDY}",
        detail=detail,
        cause="identity",
    )


def _published_as(members: Membership, publication: Publication, table: Table) -> Table:
    if publication.via_root:
        above = members.topmost_ancestor(publication, table)
        if above is not None:
            return members.tables[above[0]]
    return table


def _filter_misses_identity(members: Membership, publication: Publication, table: Table) -> bool:
    if publication.all_tables or table.replica_identity is ReplicaIdentity.FULL:
        return False
    relation = members.relation(publication, _published_as(members, publication, table).oid)
    if relation is None or relation.where is None or relation.formula is not None:
        return False  # one that reads other tables is checked where it is resolved
    return not column_names(relation.where) <= set(table.identity)


def _list_misses_identity(members: Membership, publication: Publication, table: Table) -> bool:
    columns = members.columns(publication, _published_as(members, publication, table))
    if columns is None:
        return False
    if table.replica_identity is ReplicaIdentity.FULL:
        return True
    return not set(table.identity) <= set(columns)


def _leaves_generated_out(members: Membership, publication: Publication, table: Table) -> bool:
    """Whether the replica identity has a stored generated column that is not published (18)."""
    if publication.generated or not members.publishes_generated:
        return False
    stored = {column.name for column in table.columns if column.generated == "s"}
    if table.replica_identity is ReplicaIdentity.FULL:
        return bool(stored)
    if members.columns(publication, _published_as(members, publication, table)) is not None:
        return False  # the list covers the identity, or the gap was found before
    return not stored.isdisjoint(table.identity)


def _position(members: Membership, publication: Publication, table: Table) -> int | None:
    """Return the position at which the definitions name the table or an ancestor; None if not."""
    for oid in (table.oid, *table.ancestors):
        relation = members.relation(publication, oid)
        if relation is not None and relation.clause is not None:
            return relation.clause.position
    return None
