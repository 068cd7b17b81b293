"""Columns of a table that several publications publish, and their disagreement. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.errors import DefinitionError
from gateway.definitions.membership import Entry, Membership
from gateway.definitions.model import Definitions, Publication, SubscriptionDefinition, Table

__all__ = [
    "Different",
    "column_list",
    "copied_columns",
    "different_lists",
    "disagreement",
    "publishes_generated",
]


class Different:
    """Disagreement of a subscription's publications about the columns of a table."""


_DIFFERENT = Different()


def publishes_generated(
    members: Membership, publications: Sequence[Publication], target: Table
) -> bool | None:
    """Whether stored generated columns are published without a column list.

    None if the publications disagree. Those with a column list do not count, and a table with no
    generated column of either kind leaves nothing to disagree about.

    Source: check_and_init_gencol in pgoutput.c (18).
    """
    asked = {p.generated for p in publications if members.columns(p, target) is None}
    if len(asked) > 1:
        return None if any(column.generated for column in target.columns) else False
    return asked == {True}


def column_list(
    members: Membership,
    publications: Sequence[Publication],
    target: Table,
    *,
    generated: bool,
) -> tuple[str, ...] | Different | None:
    """Return the column list that all publications agree on; None if they agree on having none.

    A missing list agrees with a list of all columns.

    Source: pgoutput_column_list_init in pgoutput.c.
    """
    lists = [members.columns(publication, target) for publication in publications]
    given = next((columns for columns in lists if columns is not None), None)
    if given is None:
        return None
    everything = _all_columns(target, generated=generated)
    if len({everything if columns is None else columns for columns in lists}) > 1:
        return _DIFFERENT
    return given


def copied_columns(
    members: Membership, publications: Sequence[Publication], table: Table
) -> tuple[str, ...] | None:
    """Return the columns of `table` that are copied; None if the publications disagree.

    Source: pg_get_publication_tables in pg_publication.c, fetch_table_list in subscriptioncmds.c.
    """
    lists = {
        _all_columns(table, generated=publication.generated) if columns is None else columns
        for publication in publications
        for columns in (members.columns(publication, table),)
    }
    return lists.pop() if len(lists) == 1 else None


def _all_columns(table: Table, *, generated: bool) -> tuple[str, ...]:
    """Return the columns that are published without a column list.

    Source: pub_form_cols_map in pg_publication.c (18).
    """
    return tuple(
        column.name
        for column in table.columns
        if not column.generated or (generated and column.generated == "s")
    )


def disagreement(
    members: Membership,
    entry: Entry,
    definitions: Definitions,
    subscription: SubscriptionDefinition,
) -> DefinitionError | None:
    """Return pgoutput's error about the columns of a relation, or None."""
    generated = publishes_generated(members, entry.publications, entry.target)
    if generated is None:
        return DefinitionError(
            "cannot use different values of publish_generated_columns for table "
            f'"{entry.target}" in different publications',
            text=definitions.text,
            position=subscription.position,
            hint="give them the same value, or name the columns in a column list",
        )
    columns = column_list(members, entry.publications, entry.target, generated=generated)
    if columns is _DIFFERENT:
        return different_lists(entry.target, definitions, subscription)
    return None


def different_lists(
    table: Table, definitions: Definitions, subscription: SubscriptionDefinition
) -> DefinitionError:
    """Return the error that publications have different column lists for a table."""
    return DefinitionError(
        f'cannot use different column lists for table "{table}" in different publications',
        text=definitions.text,
        position=subscription.position,
        hint=f'give them the same list, or leave one out of subscription "{subscription.name}"',
    )
